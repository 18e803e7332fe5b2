// What links have carried: counted exactly, over every transport and protocol, and written to files.
#include "text.h"
#include "traffic.h"
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kChunk = 4096; // bytes

std::vector<float> floats(size_t bytes) {
  return std::vector<float>(bytes / sizeof(float), 1);
}
void reduce_all(Rank &r, size_t bytes) {
  std::vector<float> in = floats(bytes), out = in;
  EXPECT_OK(r, tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
}
void broadcast(Rank &r, size_t bytes, int root) {
  std::vector<float> x = floats(bytes);
  EXPECT_OK(r, tuttiBcast(x.data(), x.size(), tuttiFloat32, root, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
}

// A ring all_reduce of n chunks, twice: 2 (n - 1) messages of a chunk each to the next rank. `on_wire`: of a chunk.
void ring(Rank &r, int64_t chunk, int64_t on_wire) {
  for (int turn = 0; turn < 2; turn++) {
    const Traffic t = traffic_of(r, [&] { reduce_all(r, static_cast<size_t>(chunk * r.n)); });
    const int64_t messages = 2 * (r.n - 1);
    const Moved want{messages, messages * chunk, messages * on_wire, 0};
    EXPECT(r, t.sent((r.rank + 1) % r.n) == want);
    EXPECT(r, t.received((r.rank + r.n - 1) % r.n) == want);
    EXPECT(r, t.sent() == want); // and to nobody else
    EXPECT(r, t.received() == want);
  }
}
std::vector<std::string> by(const char *algo, const char *proto, const char *more = "TUTTI_DEPTH=4") {
  return {std::string("TUTTI_ALGO=") + algo, std::string("TUTTI_PROTO=") + proto, "TUTTI_SLOT_BYTES=64K", more};
}

// Ranks as threads of a process of their own: settings are read once per process.
int threads(int n, const Body &body, const std::vector<std::string> &env) {
  return run_processes(1, {.env = env, .init = false},
                       [&](Rank &r, const tuttiUniqueId &) { r.failures += run_threads(n, body); });
}
// Operations until one fails, as it does when a rank goes.
tuttiResult_t until_error(Rank &r) {
  std::vector<float> x(1024);
  tuttiResult_t e = tuttiSuccess;
  while (e == tuttiSuccess) {
    e = tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, tuttiSum, r.comm, nullptr);
    if (e == tuttiSuccess) e = tuttiCommSynchronize(r.comm);
  }
  return e;
}

} // namespace

TEST_CASE("a ring all_reduce sends 2 (n - 1) / n of its bytes, and a header with each message, over shared memory") {
  for (const int n : {2, 3, 4, 8})
    CHECK(run_processes(n, [](Rank &r) { ring(r, kChunk, kChunk + 64); }, {.env = by("ring", "simple")}) == 0);
}
TEST_CASE("between threads the same is counted") {
  for (const int n : {2, 5})
    CHECK(threads(
              n, [](Rank &r) { ring(r, kChunk, kChunk + 64); }, by("ring", "simple")) == 0);
}
TEST_CASE("over sockets a message has a header of 16 bytes, whatever the protocol") {
  for (const char *proto : {"simple", "ll128"})
    CHECK(run_processes(3, [](Rank &r) { ring(r, kChunk, kChunk + 16); }, {.env = by("ring", proto, "TUTTI_SHM_DISABLE=1")}) ==
          0);
  CHECK(run_processes(2, [](Rank &r) { ring(r, 64, 64 + 16); }, {.env = by("ring", "simple", "TUTTI_SHM_DISABLE=1")}) == 0);
}
TEST_CASE("lines that carry their signal are counted with it") {
  // 4096 bytes: 74 lines of 56 bytes, 35 of 120.
  CHECK(run_processes(3, [](Rank &r) { ring(r, kChunk, 74 * 64); }, {.env = by("ring", "ll")}) == 0);
  CHECK(run_processes(3, [](Rank &r) { ring(r, kChunk, 35 * 128); }, {.env = by("ring", "ll128")}) == 0);
  CHECK(run_processes(3, [](Rank &r) { ring(r, kChunk, 74 * 128); }, {.env = by("ring", "ll8")}) == 0);
  CHECK(run_processes(2, [](Rank &r) { ring(r, 64, 2 * 64); }, {.env = by("ring", "ll")}) == 0);
}
TEST_CASE("what fits beside the signal takes a line") {
  const auto small = [](Rank &r) {
    const Traffic t = traffic_of(r, [&] { reduce_all(r, 8); });
    EXPECT(r, t.sent().bytes == 8 * t.sent().messages);
    EXPECT(r, t.sent().messages > 0);
    EXPECT(r, t.sent().wire == 64 * t.sent().messages);
    EXPECT(r, t.received() == t.sent());
  };
  for (const char *proto : {"simple", "ll", "pull"}) CHECK(run_processes(2, small, {.env = by("direct", proto)}) == 0);
}
TEST_CASE("what is pulled is counted as lent, once on each side, and takes a line of the link") {
  const auto pulled = [](Rank &r) {
    const Traffic t = traffic_of(r, [&] { reduce_all(r, static_cast<size_t>(kChunk * r.n)); });
    for (const Moved &m : {t.sent(), t.received()}) {
      EXPECT(r, m.bytes >= 2 * (r.n - 1) * kChunk);
      EXPECT(r, m.lent > 0);
      EXPECT(r, m.wire == m.bytes - m.lent + 64 * m.messages);
    }
    // Both ends of each link decide together.
    std::vector<int64_t> lent{t.sent().lent, t.received().lent}, sum(2);
    EXPECT_OK(r, tuttiAllReduce(lent.data(), sum.data(), 2, tuttiInt64, tuttiSum, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    EXPECT(r, sum[0] == sum[1]);
  };
  for (const int n : {2, 4})
    for (const char *algo : {"ring", "direct"})
      CHECK_MESSAGE(run_processes(n, pulled, {.env = by(algo, "pull")}) == 0, std::string(algo) << " " << n);
}
TEST_CASE("what several ranks read is written once, and each reader counts it") {
  CHECK(run_processes(4,
                      [](Rank &r) {
                        const Traffic t = traffic_of(r, [&] { broadcast(r, 4096, 1); });
                        EXPECT(r, t.sent().bytes == (r.rank == 1 ? 4096 : 0));
                        EXPECT(r, t.received(1).bytes == (r.rank == 1 ? 0 : 4096));
                        EXPECT(r, t.received().bytes == t.received(1).bytes);
                        for (const auto &l : t.after)
                          if (l["bytes"] == 4096) {
                            EXPECT(r, l["readers"] == 3);
                            EXPECT(r, l["peer"] == 1);
                          }
                      },
                      {.env = by("direct", "simple")}) == 0);
}
TEST_CASE("alltoall moves a block between each two ranks, and a rank's own block nowhere") {
  const auto blocks = [](Rank &r) {
    std::vector<float> in = floats(static_cast<size_t>(kChunk * r.n)), out = in;
    const Traffic t = traffic_of(r, [&] {
      EXPECT_OK(r, tuttiAlltoAll(in.data(), out.data(), kChunk / sizeof(float), tuttiFloat32, r.comm, nullptr));
      EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    });
    for (int p = 0; p < r.n; p++) {
      EXPECT(r, t.sent(p).bytes == (p == r.rank ? 0 : kChunk));
      EXPECT(r, t.received(p).bytes == (p == r.rank ? 0 : kChunk));
    }
  };
  for (const char *algo : {"direct", "pairwise"})
    for (const char *where : {"TUTTI_DEPTH=4", "TUTTI_SHM_DISABLE=1"})
      CHECK_MESSAGE(run_processes(4, blocks, {.env = by(algo, "simple", where)}) == 0, std::string(algo) << " " << where);
}
TEST_CASE("sends, receives and blocks of different sizes are counted as they are") {
  CHECK(run_processes(3, [](Rank &r) {
          const int next = (r.rank + 1) % r.n, before = (r.rank + 2) % r.n;
          std::vector<char> out(1000), in(1000);
          const auto mine = static_cast<size_t>(100 * r.rank + 7), theirs = static_cast<size_t>(100 * before + 7);
          const Traffic t = traffic_of(r, [&] {
            EXPECT_OK(r, tuttiGroupStart());
            EXPECT_OK(r, tuttiSend(out.data(), mine, tuttiInt8, next, r.comm, nullptr));
            EXPECT_OK(r, tuttiRecv(in.data(), theirs, tuttiInt8, before, r.comm, nullptr));
            EXPECT_OK(r, tuttiSend(out.data(), 5, tuttiInt8, r.rank, r.comm, nullptr)); // to itself: no link
            EXPECT_OK(r, tuttiRecv(in.data(), 5, tuttiInt8, r.rank, r.comm, nullptr));
            EXPECT_OK(r, tuttiGroupEnd());
            EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          });
          EXPECT(r, t.sent().bytes == static_cast<int64_t>(mine));
          EXPECT(r, t.sent(next).bytes == t.sent().bytes);
          EXPECT(r, t.received().bytes == static_cast<int64_t>(theirs));
          EXPECT(r, t.received(before).messages == 1);
          const bool of_p2p = std::any_of(t.after.begin(), t.after.end(), [](const auto &l) { return l["conn"] == 0x8000; });
          EXPECT(r, of_p2p);
        }) == 0);
  CHECK(run_processes(3,
                      [](Rank &r) {
                        const std::vector<size_t> counts{100, 0, 900};
                        std::vector<int8_t> all(1000), own(900);
                        const Traffic t = traffic_of(r, [&] {
                          EXPECT_OK(
                              r, tuttiAllGatherV(own.data(), all.data(), counts.data(), nullptr, tuttiInt8, r.comm, nullptr));
                          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                        });
                        // Each block goes around but for its last stop.
                        const int64_t all_but_next = 1000 - static_cast<int64_t>(counts[static_cast<size_t>((r.rank + 1) % 3)]);
                        EXPECT(r, t.sent().bytes == all_but_next);
                        EXPECT(r, t.received().bytes == 1000 - static_cast<int64_t>(counts[static_cast<size_t>(r.rank)]));
                      },
                      {.env = by("ring", "simple")}) == 0);
}
TEST_CASE("counts may be asked for while operations run: they only grow, and are all there at the end") {
  CHECK(threads(
            2,
            [](Rank &r) {
              std::vector<float> in = floats(1 << 20), out = in;
              const Traffic t = traffic_of(r, [&] {
                int64_t last = 0;
                for (int i = 0; i < 20; i++) {
                  EXPECT_OK(r, tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
                  const int64_t now = sum_of(links_of(r), "send").bytes;
                  EXPECT(r, now >= last);
                  last = now;
                }
                EXPECT_OK(r, tuttiCommSynchronize(r.comm));
              });
              EXPECT(r, t.sent().bytes == 20 << 20);
              EXPECT(r, t.received().bytes == 20 << 20);
            },
            by("ring", "simple")) == 0);
}
TEST_CASE("a rank of its own has no links, and bad arguments are errors") {
  CHECK(run_threads(1, [](Rank &r) {
          reduce_all(r, 4096);
          EXPECT(r, links_of(r).empty());
          char small[8];
          size_t needed = 0;
          EXPECT(r, tuttiCommTraffic(r.comm, small, sizeof small, &needed) == tuttiInvalidArgument);
          EXPECT(r, needed > sizeof small);
          says(r, tuttiGetLastError(r.comm), {"traffic: cap 8 is short of"});
          EXPECT(r, tuttiCommTraffic(r.comm, nullptr, 8, &needed) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommTraffic(r.comm, nullptr, 0, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommTraffic(nullptr, small, sizeof small, nullptr) == tuttiInvalidArgument);
          reduce_all(r, 4096); // none of that harms it
        }) == 0);
}

// ---- files

namespace {

constexpr const char *kFile = "TUTTI_COMM_MAP_FILE";

// Where the ranks of one run write; theirs when this is one of them.
struct Folder {
  fs::path path;
  Folder() {
    if (std::getenv(kFile)) return;
    path = fs::temp_directory_path() / ("tutti-map-" + std::to_string(getpid()));
    fs::create_directory(path);
  }
  ~Folder() {
    if (!path.empty()) fs::remove_all(path);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  std::string setting(const std::string &name = "") const { return std::string(kFile) + "=" + (path / name).string(); }
  std::vector<nlohmann::json> communicators() const {
    std::vector<nlohmann::json> all;
    if (path.empty()) return all;
    for (const auto &file : fs::directory_iterator(path)) {
      std::ifstream in(file.path());
      const auto j = nlohmann::json::parse(in, nullptr, false);
      CHECK_MESSAGE(!j.is_discarded(), file.path().string());
      if (!j.is_discarded()) all.push_back(j["communicators"][0]);
    }
    return all;
  }
};

} // namespace

TEST_CASE("each rank writes its counts when its communicator ends, one file per communicator") {
  const Folder folder;
  CHECK(run_processes(4,
                      [](Rank &r) {
                        reduce_all(r, 4096);
                        tuttiComm_t half = nullptr;
                        EXPECT_OK(r, tuttiCommSplit(r.comm, r.rank % 2, 0, &half, nullptr));
                        Rank inner{r.rank / 2, 2, half};
                        reduce_all(inner, 4096);
                        EXPECT_OK(r, tuttiCommDestroy(half));
                        r.failures += inner.failures;
                      },
                      {.env = {folder.setting("m.json")}}) == 0);
  const auto all = folder.communicators();
  if (folder.path.empty()) return;
  CHECK(all.size() == 8);
  for (const auto &c : all) {
    CHECK(c["ranks"][0]["state"] == "finalized");
    CHECK(sum_of(c["ranks"][0]["links"], "send").bytes > 0);
    CHECK(std::count_if(all.begin(), all.end(), [&](const auto &o) { return o["id"] == c["id"]; }) == c["nranks"]);
  }
}
TEST_CASE("threads of one process write a file each, and so do ranks that abort") {
  const Folder folder;
  const auto abort_one = [](Rank &r) {
    reduce_all(r, 4096);
    EXPECT_OK(r, tuttiBarrier(r.comm, nullptr));
    if (r.rank == 2) EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    if (r.rank != 2) EXPECT(r, until_error(r) == tuttiRemoteError);
    EXPECT_OK(r, tuttiCommAbort(std::exchange(r.comm, nullptr)));
  };
  CHECK(threads(3, abort_one, {folder.setting()}) == 0);
  if (folder.path.empty()) return;
  const auto all = folder.communicators();
  CHECK(all.size() == 3);
  for (const auto &c : all) {
    CHECK(c["ranks"][0]["state"] == "failed");
    CHECK(c["ranks"][0]["error"].get<std::string>().find("rank 2 aborted") != std::string::npos);
    CHECK(sum_of(c["ranks"][0]["links"], "recv").bytes > 0);
  }
}
TEST_CASE("when a rank is killed, the files of the others are there and say so") {
  const Folder folder;
  CHECK(run_processes(3,
                      [](Rank &r) {
                        if (r.rank == 1) reduce_all(r, 4096), raise(SIGKILL);
                        EXPECT(r, until_error(r) == tuttiRemoteError);
                        if (r.rank == 0) end_process(r); // as many programs do: without destroying anything
                        EXPECT_OK(r, tuttiCommAbort(std::exchange(r.comm, nullptr)));
                      },
                      {.env = {folder.setting()}, .may_die = {1}}) == 0);
  if (folder.path.empty()) return;
  const auto all = folder.communicators();
  CHECK(all.size() == 2);
  for (const auto &c : all) {
    CHECK(c["ranks"][0]["rank"] != 1);
    CHECK(c["ranks"][0]["state"] == "failed");
    CHECK(c["ranks"][0]["error"].get<std::string>().find("rank 1") != std::string::npos);
    CHECK(sum_of(c["ranks"][0]["links"], "send").bytes > 0);
  }
}
TEST_CASE("a file that cannot be written harms nothing") {
  CHECK(run_processes(2, [](Rank &r) { reduce_all(r, 4096); }, {.env = {std::string(kFile) + "=/proc/no/such/"}}) == 0);
}
