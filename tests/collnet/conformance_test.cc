// The plugin passes the suite of its interface, with a daemon and without.
#include "checker.h"
#include "daemon.h"
#include <cstdlib>
#include <doctest/doctest.h>

using namespace collnet;

namespace {
const std::string plugin = std::string(AGGD_FOLDER) + "/libtutti-collnet-aggd.so";

void no_findings(const tutti::CheckReport &report) {
  for (const auto &f : report.findings) {
    INFO(f.rule << ": " << f.text);
    CHECK(f.rule == "");
  }
}
} // namespace

TEST_CASE("collnet-aggd passes every case of tutti.collnet/1 when options name its daemons") {
  Folder folder;
  Daemon a(folder, "a"), b(folder, "b");
  ::setenv("TUTTI_PLUGIN_COLLNET_AGGD_SERVERS", (a.address() + "," + b.address()).c_str(), 1);
  ::setenv("TUTTI_PLUGIN_COLLNET_AGGD_KEY_FILE", folder.key().c_str(), 1);
  const auto report = tutti::check_plugin(plugin, {});
  ::unsetenv("TUTTI_PLUGIN_COLLNET_AGGD_SERVERS");
  ::unsetenv("TUTTI_PLUGIN_COLLNET_AGGD_KEY_FILE");
  no_findings(report);
  CHECK(report.skipped.empty());
  CHECK(report.passed == 25); // opened, and the cases
}

TEST_CASE("without a daemon the cases that need one are skipped with the reason") {
  const auto report = tutti::check_plugin(plugin, {});
  no_findings(report);
  CHECK(report.passed == 2);
  REQUIRE(report.skipped.size() == 23);
  CHECK(report.skipped[0].find("options name none") != std::string::npos);
}
