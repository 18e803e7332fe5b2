// tutti/core/tools/ras_view.h: what looks at running jobs mean: jobs, their processes and communicators, and a verdict for
// each.
#pragma once
#include "tools/ras_diff.h"
#include "tools/ras_look.h"
#include <optional>

namespace tutti::tools::ras_live {

enum class Verdict { setup, idle, running, stalled, failed };
std::string_view verdict_name(Verdict v); // "RUNNING", ...

struct LinkView {
  LinkTraffic traffic;
  std::string way; // "net socket eth0 10.0.0.1 -> 10.0.0.2", "shm"
  bool lost = false;
};

struct RankView {
  uint64_t process = 0;                 // 0 = not known
  const ras::CommReport *now = nullptr; // nullptr: it did not answer
  const ras::CommReport *before = nullptr;
  std::string absence;              // why it did not: "is stopped, ..."
  bool left = false;                // said goodbye
  double operations = 0, bytes = 0; // a second, since the last look; bytes are those sent
  std::vector<LinkView> links;
};

struct CommView {
  uint64_t id = 0, job = 0;
  std::string name;
  int nranks = 0;
  std::map<int, RankView> ranks; // all of them
  std::vector<int> missing;      // that did not answer
  Verdict verdict = Verdict::idle;
  std::string kind, text; // of a verdict that names somebody
  std::vector<int> culprits;
  double operations = 0, bytes = 0;                 // a second: of the busiest rank, and of all
  std::pair<uint64_t, uint64_t> started, completed; // least and most of the ranks that answered
  std::optional<OperationState> oldest;
  int64_t oldest_age_ns = 0;
};

struct ProcessView {
  const ras::ProcessReport *now = nullptr; // nullptr: it did not answer
  const ras::Silent *silent = nullptr;
  std::string host;
  int64_t pid = 0;
  double cpu = -1; // processors used since the last look; < 0 = not known
};

struct JobView {
  uint64_t id = 0;
  std::vector<std::string> versions;
  int64_t up_ns = 0; // since the first of its processes was ready
  std::map<uint64_t, ProcessView> processes;
  std::vector<CommView> comms; // the worst first
  int nranks = 0;              // of the largest communicator
};

struct View {
  int64_t at_ns = 0, interval_ns = 0; // 0: there was no look before
  std::vector<JobView> jobs;
  std::vector<const ras::Silent *> strays; // of no job that somebody answered for
  size_t of_others = 0;
};

struct ViewOptions {
  int64_t stall_ns = 3'000'000'000; // a wait of so long without progress
  int64_t pid = 0;                  // only the job of this process
  std::string job = {}, comm = {};  // only these: the beginning of an id, or a communicator's name
};

// `before` and `now` outlive it; before may be nullptr.
View make_view(const Snapshot *before, const Snapshot &now, const ViewOptions &options);

struct TextOptions {
  int width = 100;
  bool links = false;
  int rank = -1; // this one in detail
};
std::string view_text(const View &view, const TextOptions &options);
std::string view_json(const View &view, int indent);
std::string rate_text(double per_second, bool bytes); // "12.3 k/s", "1.2 GB/s"

} // namespace tutti::tools::ras_live
