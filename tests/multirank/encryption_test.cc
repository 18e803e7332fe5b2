// Jobs with core.security = encrypted, over sockets: right results, and nothing to be read on the way.
#include "operations.h"
#include "wiretap.h"
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <memory>

using namespace support;

namespace {

constexpr const char *kWord = "what ranks send each other, as somebody on the way would like to read it";

void fill(std::vector<char> *v) {
  for (size_t i = 0; i < v->size(); ++i) (*v)[i] = kWord[i % std::strlen(kWord)];
}

// Each rank sends the word to all; sums besides. Right results on every rank.
void work(Rank &r) {
  for (const size_t bytes : {size_t{100}, size_t{20000}, size_t{3} << 20}) {
    std::vector<char> mine(bytes), all(bytes * static_cast<size_t>(r.n));
    fill(&mine);
    EXPECT_OK(r, tuttiAllGather(mine.data(), all.data(), bytes, tuttiInt8, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    for (int from = 0; from < r.n; ++from)
      EXPECT(r, std::memcmp(mine.data(), all.data() + static_cast<size_t>(from) * bytes, bytes) == 0);
  }
  for (const size_t n : {size_t{2}, size_t{5000}, size_t{1} << 20}) {
    std::vector<int32_t> x(n), y(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<int32_t>(i % 1000) + r.rank;
    EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), n, tuttiInt32, tuttiSum, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    bool right = true;
    for (size_t i = 0; i < n; ++i) right = right && y[i] == static_cast<int32_t>(i % 1000) * r.n + r.n * (r.n - 1) / 2;
    EXPECT(r, right);
  }
}

} // namespace

TEST_CASE("four ranks that encrypt have right results over sockets, with one socket and with several") {
  for (const char *sockets : {"1", "3"}) {
    CAPTURE(sockets);
    ProcessOptions o;
    o.env = {"TUTTI_SHM_DISABLE=1", "TUTTI_SECURITY=encrypted", std::string("TUTTI_PLUGIN_NET_SOCKET_SOCKETS=") + sockets};
    CHECK(run_processes(
              4, [](Rank &r) { work(r); }, o) == 0);
  }
}

TEST_CASE("what four ranks send can be read on the way, but not where they encrypt") {
  // The ranks are started from here and inherit this network namespace.
  const bool rank = std::getenv("TEST_CALL") != nullptr;
  const bool apart = rank || enter_own_network();
  for (const char *security : {"authenticated", "encrypted"}) {
    CAPTURE(security);
    std::unique_ptr<Wiretap> tap;
    if (!rank) tap = std::make_unique<Wiretap>(kWord);
    ProcessOptions o;
    o.env = {"TUTTI_SHM_DISABLE=1", "TUTTI_SOCKET_IFNAME=lo", "TUTTI_PLUGIN_NET_SOCKET_INTERFACE=lo",
             std::string("TUTTI_SECURITY=") + security};
    CHECK(run_processes(
              4, [](Rank &r) { work(r); }, o) == 0);
    if (rank) continue;
    if (!apart || !tap->works()) {
      MESSAGE("not looked at: no network namespace or no packet socket can be had here");
      continue;
    }
    tap->stop();
    CHECK(tap->missed() == 0);
    CHECK(tap->packets() > 100);
    CHECK((tap->found() > 0) == (std::string(security) == "authenticated"));
  }
}

TEST_CASE("of two ranks of which one does not encrypt both hear both values") {
  CHECK(run_processes(2, {.env = {"TUTTI_SHM_DISABLE=1", "TUTTI_SECURITY=encrypted"}, .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        if (r.rank == 1) setenv("TUTTI_SECURITY", "authenticated", 1); // before anything has read it
                        const tuttiResult_t result = tuttiCommInitRank(&r.comm, r.n, id, r.rank);
                        EXPECT(r, result != tuttiSuccess);
                        const std::string why = tuttiGetLastError(nullptr);
                        EXPECT(r, why.find("core.security") != std::string::npos);
                        EXPECT(r, why.find("\"encrypted\"") != std::string::npos);
                        EXPECT(r, why.find("\"authenticated\"") != std::string::npos);
                        r.comm = nullptr;
                      }) == 0);
}

TEST_CASE("a network that does not encrypt is refused by its name, and shared memory needs none") {
  CHECK(run_processes(2,
                      {.env = {"TUTTI_SECURITY=encrypted", "TUTTI_NET=strict", "TUTTI_PLUGIN_PATH=" STRICT_DIR,
                               "TEST_STRICT_REACHES_OUT=1"},
                       .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) != tuttiSuccess);
                        const std::string why = tuttiGetLastError(nullptr);
                        EXPECT(r, why.find("network \"strict\" cannot be used: ") != std::string::npos);
                        EXPECT(r, why.find("does not encrypt, and core.security is \"encrypted\"") != std::string::npos);
                        r.comm = nullptr;
                      }) == 0);
  CHECK(run_processes(2, [](Rank &r) { work(r); }, {.env = {"TUTTI_SECURITY=encrypted"}}) == 0);
}
