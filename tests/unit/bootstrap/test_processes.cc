// What ranks in several processes do together.
#include "processes.h"

using namespace help;

namespace {

void work(Bootstrap &b, const Say &say) {
  for (int i = 0; i < 3; i++) {
    auto all = b.allgather(bytes(std::to_string(b.rank())), soon(), "t");
    if (!all.ok()) return say(line(all));
    if (text(all.value().back()) != std::to_string(b.nranks() - 1)) return say("wrong piece");
  }
  for (int to = 0; to < b.nranks(); to++)
    if (Status s = b.send(to, make_tag(MsgKind::user, 1), bytes("from " + std::to_string(b.rank()))); !s.ok())
      return say(line(s));
  for (int from = 0; from < b.nranks(); from++) {
    auto m = b.recv(from, make_tag(MsgKind::user, 1), soon(), "t");
    if (!m.ok()) return say(line(m));
    if (text(m.value().data) != "from " + std::to_string(from)) return say("wrong message");
  }
  auto half = b.split(b.rank() % 2, 0, config(), soon());
  if (!half.ok()) return say(line(half));
  if (Status s = half.value()->barrier(soon(), "half"); !s.ok()) return say(line(s));
  half.value()->expect_close();
  if (Status s = b.barrier(soon(), "end"); !s.ok()) return say(line(s));
  b.expect_close();
  say("done");
}

} // namespace

TEST_CASE("processes of one host gather, send, split and leave") {
  auto ranks = processes(5, true, work);
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

TEST_CASE("processes that share no host do the same over TCP") {
  for (int n : {2, 4}) {
    auto ranks = processes(n, false, work);
    for (auto &c : ranks) CHECK(c.read_line() == "done");
    for (auto &c : ranks) CHECK(reap(c) == 0);
  }
}
