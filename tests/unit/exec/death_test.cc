// Peers that end, descriptors that run out, engines destroyed beside the dead.
#include "cases.h"
#include <csignal>
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

using namespace tutti;
using namespace tutti::test;

namespace {

const Case kSmall{"direct", TUTTI_COLL_ALL_REDUCE, 3, 1000, 4096, 4};

// Rank 1 kills itself after its second operation, when the others have completed the first one; the next one at the latest must
// fail with its name, and their engines end.
bool survives_kill(std::shared_ptr<const Config> config, Iface<tutti_net_v1> net) {
  void *page = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  auto *noticed = new (page) std::atomic<int>(0); // survivors that did; the first one to leave is not to be taken for the dead
  const bool good = forked(
      3,
      [noticed](int rank, Engine &e) {
        if (run_case(kSmall, rank, e, 1) != 0) return 1;
        if (rank == 1 && run_case(kSmall, rank, e, 1) == 0) ::kill(::getpid(), SIGKILL);
        const auto begin = Clock::now();
        for (int i = 0; i < 3 && !e.failed(); i++) (void)run_case(kSmall, rank, e, 1);
        if (!e.failed() || Clock::now() - begin > std::chrono::seconds(10)) return 2;
        ++*noticed;
        for (const auto until = Deadline::in(std::chrono::seconds(10)); *noticed < 2 && !until.expired();) ::sched_yield();
        const Error error = e.error().error();
        return error.peer == 1 || error.message.find("rank 1") != std::string::npos ? 0 : 3;
      },
      std::move(config), {1}, net);
  ::munmap(page, sizeof(std::atomic<int>));
  return good;
}

} // namespace

TEST_CASE("SIGKILL of a peer ends the others' operation with its rank, over shared memory and over a network") {
  CHECK(survives_kill(nullptr, {}));
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  CHECK(survives_kill(config_with({{"TUTTI_SHM_DISABLE", "1"}, {"TUTTI_TIMEOUT", "20s"}}), *net));
}

TEST_CASE("without descriptors left a link is an error that says so, and the engine still ends") {
  CHECK(forked(2, [](int rank, Engine &e) {
    const rlimit none{4, 4};
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = 4096;
    sel.depth = 4;
    const auto bound =
        e.bind(plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, rank, 2)), sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    if (bound.ok()) return 2;
    const Error &error = bound.status().error();
    return error.hint == "raise ulimit -n" && e.usage().bytes == 0 ? 0 : 3;
  }));
}
