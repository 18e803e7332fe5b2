// tutti/core/tools/doctor/log_explain.h: reads a log, ours or NCCL's or both mixed, and says what happened first.
#pragma once
#include "tools/doctor/log_rules.h"
#include <istream>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::doctor {

enum class LineKind { ours, nccl, other };

struct LogLine {
  LineKind kind = LineKind::other;
  std::string level;    // "error", "warn", "info", ... of ours; "WARN", "INFO" of NCCL's; "" = not told
  std::string time;     // as it stands there, if it can be compared: "2026-11-30 17:23:22.5"
  std::string reporter; // "rank 3", "host:pid" or ""
  std::string text;     // what it says
};
LogLine read_log_line(std::string_view line);

struct Symptom {
  const LogRule *rule = nullptr;
  int first_line = 0, count = 0;
  std::string time, line; // of the first one
  std::set<std::string> reporters;
  std::map<int, int> named; // ranks that lines speak of, other than who reports; how often
};

struct Explanation {
  int lines = 0;
  int ours = 0, nccl = 0;
  std::vector<Symptom> symptoms; // what to look at first, first
  std::optional<int> suspect;    // the rank that most lines of others name
  bool flight = false;           // a flight-recorder file instead of a log
};

Explanation explain_log(std::istream &in);
std::string explanation_text(const Explanation &e, const std::string &name);
nlohmann::json explanation_json(const Explanation &e);

// The command that reads flight-recorder files ("tutti.flight/1"): they are recognised here and analysed there.
std::string flight_reader(const std::string &file);

} // namespace tutti::doctor
