// A rank is killed in each phase of a communicator's life: the others learn who it was, and nobody waits.
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "bootstrap/root.h"
#include "processes.h"
#include <future>

using namespace help;

namespace {

// What all but the killed rank say must name it.
void check_named(std::vector<Child> &ranks, size_t killed) {
  const std::string who = "rank " + std::to_string(killed) + " (pid " + std::to_string(ranks[killed].pid) + " on ";
  for (size_t r = 0; r < ranks.size(); r++) {
    if (r == killed) continue;
    const std::string said = ranks[r].read_line();
    CHECK_MESSAGE(said.find(who) != std::string::npos, said);
  }
  for (auto &c : ranks) reap(c);
}

void wait_for(std::vector<Child> &ranks, const std::string &word) {
  for (auto &c : ranks) REQUIRE(c.read_line() == word);
}

// How many ranks have checked in at a root of this process.
int checked_in(const tuttiUniqueId &id) {
  auto &service = boot::Service::get();
  std::promise<int> answer;
  service.post([&] {
    const auto root = service.hub().find_root(boot::decode(id).value().base);
    answer.set_value(root ? root->checked_in(0) : -1);
  });
  return answer.get_future().get();
}

} // namespace

TEST_CASE("a rank killed while the ring is made is named by the root") {
  auto id = create_job_id(*config());
  REQUIRE(id.ok());
  std::vector<Child> ranks;
  for (int r = 0; r < 3; r++)
    ranks.push_back(spawn([&, r](const Say &say) {
      say(line(Bootstrap::join(id.value(), 4, r, config(), soon()))); // rank 3 never comes
    }));
  const Deadline d = soon();
  while (checked_in(id.value()) < 3 && !d.expired()) std::this_thread::yield();
  REQUIRE(checked_in(id.value()) == 3);
  kill(ranks[1].pid, SIGKILL);
  check_named(ranks, 1);
}

TEST_CASE("a rank killed while others wait for its message is named") {
  for (bool same_host : {true, false}) {
    auto ranks = processes(4, same_host, [](Bootstrap &b, const Say &say) {
      say("joined");
      if (b.rank() == 2) pause();
      say(line(b.recv(3, make_tag(MsgKind::user, 9), soon(), "t")));
    });
    wait_for(ranks, "joined");
    kill(ranks[2].pid, SIGKILL);
    check_named(ranks, 2);
  }
}

TEST_CASE("a rank killed before it comes to an allgather is named") {
  for (bool same_host : {true, false}) {
    auto ranks = processes(5, same_host, [](Bootstrap &b, const Say &say) {
      say("joined");
      if (b.rank() == 3) pause();
      say(line(b.allgather(bytes("x"), soon(), "t")));
    });
    wait_for(ranks, "joined");
    kill(ranks[3].pid, SIGKILL);
    check_named(ranks, 3);
  }
}

TEST_CASE("a rank killed during a split is named, in the parent and where the group was being made") {
  auto ranks = processes(5, true, [](Bootstrap &b, const Say &say) {
    say("joined");
    if (b.rank() == 0) pause();
    say(line(b.split(b.rank() % 2, 0, config(), soon())));
  });
  wait_for(ranks, "joined");
  kill(ranks[0].pid, SIGKILL);
  check_named(ranks, 0);
}

TEST_CASE("a rank killed before the last barrier is named, one killed after it is missed by nobody") {
  auto ranks = processes(4, false, [](Bootstrap &b, const Say &say) {
    say("joined");
    if (b.rank() == 1) pause();
    say(line(b.barrier(soon(), "finalize")));
  });
  wait_for(ranks, "joined");
  kill(ranks[1].pid, SIGKILL);
  check_named(ranks, 1);

  ranks = processes(4, false, [](Bootstrap &b, const Say &say) {
    const Status s = b.barrier(soon(), "finalize");
    b.expect_close();
    say(s.ok() ? "passed" : line(s));
    if (b.rank() == 1) pause();
    const auto began = Clock::now();
    while (b.rank() == 0 && b.send(1, make_tag(MsgKind::user, 1), bytes("x")).ok() && Clock::now() - began < 10s)
      std::this_thread::sleep_for(std::chrono::milliseconds(1)); // until the loss has been noticed; what waits has a bound
    say(b.failed() ? line(b.failure()) : "fine");
  });
  wait_for(ranks, "passed");
  kill(ranks[1].pid, SIGKILL);
  for (size_t r : {0, 2, 3}) CHECK(ranks[r].read_line() == "fine");
  for (auto &c : ranks) reap(c);
}
