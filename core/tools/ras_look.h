// tutti/core/tools/ras_look.h: one look at running jobs: finds their processes and asks them.
#pragma once
#include "bootstrap/crypto.h"
#include "config/config.h"
#include "ras/asking.h"
#include <map>
#include <string>
#include <vector>

namespace tutti::tools::ras_live {

// Numbers of the processes of this network namespace that use the library: of their unix-domain listeners, in the text of
// /proc/net/unix.
std::vector<uint64_t> listeners(std::string_view proc_net_unix);

struct LookOptions {
  std::string host;     // "HOST:PORT" of a process to ask; "" = those of this host
  std::string key_file; // for that
  Nanos timeout = std::chrono::seconds(2);
  ras::Ask ask = ras::Ask::status;
};

struct Snapshot {
  int64_t at_ns = 0;
  std::map<uint64_t, ras::ProcessReport> processes;
  std::map<uint64_t, ras::Silent> silent; // that did not answer
  std::vector<std::string> files;         // flight-recorder files
  size_t of_others = 0;                   // processes here that are another user's
};

class Looker {
public:
  static Result<Looker> create(LookOptions options);
  Result<Snapshot> look(); // waits for nobody longer than the timeout

private:
  Looker(LookOptions options, std::shared_ptr<const Config> config);
  Status find(Snapshot *out);
  void ask(std::vector<ras::Fellow> whom, const ras::Question &q, Deadline deadline, Snapshot *out);
  std::vector<ras::Fellow> delegates(const Snapshot &s) const;
  void place(Snapshot *out) const;

  LookOptions options_;
  std::shared_ptr<const Config> config_;
  uint64_t my_host_ = 0;
  std::vector<ras::Fellow> far_; // of options_.host
  std::unique_ptr<ras::Neighbours> neighbours_ = std::make_unique<ras::Neighbours>();
  std::map<uint64_t, int64_t> heard_; // when processes answered in earlier looks
};

} // namespace tutti::tools::ras_live
