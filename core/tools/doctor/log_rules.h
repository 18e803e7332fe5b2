// tutti/core/tools/doctor/log_rules.h: what lines of a log mean, as one table.
#pragma once
#include <span>
#include <string_view>

namespace tutti::doctor {

// How deep a symptom lies. Of several, the first of the deepest kind is what to look at.
enum class Depth {
  cause,       // it explains the others
  symptom,     // it may have a cause that the log does not tell
  consequence, // something else went wrong before, mostly in another process
  harmless,    // looks alarming, and is not
};

struct LogRule {
  std::string_view id; // "refused"
  Depth depth;
  std::string_view meaning;
  // Fragments of a line in their order, * between them; any case. ours: lines of this library and its tools; nccl: lines of
  // NCCL's log; any: those of everybody else as well (launchers, frameworks, the kernel).
  std::span<const std::string_view> ours, nccl, any;
  std::span<const std::string_view> causes;   // the likeliest first
  std::span<const std::string_view> commands; // to make sure, or to mend
};

std::span<const LogRule> log_rules();
bool log_pattern_matches(std::string_view pattern, std::string_view lower_case_line);

} // namespace tutti::doctor
