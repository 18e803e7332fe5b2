// Cores: how many there are for the ranks, what limits them, at which speed they run; where memory is.
#include "tools/doctor/host.h"
#include <algorithm>
#include <climits>
#include <fmt/format.h>
#include <map>

namespace tutti::doctor {
namespace {

const std::string kCpu = "/sys/devices/system/cpu/";

struct Cgroup {
  std::string base; // folder of the controller, "/sys/fs/cgroup" or "/sys/fs/cgroup/cpu"
  std::string path; // of this process in it
  bool v2 = false;
};

// From lines "0::/path" (v2) and "4:cpu,cpuacct:/path" (v1) of /proc/self/cgroup.
Cgroup cgroup_of(const Tree &files, std::string_view controller) {
  Cgroup out{"/sys/fs/cgroup", "/", true};
  for (const std::string &line : files.lines("/proc/self/cgroup")) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (names == ",,") {
      if (out.v2) out.path = path;
    } else if (names.find(fmt::format(",{},", controller)) != names.npos) {
      const std::string whole = names.substr(1, names.size() - 2);
      const bool by_name = files.exists("/sys/fs/cgroup/" + std::string(controller));
      out = {"/sys/fs/cgroup/" + (by_name ? std::string(controller) : whole), path, false};
    }
  }
  // In a container the path is the host's and the mount its own: then the files are at the mount.
  while (out.path.size() > 1 && !files.exists(out.base + out.path)) out.path = "/";
  return out;
}

// The folder of the process and those above it: a limit of any of them holds.
template <class F> void each_level(const Cgroup &c, F &&fn) {
  std::string path = c.path == "/" ? "" : c.path;
  while (true) {
    fn(c.base + path);
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

struct Quota {
  double cores = 0; // 0 = none
  std::string from;
};

Quota cpu_quota(const Tree &files) {
  const Cgroup c = cgroup_of(files, "cpu");
  Quota out;
  each_level(c, [&](const std::string &folder) {
    double cores = 0;
    if (c.v2) {
      const auto parts = words(files.line(folder + "/cpu.max"));
      if (parts.size() == 2 && parts[0] != "max")
        cores = static_cast<double>(to_number(parts[0]).value_or(0)) /
                static_cast<double>(std::max<int64_t>(1, to_number(parts[1]).value_or(1)));
    } else {
      const int64_t quota = files.number(folder + "/cpu.cfs_quota_us").value_or(-1),
                    period = files.number(folder + "/cpu.cfs_period_us").value_or(0);
      if (quota > 0 && period > 0) cores = static_cast<double>(quota) / static_cast<double>(period);
    }
    if (cores > 0 && (out.cores == 0 || cores < out.cores)) out = {cores, folder + (c.v2 ? "/cpu.max" : "/cpu.cfs_quota_us")};
  });
  return out;
}

void check_quota(const Host &host, const Job &job, Findings &out) {
  const Quota quota = cpu_quota(host.files);
  if (quota.cores == 0) return out.ok("container.cpu_quota", "CPU quota: none");
  const Cgroup c = cgroup_of(host.files, "cpu");
  const std::string folder = c.base + (c.path == "/" ? "" : c.path);
  const auto throttled = to_number(host.files.value(folder + "/cpu.stat", "nr_throttled"));
  const std::string seen = fmt::format("CPU quota: {:.2f} cores ({}){}", quota.cores, quota.from,
                                       throttled.value_or(0) > 0 ? fmt::format(", throttled {} times so far", *throttled) : "");
  const std::string why =
      "ranks that have used up the quota stand still until the next period, up to 100 ms, and all others wait "
      "for them in the middle of an operation";
  const std::string fix =
      "give each rank a core of its own (cpuset) instead of a quota: docker --cpuset-cpus, Kubernetes: whole "
      "CPUs and requests equal to limits with the static CPU manager";
  if (quota.cores < job.here)
    out.add(Level::error, "container.cpu_quota", fmt::format("{}, for {} ranks", seen, job.here), why, fix);
  else
    out.add(throttled.value_or(0) > 0 ? Level::warning : Level::note, "container.cpu_quota", seen, why, fix);
}

void check_memory_limit(const Host &host, const Job &job, Findings &out) {
  const auto found = memory_limit(host.files);
  if (!found) return out.ok("container.memory", "memory limit of the container: none");
  const auto &[limit, used, from] = *found;
  const std::string seen = fmt::format("memory limit: {}, {} used ({})", amount(static_cast<double>(limit)),
                                       amount(static_cast<double>(used)), from);
  constexpr int64_t kPerRank = 256 << 20;
  if (limit - used < kPerRank * job.here)
    out.add(Level::warning, "container.memory", seen,
            fmt::format(
                "{} ranks may take up to {} each beside the program's memory; at the limit the kernel kills a rank (SIGKILL)",
                job.here, amount(static_cast<double>(kPerRank))),
            "a larger limit (docker --memory), or a smaller TUTTI_MEMORY_CAP");
  else
    out.ok("container.memory", seen);
  if (const auto kills = to_number(host.files.value(from + "/memory.events", "oom_kill")); kills.value_or(0) > 0)
    out.add(Level::warning, "container.oom",
            fmt::format("{} processes were killed for lack of memory ({}/memory.events)", *kills, from),
            "a rank that is killed so shows only as \"was killed by SIGKILL\"", "a larger memory limit, or smaller batches");
}

void check_governor(const Host &host, Findings &out) {
  std::map<std::string, int> governors;
  for (const std::string &cpu : host.files.list(kCpu))
    if (const std::string g = host.files.line(kCpu + cpu + "/cpufreq/scaling_governor"); !g.empty()) governors[g]++;
  if (governors.empty()) return out.ok("cpus.governor", "CPU frequency: not this kernel's choice");
  const std::string first = governors.begin()->first, driver = host.files.line(kCpu + "cpu0/cpufreq/scaling_driver");
  const bool slow = std::any_of(governors.begin(), governors.end(), [&](const auto &g) {
    return g.first == "powersave" ? driver.find("pstate") == driver.npos : g.first != "performance" && g.first != "schedutil";
  });
  const std::string seen =
      fmt::format("CPU frequency governor: {}{} ({})", first, governors.size() > 1 ? " and others" : "", driver);
  if (!slow) return out.ok("cpus.governor", seen);
  out.add(Level::warning, "cpus.governor", seen,
          "cores that wait for messages look idle and run slowly: latencies grow by a multiple and vary",
          "cpupower frequency-set -g performance");
}

} // namespace

std::optional<MemoryLimit> memory_limit(const Tree &files) {
  const Cgroup c = cgroup_of(files, "memory");
  MemoryLimit out{INT64_MAX, 0, ""};
  each_level(c, [&](const std::string &folder) {
    const auto value = files.number(folder + (c.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (!value || *value >= out.bytes || *value > INT64_MAX / 2) return;
    out = {*value, files.number(folder + (c.v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0), folder};
  });
  return out.from.empty() ? std::nullopt : std::optional(out);
}

void check_container(const Host &host, const Job &job, Findings &out) {
  check_quota(host, job, out);
  check_memory_limit(host, job, out);
  const Cgroup c = cgroup_of(host.files, "pids");
  const std::string folder = c.base + (c.path == "/" ? "" : c.path);
  const auto most = host.files.number(folder + "/pids.max"), now = host.files.number(folder + "/pids.current");
  if (most && *most - now.value_or(0) < 8 * job.here)
    out.add(Level::error, "container.pids", fmt::format("pids.max: {}, {} used ({})", *most, now.value_or(0), folder),
            fmt::format("{} ranks with their threads are about {} tasks", job.here, 8 * job.here), "docker --pids-limit=-1");
}

void check_cpus(const Host &host, const Job &job, Findings &out) {
  const auto online = cpus_in(host.files.line(kCpu + "online"));
  const std::string seen = fmt::format("cores: {} usable of {}", host.usable_cpus, online ? fmt::format("{}", *online) : "?");
  if (host.usable_cpus > 0 && host.usable_cpus < job.here)
    out.add(Level::warning, "cpus.count", fmt::format("{}, for {} ranks", seen, job.here),
            "ranks that share a core take turns: an operation takes as long as the scheduler's slices, milliseconds instead of "
            "microseconds",
            online && *online >= job.here
                ? "widen the affinity: taskset, cpuset of the container, --bind-to none or --map-by of the launcher"
                : "fewer ranks per host");
  else if (online && host.usable_cpus > 0 && host.usable_cpus < *online)
    out.add(Level::note, "cpus.affinity", seen, "affinity or a cpuset holds this process on fewer cores than there are");
  else
    out.ok("cpus.count", seen);
  check_governor(host, out);
  if (const auto smt = host.files.number(kCpu + "smt/active");
      smt == 1 && online && job.here > *online / 2 && job.here <= host.usable_cpus)
    out.add(Level::note, "cpus.smt", fmt::format("{} ranks on {} hardware threads, two to a core", job.here, *online),
            "two waiting ranks on one core slow each other down", fmt::format("at most {} ranks on this host", *online / 2));
}

void check_numa(const Host &host, const Job &, Findings &out) {
  const auto nodes = cpus_in(host.files.line("/sys/devices/system/node/online"));
  if (nodes.value_or(1) <= 1) return out.ok("numa.nodes", "NUMA: one node");
  if (host.files.number("/proc/sys/kernel/numa_balancing").value_or(0) != 0)
    out.add(Level::note, "numa.balancing", fmt::format("kernel.numa_balancing on, {} nodes", *nodes),
            "the kernel unmaps pages to see who uses them: page faults in the middle of operations",
            "sysctl -w kernel.numa_balancing=0");
  else
    out.ok("numa.balancing", fmt::format("NUMA: {} nodes, balancing off", *nodes));
  if (host.files.number("/proc/sys/vm/zone_reclaim_mode").value_or(0) != 0)
    out.add(Level::note, "numa.reclaim", "vm.zone_reclaim_mode on",
            "allocating on a full node stalls while it is searched, instead of using another",
            "sysctl -w vm.zone_reclaim_mode=0");
  const std::string mems = host.files.value("/proc/self/status", "Mems_allowed_list");
  const auto allowed = cpus_in(mems);
  if (allowed && *allowed < *nodes)
    out.add(Level::note, "numa.mems", fmt::format("memory of nodes {} alone is allowed (of {})", mems, *nodes),
            "buffers of ranks on the other nodes' cores are far away", "cpuset.mems of the container: those of its cores");
  for (int64_t n = 0; n < std::min<int64_t>(*nodes, 64); n++)
    if (const std::string folder = fmt::format("/sys/devices/system/node/node{}", n); host.files.exists(folder)) {
      const auto total = to_number(words(host.files.value(folder + "/meminfo", fmt::format("Node {} MemTotal", n)) + " 1")[0]);
      if (total == 0)
        out.add(Level::note, "numa.empty", fmt::format("NUMA node {} has cores and no memory", n),
                "ranks there use far memory");
    }
}

} // namespace tutti::doctor
