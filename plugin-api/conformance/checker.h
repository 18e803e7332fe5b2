// tutti/plugin-api/conformance/checker.h: checks one file against every rule and runs the suites of what it offers.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct CheckFinding {
  std::string rule; // "P-ENTRY-03", "N-32"
  std::string text;
  std::string todo; // "" = see the text
};
struct CheckReport {
  std::string identity; // "net-x 1.2.3 (vendor, licence): summary", "" when it never came that far
  std::vector<std::string> ifaces;
  std::vector<CheckFinding> findings;
  std::vector<std::string> skipped; // "N-09: the net offers no event_fd"
  uint32_t passed = 0;
};
struct CheckSettings {
  bool behaviour = true;              // run the suites
  std::string only;                   // cases whose id starts so; "" = all
  std::chrono::seconds open_limit{5}; // for loading and opening
  bool progress = false;              // show the running case on stderr
};
// Loads the file only in forked children, so that a crash or a hang is a finding and harms nobody.
CheckReport check_plugin(const std::string &path, const CheckSettings &settings);

} // namespace tutti
