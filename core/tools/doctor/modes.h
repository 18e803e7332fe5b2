// tutti/core/tools/doctor/modes.h: what `tutti doctor` does, by its command line. Each returns the exit code.
#pragma once
#include "base/time.h"
#include "tools/doctor/finding.h"
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tutti::doctor {

struct Args {
  int ranks = 0; // on this host, or on each; 0 = one for each core, or those of the job
  bool all = false, json = false, matrix = false, job = false, join = false;
  double timeout_s = 120;
  std::string log, hosts, hostfile, shell = "ssh", program;
  Deadline deadline() const { return Deadline::in(Nanos(static_cast<int64_t>(timeout_s * 1e9))); }
};

int doctor_host(const Args &args);   // this one
int doctor_log(const Args &args);    // --log
int doctor_job(const Args &args);    // --job: this process is a rank of one
int doctor_hosts(const Args &args);  // --hosts: starts doctor_joined() there
int doctor_joined(const Args &args); // --join: started by doctor_hosts()

// Findings and how many there are of each level, for people; the exit code that they mean.
void print_findings(const Findings &findings, const Args &args);
int exit_code(const Findings &findings);

} // namespace tutti::doctor
