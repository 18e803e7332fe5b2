// Every operation over the protocols beside simple: threads, shared memory, sockets, and both kinds of links
// at once.
#include "operations.h"
#include "text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <string>

using namespace support;

namespace {

constexpr const char *kProtocols[] = {"ll", "ll8", "ll128", "pull"};

// Around lines of 56 and 120 bytes, odd, and long enough for many slices.
void everything(Rank &r) {
  run_all(r,
          full() ? std::vector<size_t>{0, 1, 3, 14, 15, 29, 30, 31, 257, 4097, 40'001} : std::vector<size_t>{1, 15, 31, 4097},
          full());
}
void types(Rank &r) {
  run_all(r, {7, 2500}, true);
}
std::string only(const char *proto) {
  return std::string("TUTTI_PROTO=") + proto;
}
// What an all-reduce of 100 elements, just run, says about itself.
void runs_over(Rank &r, const char *proto, const std::string &links) {
  run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, 100});
  std::vector<char> text(1 << 16);
  if (!EXPECT_OK(r, tuttiCommExplain(r.comm, "all_reduce", 100, tuttiFloat32, text.data(), text.size()))) return;
  const std::string chosen = "\"proto\":\"" + std::string(proto) + "\"";
  says(r, text.data(), {chosen.c_str(), links.c_str()});
}

} // namespace

TEST_CASE("every operation is right on threads, whatever the protocol") {
  for (const char *proto : kProtocols) {
    setenv("TUTTI_PROTO", proto, 1);
    for (const int n : {2, 3}) CHECK_MESSAGE(run_threads(n, everything) == 0, proto << " " << n);
    unsetenv("TUTTI_PROTO");
  }
}
TEST_CASE("every operation, type and reduction is right over shared memory, whatever the protocol") {
  for (const char *proto : kProtocols) {
    const auto all = [&](Rank &r) {
      everything(r);
      runs_over(r, proto, std::string("shm: ") + proto);
    };
    CHECK_MESSAGE(run_processes(3, all, {.env = {only(proto)}}) == 0, proto);
    CHECK_MESSAGE(run_processes(2, types, {.env = {only(proto)}}) == 0, proto);
  }
}
TEST_CASE("every algorithm is right over shared memory, whatever the protocol") {
  for (const char *proto : kProtocols)
    for (const char *algo : {"TUTTI_ALGO=^ring", "TUTTI_ALGO=ring"})
      CHECK_MESSAGE(run_processes(3, everything, {.env = {only(proto), algo}}) == 0, proto << " " << algo);
}
TEST_CASE("sockets take simple slots, whatever the protocol") {
  for (const char *proto : kProtocols) {
    const auto all = [&](Rank &r) {
      run_all(r, {1, 15, 4097}, false);
      runs_over(r, proto, "net: simple");
    };
    CHECK_MESSAGE(run_processes(2, all, {.env = {only(proto), "TUTTI_SHM_DISABLE=1"}}) == 0, proto);
  }
}
TEST_CASE("every operation is right where two ranks share memory and a third is reached by sockets, whatever the protocol") {
  for (const char *proto : kProtocols) {
    const auto all = [&](Rank &r, const tuttiUniqueId &id) {
      setenv("TUTTI_HOSTID", r.rank ? "one" : "another", 1);
      if (!EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
      everything(r);
      runs_over(r, proto, r.rank ? "net: simple, shm: " + std::string(proto) : "net: simple");
    };
    CHECK_MESSAGE(run_processes(3, {.env = {only(proto), "TUTTI_ALGO=direct"}, .init = false}, all) == 0, proto);
  }
}
