// Parsers of core/bootstrap that see bytes of strangers. What parses must encode to something that parses to the same.
#include "bootstrap/at_root.h"
#include "bootstrap/council.h"
#include "bootstrap/crypto.h"
#include "bootstrap/launch.h"
#include "bootstrap/wire.h"
#include <cstring>

using namespace tutti;
using namespace tutti::boot;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 12) {
  case 0: {
    tuttiUniqueId raw{};
    std::memcpy(raw.internal, bytes.data(), std::min(bytes.size(), sizeof raw.internal));
    if (auto id = decode(raw); id.ok() && !decode(encode(id.value())).ok()) __builtin_trap();
    break;
  }
  case 1:
    if (auto h = decode_hello(bytes); h && encode(*h).size() != kHelloBytes) __builtin_trap();
    break;
  case 2:
    if (auto c = decode_challenge(bytes); c && encode(*c).size() != kChallengeBytes) __builtin_trap();
    break;
  case 3:
    if (bytes.size() >= kFrameHeader)
      if (auto h = decode_header(bytes.first<kFrameHeader>()); h && h->length > kFrameLimit) __builtin_trap();
    break;
  case 4:
    if (auto c = decode_check_in(bytes); c && !decode_check_in(encode(*c))) __builtin_trap();
    break;
  case 5:
    if (auto e = decode_error(bytes); e && e->message.find('\n') != std::string::npos) __builtin_trap();
    break;
  case 6:
    if (auto b = decode_branch(bytes); b && !decode_branch(encode(*b))) __builtin_trap();
    break;
  case 7:
    if (auto mac = decode_proof(bytes); mac && encode_proof(*mac).size() != kProofBytes) __builtin_trap();
    break;
  case 8:
    if (auto a = decode_at_root(bytes); a && !decode_at_root(encode(*a))) __builtin_trap();
    break;
  case 9: {
    Reader r(bytes);
    const int nranks = 1 + r.u8();
    Reader again = r;
    if (auto p = read_proposal(r, nranks); p && p->excluded.size() > static_cast<size_t>(nranks)) __builtin_trap();
    if (auto d = read_decision(again, nranks))
      for (const int rank : d->members)
        if (rank < 0 || rank >= nranks) __builtin_trap();
    break;
  }
  case 10: {
    const Secret key{};
    if (const auto open = unseal(key, bytes); open && open->size() > bytes.size()) __builtin_trap();
    if (unseal(key, seal(key, bytes)) != Bytes(bytes.begin(), bytes.end())) __builtin_trap();
    break;
  }
  default:
    (void)parse_host_port(std::string_view(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
    break;
  }
  return 0;
}
