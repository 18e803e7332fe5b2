// Choices for some calls: what runs, what is refused and why, tags, nesting, groups, threads, and ranks that ask for different
// things.
#include "operations.h"
#include "text.h"
#include "tutti/tutti.hpp"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <thread>

using namespace support;

namespace {

tuttiCallConfig_t asking(const char *algo, const char *proto = nullptr, const char *tag = nullptr) {
  tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
  c.algo = algo;
  c.proto = proto;
  c.tag = tag;
  return c;
}

// From construction to the end of its life.
class With {
public:
  With(Rank &r, const tuttiCallConfig_t &c) : r_(r) { EXPECT_OK(r_, tuttiCallConfigBegin(&c)); }
  ~With() { EXPECT_OK(r_, tuttiCallConfigEnd()); }

private:
  Rank &r_;
};

nlohmann::json explain(Rank &r, const char *coll, size_t count) {
  std::vector<char> text(1 << 17);
  if (!EXPECT_OK(r, tuttiCommExplain(r.comm, coll, count, tuttiFloat32, text.data(), text.size()))) return {};
  return nlohmann::json::parse(text.data());
}

tuttiResult_t sum(Rank &r, size_t count) {
  std::vector<float> in(count, 1), out(count);
  const tuttiResult_t enqueued = tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, tuttiSum, r.comm, nullptr);
  if (enqueued != tuttiSuccess) return enqueued;
  const tuttiResult_t done = tuttiCommSynchronize(r.comm);
  if (done == tuttiSuccess) EXPECT(r, out.front() == static_cast<float>(r.n) && out.back() == static_cast<float>(r.n));
  return done;
}

std::string last_error(Rank &r) {
  return tuttiGetLastError(r.comm);
}

// Who finds it has the error itself, who is told of it that of another rank, in the same words.
bool told(tuttiResult_t e) {
  return e == tuttiInvalidUsage || e == tuttiRemoteError;
}

void abandon(Rank &r) {
  tuttiCommAbort(r.comm);
  r.comm = nullptr;
}

// What runs is what has been bound.
void runs(Rank &r, const char *algo, const char *proto, size_t count) {
  const auto before = explain(r, "all_reduce", count);
  EXPECT(r, before["algo"] == algo && before["proto"] == proto && before["decided_by"] == "call");
  run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, count});
  const auto after = explain(r, "all_reduce", count);
  EXPECT(r, after.contains("bound"));
  says(r, after.value("bound", ""), {proto});
}

} // namespace

TEST_CASE("a call runs by the algorithm and protocol that it asks for, and the next one as before") {
  CHECK(run_processes(3, [](Rank &r) {
          const auto usual = explain(r, "all_reduce", 1000);
          for (const char *algo : {"ring", "tree", "direct"})
            for (const char *proto : {"simple", "ll", "ll128"}) {
              const With with(r, asking(algo, proto));
              runs(r, algo, proto, 1000);
              EXPECT(r, explain(r, "all_reduce", 1000)["decided_how"] ==
                            "tuttiCallConfig_t.algo \"" + std::string(algo) + "\", tuttiCallConfig_t.proto \"" + proto + "\"");
            }
          const auto again = explain(r, "all_reduce", 1000);
          EXPECT(r, again["algo"] == usual["algo"] && again["proto"] == usual["proto"]);
          EXPECT(r, again["decided_by"] == "tuner");
          run_all(r, {100}, false);
        }) == 0);
}
TEST_CASE("every operation runs under a list that some of its algorithms are on, with right results") {
  CHECK(run_processes(3, [](Rank &r) {
          tuttiCallConfig_t c = asking("^direct", "simple", "all");
          c.preferred = 1;
          const With with(r, c);
          run_all(r, {1, 1000, 50'000}, false);
        }) == 0);
}
TEST_CASE("a call has the slots and channels that it asks for, within the limits of the communicator") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiCallConfig_t c = asking("ring", "simple");
          c.slotBytes = 4096;
          c.depth = 16;
          c.minCTAs = c.maxCTAs = 2;
          {
            const With with(r, c);
            const auto e = explain(r, "all_reduce", 1 << 20);
            EXPECT(r, e["slot_bytes"] == 4096 && e["depth"] == 16 && e["channels"] == 2 && e["shaped_by"] == "call");
            run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, 1 << 20});
            says(r, explain(r, "all_reduce", 1 << 20).value("bound", ""), {"slots 16 x 4096"});
          }
          c.slotBytes = 1 << 30; // memory.cap does not allow it
          const With with(r, c);
          EXPECT(r, explain(r, "all_reduce", 1 << 20)["slot_bytes"] < 1 << 26);
          EXPECT_OK(r, sum(r, 1 << 16));
        }) == 0);
}

TEST_CASE("what a call requires and cannot have is an error on every rank that names the wish and what is against each way") {
  CHECK(run_processes(3, [](Rank &r) {
          {
            const With with(r, asking("ring", nullptr, "step 7"));
            std::vector<float> x(300), y(300);
            EXPECT(r, tuttiAlltoAll(x.data(), y.data(), 100, tuttiFloat32, r.comm, nullptr) == tuttiInvalidUsage);
            says(r, last_error(r), {"tuttiCallConfig_t.algo \"ring\": no way to run alltoall", "ring: ", "[step 7]"});
          }
          run_all(r, {100}, false); // nothing happened
        }) == 0);
}
TEST_CASE("what a call asks for wins over the options, and what it leaves open does not") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        EXPECT(r, explain(r, "all_reduce", 100)["decided_by"] == "environment");
                        {
                          const With with(r, asking("ring"));
                          const auto e = explain(r, "all_reduce", 100);
                          EXPECT(r, e["algo"] == "ring" && e["proto"] == "ll");
                          EXPECT_OK(r, sum(r, 100));
                        }
                        const With with(r, asking("all_gather:ring", "all_reduce:simple"));
                        const auto e = explain(r, "all_reduce", 100);
                        EXPECT(r, e["algo"] == "direct" && e["proto"] == "simple");
                      },
                      {.env = {"TUTTI_ALGO=direct", "TUTTI_PROTO=ll"}}) == 0);
}
TEST_CASE("what a call prefers and cannot have runs another way, in which the rest of the wish holds") {
  CHECK(run_processes(3, [](Rank &r) {
          tuttiCallConfig_t c = asking("ring", "ll");
          c.preferred = 1;
          const With with(r, c);
          run_case(r, {Coll::alltoall, tuttiFloat32, tuttiSum, 1000});
          const auto e = explain(r, "alltoall", 1000);
          EXPECT(r, e["algo"] != "ring" && e["proto"] == "ll");
        }) == 0);
}
TEST_CASE("coll.choice decides for calls that do not say whether they require") {
  CHECK(run_processes(2,
                      [](Rank &r) {
                        tuttiCallConfig_t c = asking("alltoall:ring");
                        {
                          const With with(r, c);
                          run_case(r, {Coll::alltoall, tuttiFloat32, tuttiSum, 1000});
                        }
                        c.preferred = 0;
                        const With with(r, c);
                        std::vector<float> x(20), y(20);
                        EXPECT(r, tuttiAlltoAll(x.data(), y.data(), 10, tuttiFloat32, r.comm, nullptr) == tuttiInvalidUsage);
                      },
                      {.env = {"TUTTI_COLL_CHOICE=preferred"}}) == 0);
}

TEST_CASE("fields of an inner configuration win, and the outer ones hold again after it") {
  CHECK(run_threads(3, [](Rank &r) {
          const With outer(r, asking("ring", "simple", "outer"));
          {
            const With inner(r, asking("direct", nullptr, "inner"));
            const auto e = explain(r, "all_reduce", 1000);
            EXPECT(r, e["algo"] == "direct" && e["proto"] == "simple" && e["tag"] == "inner");
            EXPECT_OK(r, sum(r, 1000));
          }
          const auto e = explain(r, "all_reduce", 1000);
          EXPECT(r, e["algo"] == "ring" && e["tag"] == "outer");
          EXPECT_OK(r, sum(r, 1000));
        }) == 0);
}
TEST_CASE("calls of a group keep what held when they were called") {
  CHECK(run_threads(3, [](Rank &r) {
          constexpr size_t n = 5000;
          std::vector<float> in(n, 1), a(n), b(n), c(n);
          EXPECT_OK(r, tuttiGroupStart());
          {
            const With with(r, asking("ring", "simple"));
            EXPECT_OK(r, tuttiAllReduce(in.data(), a.data(), n, tuttiFloat32, tuttiSum, r.comm, nullptr));
          }
          {
            const With with(r, asking("tree", "ll"));
            EXPECT_OK(r, tuttiAllReduce(in.data(), b.data(), n, tuttiFloat32, tuttiSum, r.comm, nullptr));
          }
          EXPECT_OK(r, tuttiAllReduce(in.data(), c.data(), n, tuttiFloat32, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiGroupEnd());
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          const auto sum = static_cast<float>(r.n);
          EXPECT(r, a.back() == sum && b.back() == sum && c.back() == sum);
          for (const auto &[algo, proto] : {std::pair("ring", "simple"), {"tree", "ll"}}) {
            const With with(r, asking(algo, proto));
            EXPECT(r, explain(r, "all_reduce", n).contains("bound"));
          }
          const With with(r, asking("tree", "ll128"));
          EXPECT(r, !explain(r, "all_reduce", n).contains("bound"));
        }) == 0);
}
TEST_CASE("a configuration is the calling thread's own") {
  CHECK(run_processes(2, [](Rank &r) {
          const std::string usual = explain(r, "all_reduce", 8)["algo"];
          const With with(r, asking("ring"));
          std::string elsewhere;
          std::thread([&] {
            elsewhere = explain(r, "all_reduce", 8)["algo"];
            EXPECT(r, tuttiCallConfigEnd() == tuttiInvalidUsage);
            says(r, tuttiGetLastError(nullptr), {"tuttiCallConfigEnd without tuttiCallConfigBegin"});
          }).join();
          EXPECT(r, elsewhere == usual);
          EXPECT(r, explain(r, "all_reduce", 8)["algo"] == "ring");
        }) == 0);
}

TEST_CASE("ranks that ask for different ways learn of it and are told both") {
  struct Pair {
    const char *algo[2], *proto[2];
    int channels[2];
    uint64_t slot[2];
    const char *say[2];
  };
  const Pair pairs[] = {{{"ring", "direct"}, {"simple", "simple"}, {1, 1}, {4096, 4096}, {"by ring", "by direct"}},
                        {{"ring", "ring"}, {"simple", "ll"}, {1, 1}, {4096, 4096}, {"(simple", "(ll"}},
                        {{"ring", "ring"}, {"simple", "simple"}, {1, 2}, {4096, 4096}, {"(simple, slots", "2 channels"}},
                        {{"ring", "ring"}, {"simple", "simple"}, {1, 1}, {4096, 8192}, {"4096 bytes", "8192 bytes"}}};
  for (const Pair &p : pairs)
    CHECK(run_processes(3, [&](Rank &r) {
            const int mine = r.rank == 1 ? 1 : 0;
            tuttiCallConfig_t c = asking(p.algo[mine], p.proto[mine], "odd one");
            c.minCTAs = c.maxCTAs = p.channels[mine];
            c.slotBytes = p.slot[mine];
            c.depth = 4;
            {
              const With with(r, c);
              EXPECT(r, told(sum(r, 100'000)));
            }
            says(r, last_error(r), {"rank 1 calls all_reduce #1 (100000 float sum) [odd one] by", p.say[0], p.say[1]});
            abandon(r);
          }) == 0);
}
TEST_CASE("a rank that asks for nothing disagrees with one that asks for another way than the usual") {
  CHECK(run_processes(2, [](Rank &r) {
          EXPECT(r, explain(r, "all_reduce", 1000)["algo"] == "direct");
          if (r.rank == 1) {
            const With with(r, asking("ring", "simple", "odd one"));
            EXPECT(r, told(sum(r, 1000)));
          } else
            EXPECT(r, told(sum(r, 1000)));
          says(r, last_error(r), {"rank 0 calls all_reduce #1", "rank 1 calls all_reduce #1", "by direct", "by ring"});
          abandon(r);
        }) == 0);
}
TEST_CASE("tags may differ from rank to rank, and stand in errors of disagreeing operations") {
  CHECK(run_processes(2, [](Rank &r) {
          const std::string tag = "of rank " + std::to_string(r.rank);
          const With with(r, asking(nullptr, nullptr, tag.c_str()));
          for (int i = 0; i < 40; i++) EXPECT_OK(r, sum(r, 10));
          std::vector<float> x(10);
          EXPECT_OK(r, r.rank == 0 ? tuttiSend(x.data(), 10, tuttiFloat32, 1, r.comm, nullptr)
                                   : tuttiRecv(x.data(), 10, tuttiFloat32, 0, r.comm, nullptr));
          EXPECT(r, told(sum(r, r.rank == 0 ? 10 : 20)));
          says(r, last_error(r),
               {"rank 0 calls all_reduce #41 (10 float sum) [of rank 0]",
                "rank 1 calls all_reduce #41 (20 float sum) [of rank 1]"});
          tuttiErrorInfo info{};
          info.size = sizeof info;
          EXPECT_OK(r, tuttiCommGetLastError(r.comm, &info));
          says(r, info.operation, {"all_reduce #41", "[of rank "});
          abandon(r);
        }) == 0);
}
TEST_CASE("messages that wait for ever name the tag of their operation") {
  CHECK(run_processes(2,
                      [](Rank &r) {
                        if (r.rank == 0) {
                          const With with(r, asking(nullptr, nullptr, "lonely"));
                          std::vector<float> x(10);
                          EXPECT_OK(r, tuttiRecv(x.data(), 10, tuttiFloat32, 1, r.comm, nullptr));
                          EXPECT(r, tuttiCommSynchronize(r.comm) == tuttiTimeout);
                          says(r, last_error(r), {"sendrecv #1 [lonely] made no progress"});
                        } else
                          while (tuttiCommSynchronize(r.comm) == tuttiSuccess) std::this_thread::yield();
                        abandon(r);
                      },
                      {.env = {"TUTTI_TIMEOUT=300ms"}}) == 0);
}

TEST_CASE("a configuration with a mistake is refused with the field, and changes nothing") {
  Rank boss{0, 1};
  const auto refused = [&](tuttiCallConfig_t c, std::initializer_list<const char *> parts) {
    EXPECT(boss, tuttiCallConfigBegin(&c) == tuttiInvalidArgument);
    says(boss, tuttiGetLastError(nullptr), parts);
    EXPECT(boss, tuttiCallConfigEnd() == tuttiInvalidUsage);
  };
  EXPECT(boss, tuttiCallConfigBegin(nullptr) == tuttiInvalidArgument);
  refused(asking("rnig"), {"tuttiCallConfig_t.algo", "\"rnig\"", "ring"});
  refused(asking(nullptr, "simpel"), {"tuttiCallConfig_t.proto", "\"simpel\"", "simple"});
  refused(asking("allredcue:ring"), {"tuttiCallConfig_t.algo", "allredcue"});
  const std::string longest(63, 'x'), too_long(64, 'x');
  refused(asking(nullptr, nullptr, too_long.c_str()), {"tuttiCallConfig_t.tag", "63 bytes"});
  refused(asking(nullptr, nullptr, "two\nlines"), {"tuttiCallConfig_t.tag", "control character"});
  tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
  c.depth = 5000;
  refused(c, {"tuttiCallConfig_t.depth", "\"5000\"", "0 to 1024"});
  c = TUTTI_CALL_CONFIG_INITIALIZER;
  c.minCTAs = 4, c.maxCTAs = 2;
  refused(c, {"minCTAs 4", "maxCTAs 2"});
  c.minCTAs = 0;
  refused(c, {"tuttiCallConfig_t.minCTAs", "1 to 64"});
  c = TUTTI_CALL_CONFIG_INITIALIZER;
  c.preferred = 2;
  refused(c, {"preferred 2"});
  c = TUTTI_CALL_CONFIG_INITIALIZER;
  c.magic = TUTTI_CONFIG_MAGIC;
  refused(c, {"TUTTI_CALL_CONFIG_INITIALIZER"});
  c = asking("ring", nullptr, longest.c_str());
  for (int i = 0; i < 64; i++) EXPECT_OK(boss, tuttiCallConfigBegin(&c));
  EXPECT(boss, tuttiCallConfigBegin(&c) == tuttiInvalidUsage);
  says(boss, tuttiGetLastError(nullptr), {"is a tuttiCallConfigEnd missing?"});
  for (int i = 0; i < 64; i++) EXPECT_OK(boss, tuttiCallConfigEnd());
  CHECK(boss.failures == 0);
}
TEST_CASE("a configuration of an older program, which ends earlier, means what it says") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiCallConfig_t c = asking("ring");
          c.size = offsetof(tuttiCallConfig_t, bufferBytes);
          c.bufferBytes = ~0ull; // not its own
          const With with(r, c);
          EXPECT(r, explain(r, "all_reduce", 8)["algo"] == "ring");
        }) == 0);
}

TEST_CASE("C++: a configuration holds for the life of an object, and goes with an exception") {
  CHECK(run_threads(2, [](Rank &r) {
          tutti::Comm comm(r.comm);
          r.comm = nullptr;
          std::vector<float> x(100, 1), y(100);
          Rank mine{r.rank, r.n, comm.get()};
          tuttiCallConfig_t ring = tutti::CallConfig::default_config();
          ring.algo = "ring";
          try {
            const tutti::CallConfig outer(ring);
            const tutti::CallConfig tag("inner");
            comm.all_reduce(x, y, tutti::Op::sum);
            comm.synchronize();
            const auto e = explain(mine, "all_reduce", 100);
            EXPECT(r, y[99] == 2 && e["algo"] == "ring" && e["tag"] == "inner" && e.contains("bound"));
            comm.all_to_all(x, y);
            EXPECT(r, false);
          } catch (const tutti::Error &e) {
            EXPECT(r, e.code() == tuttiInvalidUsage);
            says(r, e.what(), {"tuttiCallConfig_t.algo \"ring\"", "[inner]"});
          }
          EXPECT(r, !explain(mine, "all_reduce", 100).contains("tag"));
          ring.algo = "nope";
          try {
            const tutti::CallConfig wrong(ring);
            EXPECT(r, false);
          } catch (const tutti::Error &e) {
            says(r, e.what(), {"nope"});
          }
          EXPECT(r, tuttiCallConfigEnd() == tuttiInvalidUsage); // none is left
          r.failures += mine.failures;
        }) == 0);
}
