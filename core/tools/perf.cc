// `tutti perf`: this process's part: joins the job, starts a thread per rank, watches over rows that take too long.
#include "tools/perf.h"
#include "tools/cli.h"
#include "tools/job.h"
#include "tools/perf_rank.h"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace tutti::tools::perf {
namespace {

// Ends the process when a row takes longer than -T. The library's own deadlines name the rank that is missing; this one is the
// user's, and may be shorter.
class Watchdog {
public:
  Watchdog(int seconds, const std::vector<tuttiComm_t> &comms) : seconds_(seconds), comms_(comms) {
    if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  std::atomic<int64_t> row_started{0}; // steady clock, ns; 0 = no row is running

private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(200), [this] { return done_; })) {
      const int64_t start = row_started;
      const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
      if (start == 0 || now - start < int64_t{1000000000} * seconds_) continue;
      print_error(fmt::format("tutti perf: a row is not finished after {} s (-T); giving up", seconds_));
      for (tuttiComm_t c : comms_) (void)tuttiCommAbort(c); // tells the other ranks
      _exit(kFailed);
    }
  }
  const int seconds_;
  const std::vector<tuttiComm_t> &comms_;
  std::mutex mutex_; // guards done_
  bool done_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

// --roots of them, made by all processes in turn.
std::vector<tuttiUniqueId> agree_on_ids(const Processes &p, int roots) {
  const auto each = static_cast<size_t>((roots + p.count - 1) / p.count), processes = static_cast<size_t>(p.count);
  std::vector<tuttiUniqueId> mine(each), all(each * processes), out;
  for (tuttiUniqueId &id : mine) require(tuttiGetUniqueId(&id), nullptr, "starting a root");
  if (p.count == 1) return mine;
  const size_t bytes = each * sizeof(tuttiUniqueId);
  require(tuttiAllGather(mine.data(), all.data(), bytes, tuttiUint8, p.comm, nullptr), p.comm, "handing out the ids");
  require(tuttiCommSynchronize(p.comm), p.comm, "handing out the ids");
  for (size_t i = 0; i < static_cast<size_t>(roots); i++) out.push_back(all[i % processes * each + i / processes]);
  return out;
}

class Ranks {
public:
  Ranks(const Args &args, const Processes &p)
      : args_(args), processes_(p), total_(p.count * args.threads), comms_(static_cast<size_t>(args.threads)),
        codes_(static_cast<size_t>(args.threads)), watchdog_(args.timeout, comms_) {}

  int run() {
    if (args_.roots > total_)
      throw Failure{fmt::format("--roots {}: only {} ranks; each root needs one", args_.roots, total_), true};
    if (args_.threads == 1 && args_.roots == 1 && processes_.comm)
      comms_[0] = processes_.comm;
    else {
      ids_ = agree_on_ids(processes_, args_.roots);
      if (!args_.parallel_init) init_in_group();
    }
    std::vector<std::thread> threads;
    for (int t = 1; t < args_.threads; t++) threads.emplace_back([this, t] { rank_main(t); });
    rank_main(0);
    for (auto &t : threads) t.join();
    if (comms_[0] != processes_.comm && processes_.comm) {
      if (failed())
        (void)tuttiCommAbort(processes_.comm);
      else
        (void)tuttiCommDestroy(processes_.comm);
    }
    return failed() ? kFailed : codes_[0];
  }

private:
  int rank_of(int thread) const { return processes_.rank * args_.threads + thread; }
  bool failed() const {
    for (int c : codes_)
      if (c == kFailed) return true;
    return false;
  }
  tuttiResult_t make(int thread) {
    return tuttiCommInitRankScalable(&comms_[static_cast<size_t>(thread)], total_, rank_of(thread),
                                     static_cast<int>(ids_.size()), ids_.data(), nullptr);
  }
  void init_in_group() {
    require(tuttiGroupStart(), nullptr, "opening a group");
    tuttiResult_t first = tuttiSuccess;
    for (int t = 0; t < args_.threads && first == tuttiSuccess; t++) first = make(t);
    const tuttiResult_t end = tuttiGroupEnd();
    require(first != tuttiSuccess ? first : end, nullptr, "making communicators");
  }
  void rank_main(int thread) {
    const auto i = static_cast<size_t>(thread);
    std::atomic<int64_t> unwatched{0};
    std::unique_ptr<Rank> rank; // outlives the abort below: its operations may still be pending
    try {
      if (!comms_[i]) require(make(thread), nullptr, "making a communicator");
      rank = std::make_unique<Rank>(args_, processes_.rank, processes_.count, rank_of(thread), total_, comms_[i]);
      codes_[i] = rank->run(thread == 0 ? watchdog_.row_started : unwatched);
      rank.reset();
      require(tuttiCommDestroy(comms_[i]), nullptr, "freeing the communicator");
    } catch (const Failure &f) {
      codes_[i] = kFailed;
      if (!f.everywhere || rank_of(thread) == 0) print_error(f.text);
      if (thread == 0) watchdog_.row_started = 0;
      // Where all ranks stop alike, leaving together spares the slower ones a message about the faster ones.
      if (comms_[i]) (void)(f.everywhere ? tuttiCommDestroy(comms_[i]) : tuttiCommAbort(comms_[i]));
    }
  }

  const Args &args_;
  const Processes &processes_;
  const int total_;
  std::vector<tuttiComm_t> comms_;
  std::vector<int> codes_;
  std::vector<tuttiUniqueId> ids_;
  Watchdog watchdog_;
};

} // namespace

int run_ranks(const Args &args) {
  Processes processes;
  try {
    processes = join_processes();
    if (processes.count * args.threads == 1)
      fmt::print(stderr, "note: one rank only, so there is nothing to move between ranks; --ranks N, -t N, tutti run or mpirun "
                         "start more\n");
    return Ranks(args, processes).run();
  } catch (const Failure &f) { // before any rank had begun
    print_error(f.text);
    if (processes.comm) (void)(f.everywhere ? tuttiCommDestroy(processes.comm) : tuttiCommAbort(processes.comm));
    return kFailed;
  }
}

} // namespace tutti::tools::perf

namespace tutti::tools {

int perf_main(int argc, char **argv) {
  perf::Args args;
  const perf::Parsed parsed = perf::parse_args(argc, argv, &args);
  if (!parsed.run) return parsed.exit_code;
  if (args.ranks == 0) return perf::run_ranks(args);
  return launch_ranks("perf", args.ranks, args.words);
}

} // namespace tutti::tools
