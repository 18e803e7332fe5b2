// One rank of the runs in the guest: joins from the environment, does operations, and reports in one line what became of them,
// for the scripts and the table of faults. Exit: 0 right, 3 the library reported an error, 4 wrong data, 5 wrong use.
#define DOCTEST_CONFIG_IMPLEMENT // tests/support needs it; this program has a main() of its own
#include "operations.h"
#include "tools/data.h"
#include "traffic.h"
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <thread>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRight = 0, kError = 3, kWrong = 4;

struct Options {
  size_t bytes = 1 << 20;
  int count = 20;
  int pause_ms = 0;
  std::string memory = "plain";
  std::string die; // this rank kills itself then
};

int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

// The memory of a loop: a vector's, a vector's that is registered, or that of tuttiMemAlloc.
class Buffer {
public:
  Buffer(tuttiComm_t comm, size_t n, const std::string &kind) : comm_(comm), bytes_(n * sizeof(float)) {
    if (kind == "alloc") {
      void *at = nullptr;
      ok_ = tuttiMemAlloc(&at, bytes_) == tuttiSuccess;
      data_ = shared_ = static_cast<float *>(at);
    } else {
      own_.resize(n);
      data_ = own_.data();
      if (kind == "user") ok_ = tuttiCommRegister(comm_, data_, bytes_, &handle_) == tuttiSuccess;
    }
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() {
    if (handle_) tuttiCommDeregister(comm_, handle_);
    tuttiMemFree(shared_);
  }
  bool ok() const { return ok_; }
  float *data() { return data_; }

private:
  tuttiComm_t comm_;
  size_t bytes_;
  bool ok_ = true;
  std::vector<float> own_;
  float *data_ = nullptr, *shared_ = nullptr;
  void *handle_ = nullptr;
};

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  pause();
  _exit(kError); // not reached
}

class Job {
public:
  explicit Job(const Options &options) : options_(options) {}

  bool join() {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    if (options_.die == "bootstrap") config.blocking = 0;
    const auto start = Clock::now();
    const tuttiResult_t joined = tuttiCommInitFromEnv(&r_.comm, &config);
    if (options_.die == "bootstrap") die();
    if (joined != tuttiSuccess) return failed("joining", joined, start);
    tuttiCommUserRank(r_.comm, &r_.rank);
    tuttiCommCount(r_.comm, &r_.n);
    std::printf("rank %d: joined %d ranks\n", r_.rank, r_.n);
    return true;
  }

  // Every collective in every size up to `bytes`.
  int all() {
    int done = 0;
    for (const support::Coll coll : support::kAllColls) {
      const auto start = Clock::now();
      for (const size_t bytes : sizes()) {
        if (!run_case(r_, {coll, tuttiFloat32, tuttiSum, bytes / sizeof(float)})) return kWrong;
        done++;
      }
      if (r_.rank == 0) std::printf("rank 0: %s right, %lld ms\n", name_of(coll), static_cast<long long>(ms_since(start)));
    }
    std::printf("rank %d: %d operations right\n", r_.rank, done);
    return kRight;
  }

  // The same all-reduce again and again, checked each time.
  int loop() {
    const size_t n = options_.bytes / sizeof(float);
    Buffer in(r_.comm, n, options_.memory), out(r_.comm, n, options_.memory);
    std::vector<float> want(n);
    if (!in.ok() || !out.ok()) return failed("getting memory", tuttiSystemError, Clock::now()), kError;
    tutti::data::input(in.data(), n, tuttiFloat32, tuttiSum, r_.n, r_.rank, kSeed, 0);
    tutti::data::expected(want.data(), n, tuttiFloat32, tuttiSum, r_.n, kSeed, 0);
    int64_t longest = 0;
    for (int i = 0; i < options_.count; i++) {
      std::memset(out.data(), 0xa7, n * sizeof(float));
      const auto start = Clock::now();
      if (options_.die == "between" && i == options_.count / 2) die();
      tuttiResult_t result = tuttiAllReduce(in.data(), out.data(), n, tuttiFloat32, tuttiSum, r_.comm, nullptr);
      if (options_.die == "connect") die();
      if (options_.die == "transfer" && i == options_.count / 2)
        std::thread([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)), die(); }).detach();
      if (result == tuttiSuccess) result = tuttiCommSynchronize(r_.comm);
      if (result != tuttiSuccess) return failed("operation " + std::to_string(i + 1), result, start), kError;
      if (std::memcmp(out.data(), want.data(), n * sizeof(float)) != 0) {
        std::printf("rank %d: WRONG DATA in operation %d\n", r_.rank, i + 1);
        return kWrong;
      }
      const int64_t ms = ms_since(start);
      longest = std::max(longest, ms);
      std::printf("rank %d: %d done, %lld ms\n", r_.rank, i + 1, static_cast<long long>(ms));
      if (options_.pause_ms) std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    }
    if (const auto lent = support::sum_of(support::links_of(r_), "recv").lent; lent > 0)
      std::printf("rank %d: read %lld bytes where they lay\n", r_.rank, static_cast<long long>(lent));
    std::printf("rank %d: %d operations right, the longest %lld ms\n", r_.rank, options_.count,
                static_cast<long long>(longest));
    return kRight;
  }

  int leave(int status) {
    if (options_.die == "finalize") die();
    const auto start = Clock::now();
    if (status != kRight) {
      tuttiCommAbort(r_.comm);
    } else if (const tuttiResult_t left = tuttiCommDestroy(r_.comm); left != tuttiSuccess) {
      failed("leaving", left, start, nullptr);
      return kError;
    }
    if (ms_since(start) > 1000)
      std::printf("rank %d: leaving took %lld ms\n", r_.rank, static_cast<long long>(ms_since(start)));
    return status;
  }

private:
  static constexpr uint64_t kSeed = 7;

  std::vector<size_t> sizes() const {
    std::vector<size_t> all{0, 4, 60, 4096, 65536 + 4, 1 << 20, 8 << 20};
    std::erase_if(all, [&](size_t bytes) { return bytes > options_.bytes; });
    return all;
  }

  bool failed(const std::string &what, tuttiResult_t result, Clock::time_point start) {
    return failed(what, result, start, r_.comm);
  }
  bool failed(const std::string &what, tuttiResult_t result, Clock::time_point start, tuttiComm_t comm) {
    const char *own = std::getenv("TUTTI_RANK");
    std::printf("rank %s: error in %s after %lld ms: %s: %s\n", own ? own : "?", what.c_str(),
                static_cast<long long>(ms_since(start)), tuttiGetErrorString(result), tuttiGetLastError(comm));
    return false;
  }

  Options options_;
  support::Rank r_;
};

} // namespace

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Options options;
  int64_t limit = 1200;
  CLI::App app("one rank of the runs in the guest");
  app.fallthrough(); // options may follow the subcommand
  app.add_option("--bytes", options.bytes, "of the message, or of the largest one");
  app.add_option("--count", options.count, "operations of a loop");
  app.add_option("--pause-ms", options.pause_ms, "between the operations of a loop");
  app.add_option("--memory", options.memory, "of a loop's operations: plain, alloc (tuttiMemAlloc), user (tuttiCommRegister)")
      ->check(CLI::IsMember({"plain", "alloc", "user"}));
  app.add_option("--die", options.die, "when this rank kills itself")
      ->check(CLI::IsMember({"bootstrap", "connect", "transfer", "between", "finalize"}));
  app.add_option("--limit", limit, "seconds, then it ends itself");
  auto *all = app.add_subcommand("all", "every collective in every size");
  app.add_subcommand("loop", "one all-reduce many times");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  const support::Watchdog dog("rdma_rank", std::chrono::seconds(limit));
  Job job(options);
  if (!job.join()) return kError;
  return job.leave(*all ? job.all() : job.loop());
}
