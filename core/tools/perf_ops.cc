// The tested operations: how each cuts a size into buffers, what data goes in and must come out, and the call.
#include "tools/perf.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace tutti::tools::perf {
namespace {

constexpr int kReduced = -1; // Piece::from of a result that is the reduction of all ranks

// One rank's part of `elements`: whole elements, and multiples of 16 bytes where the part is that large.
uint64_t part(uint64_t elements, size_t bytes, int nranks) {
  const uint64_t each = elements / static_cast<uint64_t>(nranks), unit = 16 / bytes;
  return each >= unit ? each / unit * unit : each;
}
uint64_t u(int v) {
  return static_cast<uint64_t>(v);
}

Shape whole(uint64_t n, int rank) {
  Shape s;
  s.param = s.send = s.recv = s.reported = n;
  s.input = {{0, n, rank, 0}};
  return s;
}
Shape all_reduce(uint64_t n, size_t, int rank, int, int) {
  Shape s = whole(n, rank);
  s.result = {{0, n, kReduced, 0}};
  return s;
}
Shape reduce(uint64_t n, size_t, int rank, int, int root) {
  Shape s = whole(n, rank);
  if (rank == root) s.result = {{0, n, kReduced, 0}};
  return s;
}
Shape broadcast(uint64_t n, size_t, int rank, int, int root) {
  Shape s = whole(n, rank);
  s.result = {{0, n, root, 0}};
  return s;
}

Shape blocks(uint64_t n, size_t bytes, int nranks) {
  Shape s;
  s.param = part(n, bytes, nranks);
  s.reported = s.param * u(nranks);
  return s;
}
void expect_block_of_each(Shape &s, int nranks) {
  for (int r = 0; r < nranks; r++) s.result.push_back({u(r) * s.param, s.param, r, 0});
}
Shape all_gather(uint64_t n, size_t bytes, int rank, int nranks, int) {
  Shape s = blocks(n, bytes, nranks);
  s.send = s.param;
  s.recv = s.reported;
  s.send_at = u(rank) * s.param;
  s.input = {{0, s.param, rank, 0}};
  expect_block_of_each(s, nranks);
  return s;
}
Shape hypercube(uint64_t n, size_t bytes, int rank, int nranks, int root) {
  Shape s = all_gather(n, bytes, rank, nranks, root);
  s.reported = s.param * u(nranks - 1);
  return s;
}
Shape reduce_scatter(uint64_t n, size_t bytes, int rank, int nranks, int) {
  Shape s = blocks(n, bytes, nranks);
  s.send = s.reported;
  s.recv = s.param;
  s.recv_at = u(rank) * s.param;
  s.input = {{0, s.send, rank, 0}};
  s.result = {{0, s.param, kReduced, s.recv_at}};
  return s;
}
Shape gather(uint64_t n, size_t bytes, int rank, int nranks, int root) {
  Shape s = blocks(n, bytes, nranks);
  s.send = s.param;
  s.recv = rank == root ? s.reported : 0;
  s.send_at = rank == root ? u(root) * s.param : 0;
  s.input = {{0, s.param, rank, 0}};
  if (rank == root) expect_block_of_each(s, nranks);
  return s;
}
Shape scatter(uint64_t n, size_t bytes, int rank, int nranks, int root) {
  Shape s = blocks(n, bytes, nranks);
  s.send = rank == root ? s.reported : 0;
  s.recv = s.param;
  s.recv_at = rank == root ? u(root) * s.param : 0;
  if (rank == root) s.input = {{0, s.send, rank, 0}};
  s.result = {{0, s.param, root, u(rank) * s.param}};
  return s;
}
Shape alltoall(uint64_t n, size_t bytes, int rank, int nranks, int) {
  Shape s = blocks(n, bytes, nranks);
  s.send = s.recv = s.reported;
  s.input = {{0, s.send, rank, 0}};
  for (int r = 0; r < nranks; r++) s.result.push_back({u(r) * s.param, s.param, r, u(rank) * s.param});
  return s;
}
Shape sendrecv(uint64_t n, size_t, int rank, int nranks, int) {
  Shape s = whole(n, rank);
  s.result = {{0, n, (rank + nranks - 1) % nranks, 0}};
  return s;
}
Shape barrier(uint64_t, size_t, int, int, int) {
  return {};
}

// ---- alltoallv: relative weights of all pairs, from a file or from a spread ----
struct Weights {
  std::vector<double> matrix; // row = sender; empty: made from `spread`
  double scale = 1, spread = 0.5;
  int nranks = 0;
  double at(int from, int to) const {
    if (!matrix.empty()) return matrix[u(from) * u(nranks) + u(to)];
    // A fixed scatter of weights in [1 - spread, 1].
    uint64_t h = (u(from) * 1000003u + u(to) + 1) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 31;
    return 1 - spread * static_cast<double>((h * 0xd6e8feb86659fd93ull) >> 11) * 0x1p-53;
  }
};
Weights &weights() { // of the rank that this thread is: groups may differ in size
  static thread_local Weights w;
  return w;
}

// Elements from one rank to another when the busiest rank sends or receives about `elements`.
std::vector<uint64_t> count_matrix(uint64_t elements, int nranks) {
  const Weights &w = weights();
  double busiest = 0;
  for (int i = 0; i < nranks; i++) {
    double sent = 0, received = 0;
    for (int j = 0; j < nranks; j++) sent += w.at(i, j), received += w.at(j, i);
    busiest = std::max({busiest, sent, received});
  }
  std::vector<uint64_t> counts(u(nranks) * u(nranks));
  for (int i = 0; busiest > 0 && i < nranks; i++)
    for (int j = 0; j < nranks; j++)
      counts[u(i) * u(nranks) + u(j)] = static_cast<uint64_t>(w.at(i, j) / busiest * w.scale * static_cast<double>(elements));
  return counts;
}
uint64_t busiest_rank(const std::vector<uint64_t> &m, int nranks) {
  uint64_t most = 0;
  for (int i = 0; i < nranks; i++) {
    uint64_t sent = 0, received = 0;
    for (int j = 0; j < nranks; j++) sent += m[u(i) * u(nranks) + u(j)], received += m[u(j) * u(nranks) + u(i)];
    most = std::max({most, sent, received});
  }
  return most;
}
Shape alltoallv(uint64_t n, size_t, int rank, int nranks, int) {
  Shape s;
  const auto m = count_matrix(n, nranks);
  const auto count = [&](int from, int to) { return m[u(from) * u(nranks) + u(to)]; };
  for (int peer = 0; peer < nranks; peer++) {
    uint64_t first = 0; // where peer's data for this rank starts among what peer sends
    for (int to = 0; to < rank; to++) first += count(peer, to);
    s.send_at_peer.push_back(s.send);
    s.recv_at_peer.push_back(s.recv);
    s.send_counts.push_back(count(rank, peer));
    s.recv_counts.push_back(count(peer, rank));
    s.result.push_back({s.recv, count(peer, rank), peer, first});
    s.send += count(rank, peer);
    s.recv += count(peer, rank);
  }
  s.input = {{0, s.send, rank, 0}};
  s.reported = busiest_rank(m, nranks);
  s.param = s.reported / u(nranks);
  return s;
}

// Blocks of all_gather_v and reduce_scatter_v: each rank's as large as what it keeps for itself in alltoallv.
Shape unequal_blocks(uint64_t n, int nranks) {
  const Weights &w = weights();
  double all = 0;
  for (int r = 0; r < nranks; r++) all += w.at(r, r);
  Shape s;
  for (int r = 0; r < nranks; r++) {
    s.block_at.push_back(s.reported);
    s.block_counts.push_back(all > 0 ? static_cast<uint64_t>(w.at(r, r) / all * w.scale * static_cast<double>(n)) : 0);
    s.reported += s.block_counts.back();
  }
  s.param = s.reported / u(nranks);
  return s;
}
Shape all_gather_v(uint64_t n, size_t, int rank, int nranks, int) {
  Shape s = unequal_blocks(n, nranks);
  s.send = s.block_counts[u(rank)];
  s.recv = s.reported;
  s.send_at = s.block_at[u(rank)];
  s.input = {{0, s.send, rank, 0}};
  for (int r = 0; r < nranks; r++) s.result.push_back({s.block_at[u(r)], s.block_counts[u(r)], r, 0});
  return s;
}
Shape reduce_scatter_v(uint64_t n, size_t, int rank, int nranks, int) {
  Shape s = unequal_blocks(n, nranks);
  s.send = s.reported;
  s.recv = s.block_counts[u(rank)];
  s.recv_at = s.block_at[u(rank)];
  s.input = {{0, s.send, rank, 0}};
  s.result = {{0, s.recv, kReduced, s.recv_at}};
  return s;
}

// ---- the calls ----
tuttiResult_t run_all_reduce(const Call &c) {
  return tuttiAllReduce(c.send, c.recv, c.shape->param, c.type, c.op, c.comm, c.stream);
}
tuttiResult_t run_reduce(const Call &c) {
  return tuttiReduce(c.send, c.recv, c.shape->param, c.type, c.op, c.root, c.comm, c.stream);
}
tuttiResult_t run_broadcast(const Call &c) {
  return tuttiBroadcast(c.send, c.recv, c.shape->param, c.type, c.root, c.comm, c.stream);
}
tuttiResult_t run_all_gather(const Call &c) {
  return tuttiAllGather(c.send, c.recv, c.shape->param, c.type, c.comm, c.stream);
}
tuttiResult_t run_reduce_scatter(const Call &c) {
  return tuttiReduceScatter(c.send, c.recv, c.shape->param, c.type, c.op, c.comm, c.stream);
}
tuttiResult_t run_gather(const Call &c) {
  return tuttiGather(c.send, c.recv, c.shape->param, c.type, c.root, c.comm, c.stream);
}
tuttiResult_t run_scatter(const Call &c) {
  return tuttiScatter(c.send, c.recv, c.shape->param, c.type, c.root, c.comm, c.stream);
}
tuttiResult_t run_alltoall(const Call &c) {
  return tuttiAlltoAll(c.send, c.recv, c.shape->param, c.type, c.comm, c.stream);
}
tuttiResult_t run_alltoallv(const Call &c) {
  const Shape &s = *c.shape;
  return tuttiAlltoAllV(c.send, s.send_counts.data(), s.send_at_peer.data(), c.recv, s.recv_counts.data(),
                        s.recv_at_peer.data(), c.type, c.comm, c.stream);
}
tuttiResult_t run_all_gather_v(const Call &c) {
  return tuttiAllGatherV(c.send, c.recv, c.shape->block_counts.data(), c.shape->block_at.data(), c.type, c.comm, c.stream);
}
tuttiResult_t run_reduce_scatter_v(const Call &c) {
  return tuttiReduceScatterV(c.send, c.recv, c.shape->block_counts.data(), c.shape->block_at.data(), c.type, c.op, c.comm,
                             c.stream);
}
tuttiResult_t run_barrier(const Call &c) {
  return tuttiBarrier(c.comm, c.stream);
}

// A group is closed even when a call in it failed; the first error counts.
tuttiResult_t exchange(const void *send, int to, void *recv, int from, uint64_t n, const Call &c) {
  tuttiResult_t first = tuttiGroupStart();
  if (first != tuttiSuccess) return first;
  first = tuttiSend(send, n, c.type, to, c.comm, c.stream);
  const tuttiResult_t second = first == tuttiSuccess ? tuttiRecv(recv, n, c.type, from, c.comm, c.stream) : first;
  const tuttiResult_t end = tuttiGroupEnd();
  return second != tuttiSuccess ? second : end;
}
tuttiResult_t run_sendrecv(const Call &c) {
  return exchange(c.send, (c.rank + 1) % c.nranks, c.recv, (c.rank + c.nranks - 1) % c.nranks, c.shape->param, c);
}
// In round k a rank swaps the 2^k blocks it has with the rank whose number differs in bit k.
tuttiResult_t run_hypercube(const Call &c) {
  const size_t block = c.shape->param * type_bytes(c.type);
  char *recv = static_cast<char *>(c.recv);
  if (!c.in_place) { // a message to itself: the stream keeps it behind what still reads the buffer
    const tuttiResult_t r = exchange(c.send, c.rank, recv + u(c.rank) * block, c.rank, c.shape->param, c);
    if (r != tuttiSuccess) return r;
  }
  for (int bit = 1; bit < c.nranks; bit <<= 1) {
    const int peer = c.rank ^ bit, mine = c.rank & ~(bit - 1), theirs = peer & ~(bit - 1);
    const tuttiResult_t r = exchange(recv + u(mine) * block, peer, recv + u(theirs) * block, peer, u(bit) * c.shape->param, c);
    if (r != tuttiSuccess) return r;
  }
  return tuttiSuccess;
}

constexpr BusFactor one{"1", [](int) { return 1.0; }};
constexpr BusFactor others{"(n - 1) / n", [](int n) { return static_cast<double>(n - 1) / n; }};
constexpr BusFactor twice_others{"2 (n - 1) / n", [](int n) { return 2.0 * (n - 1) / n; }};

//                        name, reduces, root, in place, data, shape, run, factor, power of two
constexpr Operation kOperations[] = {
    {"all_reduce", true, false, true, true, all_reduce, run_all_reduce, twice_others, false},
    {"all_gather", false, false, true, true, all_gather, run_all_gather, others, false},
    {"reduce_scatter", true, false, true, true, reduce_scatter, run_reduce_scatter, others, false},
    {"broadcast", false, true, true, true, broadcast, run_broadcast, one, false},
    {"reduce", true, true, true, true, reduce, run_reduce, one, false},
    {"alltoall", false, false, false, true, alltoall, run_alltoall, others, false},
    {"alltoallv", false, false, false, true, alltoallv, run_alltoallv, others, false},
    {"all_gather_v", false, false, true, true, all_gather_v, run_all_gather_v, others, false},
    {"reduce_scatter_v", true, false, true, true, reduce_scatter_v, run_reduce_scatter_v, others, false},
    {"gather", false, true, true, true, gather, run_gather, others, false},
    {"scatter", false, true, true, true, scatter, run_scatter, others, false},
    {"sendrecv", false, false, false, true, sendrecv, run_sendrecv, one, false},
    {"hypercube", false, false, true, true, hypercube, run_hypercube, one, true},
    {"barrier", false, false, false, false, barrier, run_barrier, one, false},
};

} // namespace

const Operation *find_operation(std::string_view name) {
  for (const Operation &o : kOperations)
    if (name == o.name) return &o;
  return nullptr;
}

std::vector<const Operation *> all_operations() {
  std::vector<const Operation *> out;
  for (const Operation &o : kOperations) out.push_back(&o);
  return out;
}

Result<double> number_setting(const char *name, double fallback, double low, double high) {
  const char *text = std::getenv(name);
  if (!text || !*text) return fallback;
  char *end = nullptr;
  const double v = std::strtod(text, &end);
  if (*end || !(v >= low && v <= high))
    return fail(Code::invalid_argument, "{}=\"{}\" is not a number from {} to {}", name, text, low, high);
  return v;
}

Status load_alltoallv_settings(int nranks) {
  Weights w;
  w.nranks = nranks;
  TUTTI_ASSIGN(spread, number_setting("NCCL_TESTS_ALLTOALLV_SPREAD", 0.5, 0, 1));
  TUTTI_ASSIGN(scale, number_setting("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 1, 0, 1024));
  w.spread = spread;
  w.scale = scale;
  if (const char *path = std::getenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE"); path && *path) {
    std::ifstream file(path);
    if (!file) return fail(Code::invalid_argument, "NCCL_TESTS_ALLTOALLV_MATRIX_FILE: cannot read {}", path);
    for (std::string word; file >> word;) {
      char *end = nullptr;
      if (word.ends_with(',')) word.pop_back();
      w.matrix.push_back(std::strtod(word.c_str(), &end));
      if (*end || w.matrix.back() < 0) return fail(Code::invalid_argument, "{}: \"{}\" is no weight >= 0", path, word);
    }
    if (w.matrix.size() != u(nranks) * u(nranks))
      return fail(Code::invalid_argument, "{}: {} numbers; {} ranks need {} (a row per sender)", path, w.matrix.size(), nranks,
                  nranks * nranks);
  }
  weights() = std::move(w);
  return {};
}

bool alltoallv_summary_wanted() {
  const char *text = std::getenv("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY");
  return text && std::atoi(text) != 0;
}

std::string alltoallv_summary(uint64_t elements, size_t bytes, int nranks) {
  const auto m = count_matrix(elements, nranks);
  uint64_t total = 0, least = UINT64_MAX, most = 0;
  for (uint64_t c : m) total += c, least = std::min(least, c), most = std::max(most, c);
  return fmt::format("# alltoallv: {} bytes in all, {} to {} bytes per pair, busiest rank {} bytes", total * bytes,
                     least * bytes, most * bytes, busiest_rank(m, nranks) * bytes);
}

} // namespace tutti::tools::perf
