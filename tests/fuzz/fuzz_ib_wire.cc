// What ends of net-ib tell each other, as bytes: Cards that a peer hands over, the words of immediates, and the options that
// name ports. A Card that counts as genuine has numbers that nothing overflows with.
#include "cut.h"
#include "selection.h"
#include "wire.h"
#include <cstring>

using namespace tutti::net_ib;

namespace {

void card(std::string_view bytes) {
  Card c{};
  bytes.copy(reinterpret_cast<char *>(&c), sizeof c);
  fuzz::expect(!genuine(c) || bytes.size() >= 8);
  seal(c);
  if (!genuine(c)) return;
  for (uint32_t p = 0; p < c.paths; p++) fuzz::expect(c.path_port[p] < c.ports && c.ports <= max_paths);
  fuzz::expect(c.paths * (c.queues + 1u) <= card_qpns);
  const WindowShape shape{c.messages, c.ports, c.paths, c.queues};
  fuzz::expect(shape.bytes() < 64u << 20);
  fuzz::expect(shape.mailbox(0) >= shape.credits() && shape.outbox(c.paths - 1u, true) + shape.state() <= shape.bytes());
  for (uint32_t i = 0; i < c.paths * (c.queues + 1u); i++) fuzz::expect(psn_of(c, c.qpn[i]) < 1u << 24);
  Card changed = c;
  reinterpret_cast<uint8_t *>(&changed)[bytes.size() % sizeof c] ^= 1;
  fuzz::expect(!genuine(changed));
}

void immediate(fuzz::Input in) {
  uint32_t imm = 0;
  uint64_t low = 0;
  in.take(4).copy(reinterpret_cast<char *>(&imm), 4);
  in.take(8).copy(reinterpret_cast<char *>(&low), 8);
  const Tag tag = Tag::from(imm);
  fuzz::expect(tag.imm() == imm);
  low &= ~uint64_t{0} >> 1;
  const uint64_t whole = tag.whole(low);
  fuzz::expect(whole >= low && whole - low <= Tag::number_mask && (whole & Tag::number_mask) == tag.number);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  switch (in.below(4)) {
  case 0:
    card(in.rest());
    break;
  case 1:
    immediate(in);
    break;
  case 2:
    (void)parse_selection(in.rest());
    break;
  default:
    (void)parse_merge_groups(in.rest());
    break;
  }
  return 0;
}
