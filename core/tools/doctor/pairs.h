// tutti/core/tools/doctor/pairs.h: every pair of hosts is tested, in rounds in which each host is in one test at most.
#pragma once
#include "tools/doctor/exchange.h"
#include "tools/doctor/facts.h"
#include "tools/doctor/local.h"
#include "tools/doctor/probe.h"

namespace tutti::doctor {

struct PairResult {     // one direction
  int from = 0, to = 0; // hosts
  std::vector<Attempt> attempts;
  std::optional<Measured> measured; // where this direction was the one to measure
  int used = -1;                    // attempt that it was measured on
  const Attempt *open() const;      // the first that got through
};

struct PairsReport {
  std::vector<HostReport> hosts;
  std::vector<std::vector<int>> ranks; // of the job, by host
  std::vector<PairResult> pairs;
  std::vector<LocalPair> locals; // of all hosts
  int rounds = 0, done = 0;      // of the tournament
};

struct PairsOptions {
  Nanos patience = std::chrono::seconds(2); // for connections
  int ranks_here = 0;                       // 0 = those of the job
  Deadline deadline;                        // of all of it
};

// Collective; the same on all.
Result<PairsReport> run_pairs(Exchange &exchange, std::shared_ptr<const Config> config, const PairsOptions &options);

// What is wrong between hosts, and what each found of itself.
Findings judge(const PairsReport &report);
std::string matrix_text(const PairsReport &report);
nlohmann::json pairs_json(const PairsReport &report);

} // namespace tutti::doctor
