// The suite that judges every net, on this one over the double.
#include "checker.h"
#include <doctest/doctest.h>

TEST_CASE("net-ib keeps what net.h promises") {
  tutti::CheckSettings settings;
  const tutti::CheckReport r = tutti::check_plugin(DOUBLE_PLUGIN, settings);
  std::string all;
  for (const tutti::CheckFinding &f : r.findings) all += f.rule + ": " + f.text + "\n";
  for (const std::string &s : r.skipped) all += s + "\n";
  INFO(all);
  CHECK(r.findings.empty());
  for (const std::string &s : r.skipped) MESSAGE(s);
  CHECK(r.passed > 50);
}
