// tutti/core/tools/doctor/host.h: what is known of a host, and the job that is to run on it. What is in files is read by the
// checks; what has to be asked of the system is gathered once, so that tests can say what the answer was.
#pragma once
#include "base/time.h"
#include "config/config.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/tree.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <map>
#include <optional>

namespace tutti::doctor {

struct Space { // of a file system
  uint64_t total = 0, free = 0;
  uint64_t free_files = 0, files = 0; // files: 0 = it counts none
  bool read_only = false;
};

struct Names {                      // name resolution of this host's own name
  std::string own;                  // gethostname()
  std::vector<std::string> forward; // addresses that it resolves to
  std::string forward_error;        // why it resolves to nothing
  std::string reverse;              // the name of the first address that is no loopback
  double seconds = 0;               // that it took
};

struct Host {
  Tree files;
  std::shared_ptr<const Config> config;
  std::vector<netif::Interface> interfaces;
  std::optional<Space> shm; // /dev/shm
  Names names;
  int usable_cpus = 0; // affinity of this process; 0 = not known
  bool root = false;   // this user is
  // System calls that the library uses, and the errno that a harmless one gave; 0 = it works.
  std::map<std::string, int> calls;
  std::optional<bool> clock_synchronised; // adjtimex()
  std::string firewall;                   // `nft list ruleset` or `iptables-save`, "" = not readable
  std::string firewall_from;              // the command
  std::string firewall_problem;           // why there is none
  std::vector<std::string> visible_gpus;  // of this process, as CUDA_VISIBLE_DEVICES says
};

// What is to run there.
struct Job {
  int ranks = 1; // in all
  int here = 1;  // of them on this host
  int hosts = 1;
};

// Asks the running system; what may wait (names) ends by the deadline.
Host gather_host(std::shared_ptr<const Config> config, Deadline deadline);

// One function per topic; each adds what it looked at, also what is ok.
void check_interfaces(const Host &host, const Job &job, Findings &out);
void check_routes(const Host &host, const Job &job, Findings &out);
void check_names(const Host &host, const Job &job, Findings &out);
void check_firewall(const Host &host, const Job &job, Findings &out);
void check_tcp(const Host &host, const Job &job, Findings &out);
void check_limits(const Host &host, const Job &job, Findings &out);
void check_shm(const Host &host, const Job &job, Findings &out);
void check_pages(const Host &host, const Job &job, Findings &out);
void check_single_copy(const Host &host, const Job &job, Findings &out);
void check_calls(const Host &host, const Job &job, Findings &out);
void check_cpus(const Host &host, const Job &job, Findings &out);
void check_container(const Host &host, const Job &job, Findings &out);
void check_numa(const Host &host, const Job &job, Findings &out);
void check_clock(const Host &host, const Job &job, Findings &out);
void check_kernel(const Host &host, const Job &job, Findings &out);
void check_pci(const Host &host, const Job &job, Findings &out);
void check_rdma(const Host &host, const Job &job, Findings &out);
void check_gpus(const Host &host, const Job &job, Findings &out);
Findings check_host(const Host &host, const Job &job); // all of them

struct MemoryLimit { // of the container or any group around it
  int64_t bytes = 0, used = 0;
  std::string from; // folder
};
std::optional<MemoryLimit> memory_limit(const Tree &files);

bool has_rdma(const Host &host); // a device is there, whatever its state

} // namespace tutti::doctor
