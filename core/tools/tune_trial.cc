#include "tools/tune_trial.h"
#include "tools/data.h"
#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::tools::tune {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr tuttiDataType_t kType = tuttiFloat32;
constexpr size_t kBytes = 4, kLine = 64;
constexpr uint64_t kSeed = 7;
constexpr char kPoison = '\x5a';

double seconds_between(SteadyClock::time_point a, SteadyClock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}
size_t room(uint64_t elements) {
  return (static_cast<size_t>(elements) * kBytes + kLine) / kLine * kLine;
}

} // namespace

void barrier(tuttiComm_t comm) {
  require(tuttiBarrier(comm, nullptr), comm, "in a barrier");
  require(tuttiCommSynchronize(comm), comm, "in a barrier");
}

Trial::Trial(const perf::Operation &op, uint64_t bytes, int rank, int nranks, bool shared)
    : op_(op), rank_(rank), nranks_(nranks), shape_(op.shape(bytes / kBytes, kBytes, rank, nranks, 0)),
      last_root_(op.shape(bytes / kBytes, kBytes, rank, nranks, nranks - 1)),
      send_(room(std::max(shape_.send, last_root_.send)), shared), recv_(room(std::max(shape_.recv, last_root_.recv)), shared),
      want_(static_cast<size_t>(shape_.recv) * kBytes) {
  const int data_op = op.reduces ? static_cast<int>(tuttiSum) : -1;
  for (const perf::Piece &p : shape_.input)
    data::input(send_.at(p.at * kBytes), p.n, kType, data_op, nranks, p.from, kSeed, p.first);
  for (const perf::Piece &p : shape_.result) {
    if (p.from < 0)
      data::expected(want_.data() + p.at * kBytes, p.n, kType, data_op, nranks, kSeed, p.first);
    else
      data::input(want_.data() + p.at * kBytes, p.n, kType, -1, nranks, p.from, kSeed, p.first);
  }
}

bool Trial::failed(tuttiComm_t comm) {
  const char *line = tuttiGetLastError(comm);
  if (!line || !*line) line = tuttiGetLastError(nullptr);
  failure_ = line && *line ? line : "unknown error";
  return false;
}

bool Trial::begin(const Way &way) {
  tuttiCallConfig_t config = TUTTI_CALL_CONFIG_INITIALIZER;
  config.algo = way.algo.c_str();
  config.proto = way.proto.c_str();
  config.minCTAs = config.maxCTAs = static_cast<int>(way.channels);
  config.slotBytes = way.slot_bytes;
  config.depth = static_cast<int>(way.depth);
  config.preferred = 0;
  return tuttiCallConfigBegin(&config) == tuttiSuccess || failed(nullptr);
}

bool Trial::run(tuttiComm_t comm, bool last_is_root) {
  perf::Call c{};
  c.send = send_.at(0);
  c.recv = recv_.at(0);
  c.shape = last_is_root ? &last_root_ : &shape_, c.type = kType, c.op = tuttiSum, c.root = last_is_root ? nranks_ - 1 : 0;
  c.rank = rank_, c.nranks = nranks_, c.comm = comm, c.stream = nullptr, c.in_place = false;
  return (op_.run(c) == tuttiSuccess && tuttiCommSynchronize(comm) == tuttiSuccess) || failed(comm);
}

int64_t Trial::check(tuttiComm_t comm, const Way &way) {
  std::memset(recv_.at(0), kPoison, room(shape_.recv));
  if (!begin(way)) return -1;
  const bool ran = run(comm, false);
  (void)tuttiCallConfigEnd();
  if (!ran) return -1;
  const int data_op = op_.reduces ? static_cast<int>(tuttiSum) : -1;
  int64_t wrong = 0;
  for (const perf::Piece &p : shape_.result)
    wrong += static_cast<int64_t>(
        data::mismatches(recv_.at(p.at * kBytes), want_.data() + p.at * kBytes, p.n, kType, data_op, nranks_));
  return wrong;
}

void Trial::rewrite_input() {
  for (size_t at = 0; at < shape_.send * kBytes; at += kLine) {
    auto *word = reinterpret_cast<volatile uint32_t *>(send_.at(at));
    *word = *word;
  }
}

double Trial::time(tuttiComm_t comm, const Way &way, int times) {
  if (!begin(way)) return kCannotRun;
  double total = 0;
  bool ran = true;
  for (int i = 0; i < times && ran; i++) {
    const bool last_is_root = op_.has_root && turn_++ % 2 == 1;
    rewrite_input();
    const auto start = SteadyClock::now();
    ran = run(comm, last_is_root);
    total += seconds_between(start, SteadyClock::now());
  }
  (void)tuttiCallConfigEnd();
  return ran ? total / times : kCannotRun;
}

} // namespace tutti::tools::tune
