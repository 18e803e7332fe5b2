// Whole operations over a network with faults (plugin net-fault): right results, or an error in time that names a peer.
#include "ranks.h"
#include "text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace support;

namespace {

enum class Op { all_reduce, reduce, broadcast, all_gather, reduce_scatter, alltoall, gather, scatter, send_recv, barrier };
constexpr Op kOps[] = {Op::all_reduce, Op::reduce, Op::broadcast, Op::all_gather, Op::reduce_scatter,
                       Op::alltoall,   Op::gather, Op::scatter,   Op::send_recv,  Op::barrier};

struct Expected {
  const char *faults;
  bool harmless; // results must be right
  bool certain;  // it strikes every endpoint that carries enough
  bool checksum;
};
constexpr Expected kFaults[] = {
    {"delay=0.3:300us", true, false, false},
    {"drop=after:9", false, true, false},
    {"drop=0.1", false, false, true},
    {"corrupt=0.2", false, false, true},
    {"corrupt=0.2:header", false, false, false},
    {"corrupt=after:9:header", false, true, true},
    {"short=after:9", false, true, true},
    {"short=0.2", false, false, false},
    {"reset=after:9", false, true, false},
    {"half_open=after:9", false, true, false},
    {"delay=0.2:100us,corrupt=0.05,short=0.05,drop=0.05,reset=0.02", false, false, true},
};

using Words = std::vector<uint64_t>;
uint64_t value(int rank, size_t i, int round) {
  return static_cast<uint64_t>(rank + 1) * 1'000'003 + i * 7 + static_cast<uint64_t>(round) * 101;
}

tuttiResult_t call(Rank &r, Op op, const Words &in, Words &out, size_t count, int root) {
  const auto u = tuttiUint64;
  const int next = (r.rank + 1) % r.n, before = (r.rank + r.n - 1) % r.n;
  switch (op) {
  case Op::all_reduce:
    return tuttiAllReduce(in.data(), out.data(), count, u, tuttiSum, r.comm, nullptr);
  case Op::reduce:
    return tuttiReduce(in.data(), out.data(), count, u, tuttiSum, root, r.comm, nullptr);
  case Op::broadcast:
    return tuttiBroadcast(in.data(), out.data(), count, u, root, r.comm, nullptr);
  case Op::all_gather:
    return tuttiAllGather(in.data(), out.data(), count, u, r.comm, nullptr);
  case Op::reduce_scatter:
    return tuttiReduceScatter(in.data(), out.data(), count, u, tuttiSum, r.comm, nullptr);
  case Op::alltoall:
    return tuttiAlltoAll(in.data(), out.data(), count, u, r.comm, nullptr);
  case Op::gather:
    return tuttiGather(in.data(), out.data(), count, u, root, r.comm, nullptr);
  case Op::scatter:
    return tuttiScatter(in.data(), out.data(), count, u, root, r.comm, nullptr);
  case Op::send_recv: {
    (void)tuttiGroupStart();
    const tuttiResult_t s = tuttiSend(in.data(), count, u, next, r.comm, nullptr);
    const tuttiResult_t q = tuttiRecv(out.data(), count, u, before, r.comm, nullptr);
    const tuttiResult_t g = tuttiGroupEnd();
    return s != tuttiSuccess ? s : q != tuttiSuccess ? q : g;
  }
  case Op::barrier:
    break;
  }
  return tuttiBarrier(r.comm, nullptr);
}

// What out[i] of this rank must be, where it must be anything.
bool right(const Rank &r, Op op, const Words &out, size_t count, int root, int round) {
  const auto sum = [&](size_t i) {
    uint64_t s = 0;
    for (int k = 0; k < r.n; k++) s += value(k, i, round);
    return s;
  };
  const auto blocks = [&](const auto &of) {
    for (int k = 0; k < r.n; k++)
      for (size_t i = 0; i < count; i++)
        if (out[static_cast<size_t>(k) * count + i] != of(k, i)) return false;
    return true;
  };
  const auto block = [&](const auto &of) {
    for (size_t i = 0; i < count; i++)
      if (out[i] != of(i)) return false;
    return true;
  };
  const size_t mine = static_cast<size_t>(r.rank) * count;
  switch (op) {
  case Op::all_reduce:
    return block(sum);
  case Op::reduce:
    return r.rank != root || block(sum);
  case Op::broadcast:
    return block([&](size_t i) { return value(root, i, round); });
  case Op::all_gather:
    return blocks([&](int k, size_t i) { return value(k, i, round); });
  case Op::reduce_scatter:
    return block([&](size_t i) { return sum(mine + i); });
  case Op::alltoall:
    return blocks([&](int k, size_t i) { return value(k, mine + i, round); });
  case Op::gather:
    return r.rank != root || blocks([&](int k, size_t i) { return value(k, i, round); });
  case Op::scatter:
    return block([&](size_t i) { return value(root, mine + i, round); });
  case Op::send_recv:
    return block([&](size_t i) { return value((r.rank + r.n - 1) % r.n, i, round); });
  case Op::barrier:
    break;
  }
  return true;
}

bool names_a_peer(const Rank &r, const std::string &text) {
  for (int k = 0; k < r.n; k++)
    if (k != r.rank && has(text, fmt::format("rank {}", k))) return true;
  return false;
}

void run(Rank &r, Op op, const Expected &expected) {
  constexpr size_t kCounts[] = {1, 300, 9000, 70'000};
  bool failed = false;
  for (int round = 0; round < 32 && !failed; round++) {
    const size_t count = kCounts[round % 4];
    const int root = round % r.n;
    Words in(count * static_cast<size_t>(r.n)), out(in.size(), ~uint64_t{0});
    for (size_t i = 0; i < in.size(); i++) in[i] = value(r.rank, i, round);
    tuttiResult_t e = call(r, op, in, out, count, root);
    if (e == tuttiSuccess) e = tuttiCommSynchronize(r.comm);
    failed = e != tuttiSuccess;
    if (!failed && !EXPECT(r, right(r, op, out, count, root, round))) break;
  }
  const std::string text = failed ? tuttiGetLastError(r.comm) : "";
  if (expected.harmless) EXPECT(r, !failed);
  if (expected.certain && op != Op::barrier) EXPECT(r, failed);
  if (failed && !EXPECT(r, names_a_peer(r, text))) std::fprintf(stderr, "%s: %s\n", expected.faults, text.c_str());
  if (failed || r.failures) {
    EXPECT_OK(r, tuttiCommAbort(r.comm));
    r.comm = nullptr;
  }
}

// With checksums nothing that was damaged may look like a right result; without them what is damaged are headers only.
void matrix(const std::vector<int> &sizes, const std::vector<int> &seeds) {
  for (const Expected &expected : kFaults)
    for (const Op op : kOps)
      for (const int n : sizes)
        for (const int seed : seeds) {
          CAPTURE(std::string(expected.faults));
          CAPTURE(static_cast<int>(op));
          CAPTURE(n);
          CAPTURE(seed);
          CHECK(run_processes(n, [&](Rank &r) { run(r, op, expected); },
                              {.env = {"TUTTI_SHM_DISABLE=1", "TUTTI_NET=fault", "TUTTI_PLUGIN_NET_FAULT_INNER=net-socket",
                                       fmt::format("TUTTI_PLUGIN_NET_FAULT_FAULTS={}", expected.faults),
                                       fmt::format("TUTTI_PLUGIN_NET_FAULT_SEED={}", seed),
                                       fmt::format("TUTTI_NET_CHECKSUM={}", expected.checksum ? 1 : 0), "TUTTI_TIMEOUT=1s"},
                               .limit = std::chrono::seconds(15)}) == 0);
        }
}

} // namespace

TEST_CASE(
    "every fault of the network in every operation of three ranks is survived, or told in time by all with a peer's name") {
  matrix({3}, {1});
}

TEST_CASE("the same for two and four ranks and more seeds") {
  if (full()) matrix({2, 3, 4}, {2, 3, 4});
}
