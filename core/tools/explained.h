// tutti/core/tools/explained.h: the JSON of tuttiCommExplain, read.
#pragma once
#include "base/status.h"
#include "tutti/tutti.h"
#include <optional>
#include <string>
#include <vector>

namespace tutti::tools {

struct ExplainedWay {
  std::string algo, proto, note, refused; // refused: why it cannot run; "" = it can
  uint32_t channels = 1, depth = 0;
  uint64_t slot_bytes = 0;
  bool nontemporal = false, chosen = false;
  std::optional<double> predicted_us, measured_us;
};

struct Explanation {
  std::string collnet; // how operations reduce in the network, or why they do not; "" = nobody asked for it
  std::string coll, algo, proto, why, decided_by, decided_how, deterministic;
  uint64_t count = 0, bytes = 0;
  int nranks = 0;
  uint32_t channels = 1, depth = 0;
  uint64_t slot_bytes = 0;
  bool nontemporal = false;
  std::optional<uint32_t> bucket;    // of the size class (2^(bucket-1), 2^bucket]; none where there is no choice
  int hosts = 0, ppn = 0, cores = 0; // 0 = not told
  std::string link;                  // slowest kind in use: "local", "shm", "net"
  std::vector<ExplainedWay> ways;    // the usable ones first, by cost
  const ExplainedWay *chosen() const;
};

// "model", "tuner: table tuned.toml:12", "environment: ...": who decided, and how.
std::string decided_text(const Explanation &e);

// What comm says of count elements; coll as in the perf tests.
Result<std::string> ask_explanation(tuttiComm_t comm, const std::string &coll, size_t count, tuttiDataType_t type);
Result<Explanation> read_explanation(const std::string &json);

} // namespace tutti::tools
