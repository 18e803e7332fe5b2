// What it costs to enqueue an operation and wait for it later, beside waiting at once. Two processes, each on a core of its
// own; blocks of the ways take turns. Nanoseconds per operation, the slower rank's, medians over blocks; in brackets the
// difference to waiting at once, in the same round of blocks.
//   enqueue_bench [BYTES [BLOCKS]]
#include "tutti/tutti.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int kOperations = 2000; // of a block
constexpr int kWays = 5;
const char *const kNames[kWays] = {"waiting at once", "other work before waiting", "on a stream, waiting at once",
                                   "a work handle, waiting at once", "four operations, then waiting"};

struct Shared {
  alignas(128) tuttiUniqueId id;
  alignas(128) std::atomic<int> arrived;
  alignas(128) double ns[2];
};

double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void meet(Shared *s, int *round) {
  s->arrived.fetch_add(1);
  *round += 2;
  while (s->arrived.load() < *round) {
  }
}

// About a microsecond of arithmetic.
void other_work() {
  for (int i = 0; i < 1000; i++) asm volatile("" : : "r"(i));
}

class Bench {
public:
  Bench(Shared *s, int rank, size_t count) : shared_(s), rank_(rank), in_(count, 1.0f), out_(count) {}

  bool run(int blocks) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(rank_, &one);
    sched_setaffinity(0, sizeof one, &one);
    if (rank_ == 0 && tuttiGetUniqueId(&shared_->id) != tuttiSuccess) return false;
    meet(shared_, &round_);
    if (tuttiCommInitRank(&comm_, 2, shared_->id, rank_) != tuttiSuccess || tuttiStreamCreate(&stream_) != tuttiSuccess)
      return false;
    std::vector<double> took[kWays], more[kWays];
    for (int b = -1; b < blocks; b++) { // the first warms up
      double ns[kWays];
      for (int way = 0; way < kWays; way++) {
        if (!block(way, &ns[way])) return false;
      }
      for (int way = 0; way < kWays && b >= 0; way++) took[way].push_back(ns[way]), more[way].push_back(ns[way] - ns[0]);
    }
    for (int way = 0; way < kWays && rank_ == 0; way++)
      std::printf("%-32s %9.1f ns  (%+.1f)\n", kNames[way], median(took[way]), median(more[way]));
    return tuttiStreamDestroy(stream_) == tuttiSuccess && tuttiCommDestroy(comm_) == tuttiSuccess;
  }

private:
  static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  }

  // The slower rank's time of one of kOperations, which begin together.
  template <class Fn> double slower(Fn fn) {
    meet(shared_, &round_);
    const double start = now_ns();
    for (int i = 0; i < kOperations; i++) fn(i);
    shared_->ns[rank_] = (now_ns() - start) / kOperations;
    meet(shared_, &round_);
    const double most = std::max(shared_->ns[0], shared_->ns[1]);
    meet(shared_, &round_);
    return most;
  }

  // Without the other work, of which the slower rank's counts, for the other one waits for it.
  bool block(int way, double *ns) {
    const double work = way == 1 ? slower([](int) { other_work(); }) : 0;
    bool good = true;
    *ns = slower([&](int i) { good = good && operation(way, i); }) - work;
    return good && out_[0] == 2.0f;
  }

  bool operation(int way, int number) {
    const tuttiStream_t stream = way == 2 ? stream_ : nullptr;
    if (tuttiAllReduce(in_.data(), out_.data(), in_.size(), tuttiFloat32, tuttiSum, comm_, stream) != tuttiSuccess)
      return false;
    if (way == 1) other_work();
    if (way == 2) return tuttiStreamSynchronize(stream_) == tuttiSuccess;
    if (way == 4 && number % 4 != 3) return true;
    if (way != 3) return tuttiCommSynchronize(comm_) == tuttiSuccess;
    tuttiWork_t work = nullptr;
    return tuttiCommGetLastWork(comm_, &work) == tuttiSuccess && tuttiWorkWait(work) == tuttiSuccess &&
           tuttiWorkDestroy(work) == tuttiSuccess;
  }

  Shared *shared_;
  int rank_, round_ = 0;
  std::vector<float> in_, out_;
  tuttiComm_t comm_ = nullptr;
  tuttiStream_t stream_ = nullptr;
};

} // namespace

int main(int argc, char **argv) {
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8;
  const int blocks = argc > 2 ? std::atoi(argv[2]) : 101;
  auto *shared =
      static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED || bytes < 4 || blocks < 1) return 2;
  alarm(120); // of each rank: the other one may be gone
  const pid_t other = fork();
  if (other == 0) alarm(120);
  if (other < 0) return 2;
  const int rank = other == 0 ? 1 : 0;
  bool good = Bench(shared, rank, bytes / 4).run(blocks);
  if (!good) std::fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(nullptr));
  if (rank == 1) _exit(good ? 0 : 1);
  int status = 0;
  if (!good) kill(other, SIGKILL); // it may wait for this rank
  waitpid(other, &status, 0);
  return good && status == 0 ? 0 : 1;
}
