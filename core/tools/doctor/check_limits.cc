// Limits of a process, from /proc/self/limits, and of the system.
#include "tools/doctor/host.h"
#include <climits>
#include <fmt/format.h>

namespace tutti::doctor {
namespace {

struct Limit {
  int64_t soft = 0, hard = 0; // INT64_MAX = unlimited
  bool known = false;
};

// "Max open files            1024                 524288               files"
Limit limit_of(const Host &host, std::string_view name) {
  Limit out;
  for (const std::string &line : host.files.lines("/proc/self/limits")) {
    if (!line.starts_with(name)) continue;
    const auto parts = words(std::string_view(line).substr(name.size()));
    if (parts.size() < 2) return out;
    const auto number = [](const std::string &text) { return text == "unlimited" ? INT64_MAX : to_number(text).value_or(-1); };
    out = {number(parts[0]), number(parts[1]), true};
    return out;
  }
  return out;
}

std::string text(int64_t value) {
  return value == INT64_MAX ? "unlimited" : fmt::format("{}", value);
}

// A link over sockets takes a descriptor at each end, and there are links both ways; shared memory takes one while it is set
// up.
constexpr int64_t kFilesOfProcess = 64, kFilesOfPeer = 4;

void check_files(const Host &host, const Job &job, Findings &out) {
  const Limit files = limit_of(host, "Max open files");
  if (!files.known) return;
  const int64_t need = kFilesOfProcess + kFilesOfPeer * (job.ranks - 1);
  const int64_t launcher = kFilesOfProcess + 2 * int64_t{job.here};
  const int64_t most = std::max(need, launcher);
  const std::string seen = fmt::format("open files (ulimit -n): {} soft, {} hard", text(files.soft), text(files.hard));
  if (files.soft >= most)
    out.ok("limits.files", fmt::format("{}; {} ranks need about {}", seen, job.ranks, most));
  else
    out.add(
        files.hard >= most ? Level::warning : Level::error, "limits.files", seen,
        fmt::format("a rank that talks to all of {} ranks needs about {} descriptors; without them connections are refused as "
                    "\"Too many open files\"",
                    job.ranks, most),
        files.hard >= most ? fmt::format("ulimit -n {}", std::max<int64_t>(4096, 2 * most))
                           : fmt::format("LimitNOFILE={0} of the service, or `* hard nofile {0}` in /etc/security/limits.d; "
                                         "containers: --ulimit nofile={0}",
                                         std::max<int64_t>(65536, 2 * most)));
  const int64_t all = host.files.number("/proc/sys/fs/file-max").value_or(INT64_MAX);
  if (all < most * job.here)
    out.add(Level::error, "limits.file_max", fmt::format("fs.file-max: {}", all),
            fmt::format("the {} ranks of this host need about {} descriptors together", job.here, most * job.here),
            fmt::format("sysctl -w fs.file-max={}", 4 * most * job.here));
}

void check_locked(const Host &host, const Job &job, Findings &out) {
  const Limit locked = limit_of(host, "Max locked memory");
  if (!locked.known) return;
  constexpr int64_t kPerRank = 256 << 20; // memory.cap's default: what a communicator may pin beside users' buffers
  const std::string seen = fmt::format("locked memory (ulimit -l): {}",
                                       locked.soft == INT64_MAX ? "unlimited" : amount(static_cast<double>(locked.soft)));
  if (locked.soft >= kPerRank || !has_rdma(host))
    return out.ok("limits.memlock", seen + (has_rdma(host) ? "" : "; nothing here pins memory (no RDMA device)"));
  out.add(host.root ? Level::warning : Level::error, "limits.memlock", seen,
          fmt::format("RDMA devices need buffers pinned: each of the {} ranks of this host pins up to {} and users' buffers; "
                      "registering fails with \"Cannot allocate memory\"",
                      job.here, amount(static_cast<double>(kPerRank))),
          "ulimit -l unlimited; for good: `* - memlock unlimited` in /etc/security/limits.d, LimitMEMLOCK=infinity of slurmd "
          "or the "
          "container service, --ulimit memlock=-1 of a container");
}

void check_stack(const Host &host, Findings &out) {
  const Limit stack = limit_of(host, "Max stack size");
  if (!stack.known) return;
  if (stack.soft >= 1 << 20)
    return out.ok("limits.stack", fmt::format("stack (ulimit -s): {}",
                                              stack.soft == INT64_MAX ? "unlimited" : amount(static_cast<double>(stack.soft))));
  out.add(Level::warning, "limits.stack", fmt::format("stack (ulimit -s): {}", amount(static_cast<double>(stack.soft))),
          "threads of the library and of the program get stacks of this size, and may overrun them", "ulimit -s 8192");
}

// Each rank has its own threads beside the program's: service, progress, and those of devices.
void check_processes(const Host &host, const Job &job, Findings &out) {
  constexpr int64_t kThreads = 8;
  const Limit processes = limit_of(host, "Max processes");
  const int64_t need = kThreads * job.here;
  if (!processes.known) return;
  const std::string seen = fmt::format("processes and threads of this user (ulimit -u): {}", text(processes.soft));
  if (processes.soft >= need) return out.ok("limits.processes", seen);
  out.add(Level::error, "limits.processes", seen, fmt::format("{} ranks with their threads are about {}", job.here, need),
          fmt::format("ulimit -u {}", 4 * need));
}

} // namespace

void check_limits(const Host &host, const Job &job, Findings &out) {
  check_files(host, job, out);
  check_locked(host, job, out);
  check_stack(host, out);
  check_processes(host, job, out);
}

} // namespace tutti::doctor
