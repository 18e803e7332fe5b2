// tutti/core/tools/perf_expect.h: the pass lines of `tutti perf --expect FILE`: read, and held against what was measured.
//
// A table per line, its name free:
//   [hdr-all-reduce]
//   operation = "all_reduce"      # or a list
//   link = "ib"                   # slowest kind in use: local, shm, net, socket, ib, net:NAME; absent = any
//   sizes = "128M.."              # as asked for with -b and -e: "1M", "1K..64K", "128M.."; absent = all
//   busbw = "18 GB/s"             # the least that passes, in GB/s or MB/s
#pragma once
#include "base/status.h"
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tools::perf {

struct Row;

struct PassLine {
  std::string name, origin; // "hdr-all-reduce", "expect.toml:3"
  std::vector<std::string> operations;
  std::string link;
  uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
  double bus_bw = 0; // GB/s
  bool serves(std::string_view operation) const;
  bool fits_link(std::string_view kind) const;
  std::string text() const; // "18.00 GB/s over ib, 128M.."
};

// All lines, in their order in the file. Errors name file:line, the value and what is allowed.
Result<std::vector<PassLine>> parse_pass_lines(std::string_view text, const std::string &name);
Result<std::vector<PassLine>> read_pass_lines(const std::string &path);

// "shm", "socket": the slowest kind among the links of an explanation (tuttiCommExplain); "" = there are none.
std::string slowest_link(const nlohmann::json &explanation);

// The lines that are about one operation, and what the rows say to each.
class PassCheck {
public:
  PassCheck(const std::vector<PassLine> &lines, std::string_view operation);
  void add(const Row &row);
  bool missed() const;                     // a line was
  bool measured() const;                   // a line was measured, or there are none
  std::vector<std::string> report() const; // a sentence per line
  nlohmann::json json() const;             // "okay" is null where nothing was measured

private:
  struct Verdict {
    PassLine line;
    uint64_t results = 0, below = 0;
    double worst = 0; // GB/s, of the results
    uint64_t worst_bytes = 0;
    bool worst_in_place = false;
  };
  std::string sentence(const Verdict &v) const;
  std::vector<Verdict> verdicts_;
  std::string link_; // of the last row
};

} // namespace tutti::tools::perf
