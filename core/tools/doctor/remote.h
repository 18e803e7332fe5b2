// tutti/core/tools/doctor/remote.h: starts `tutti doctor` on other hosts by a remote shell, and passes on what they say to each
// other, so that they need not reach one another for that.
#pragma once
#include "base/status.h"
#include "base/time.h"
#include "tools/doctor/finding.h"
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tutti::doctor {

struct RemoteOptions {
  std::vector<std::string> hosts;
  std::string shell = "ssh"; // takes a host and a command
  std::string program;       // of the other hosts
  int ranks_here = 0;
  double timeout_s = 120;
};
// What the hosts found (pairs_json() with "findings" and "matrix"); hosts that take no part are findings in *own.
Result<nlohmann::json> ask_hosts(const RemoteOptions &options, Findings *own);

// "n[1-3],m2", and the lines of a host file: a name, and what is told of it, which does not matter here.
Result<std::vector<std::string>> hosts_of(const std::string &list, const std::string &file);

constexpr std::string_view kEndMark = "@tutti-doctor-end";        // a host that is through says so
constexpr std::string_view kReportMark = "@tutti-doctor-report "; // before the report, on one line

} // namespace tutti::doctor
