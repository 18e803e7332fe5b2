// /dev/shm, huge pages, reading another process's memory.
#include "tools/doctor/host.h"
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::doctor {
namespace {

// What programs leave there when they are killed. We leave nothing: our memory has no name.
bool left_over(std::string_view name) {
  for (std::string_view prefix : {"nccl-", "ompi", "vader_segment", "psm2_shm", "mpich", "torch_", "sem.mp-", "Intel_MPI"})
    if (name.starts_with(prefix)) return true;
  return false;
}

} // namespace

void check_shm(const Host &host, const Job &, Findings &out) {
  const std::string ours = "tutti shares memory through descriptors and does not need it, but other libraries of the job do";
  if (!host.shm) {
    out.add(Level::note, "shm.absent", "/dev/shm: absent", ours, "containers: --ipc=host or --shm-size=1g");
  } else {
    const Space &s = *host.shm;
    const std::string seen = fmt::format("/dev/shm: {} free of {}{}", amount(static_cast<double>(s.free)),
                                         amount(static_cast<double>(s.total)), s.read_only ? ", read-only" : "");
    constexpr uint64_t kSmall = 128ull << 20;
    if (s.read_only)
      out.add(Level::warning, "shm.read_only", seen, ours + ", and fail to create files there", "mount -o remount,rw /dev/shm");
    else if (s.files > 0 && s.free_files == 0)
      out.add(Level::warning, "shm.files", seen + ", no file can be made (no inodes)", ours,
              "find /dev/shm -user $USER -delete");
    else if (s.free < kSmall)
      out.add(Level::warning, "shm.size", seen,
              ours + ": NCCL takes about 10 MiB for each connection, PyTorch's data loaders more; they die of a bus error or "
                     "\"No space left on device\"",
              s.total < kSmall ? "containers: --shm-size=1g or --ipc=host; else mount -o remount,size=50% /dev/shm"
                               : "rm what is left over there (ls -l /dev/shm)");
    else
      out.ok("shm.size", seen);
  }
  std::vector<std::string> left;
  for (const std::string &name : host.files.list("/dev/shm"))
    if (left_over(name)) left.push_back(name);
  if (!left.empty())
    out.add(Level::note, "shm.left",
            fmt::format("/dev/shm holds {} file{} of other libraries: {}{}", left.size(), left.size() == 1 ? "" : "s",
                        fmt::join(left.begin(), left.begin() + static_cast<long>(std::min<size_t>(left.size(), 3)), ", "),
                        left.size() > 3 ? ", ..." : ""),
            "if no job runs, a killed one left them, and they take memory",
            "rm them once nothing uses them (fuser /dev/shm/*)");
}

void check_pages(const Host &host, const Job &job, Findings &out) {
  const Tree &f = host.files;
  const bool asked = host.config && host.config->flag("shm.huge_pages");
  const auto total = to_number(words(f.value("/proc/meminfo", "HugePages_Total") + " 0")[0]);
  const auto free = to_number(words(f.value("/proc/meminfo", "HugePages_Free") + " 0")[0]);
  const std::string seen = fmt::format("huge pages: {} of {} free", free.value_or(0), total.value_or(0));
  if (asked && free.value_or(0) == 0)
    out.add(Level::warning, "memory.huge_pages", seen,
            fmt::format("shm.huge_pages ({}) asks for them; ordinary pages serve instead",
                        host.config->setting("shm.huge_pages").origin),
            fmt::format("sysctl -w vm.nr_hugepages={}", 32 * job.here));
  else if (total.value_or(0) > 0 && free == total && !asked)
    out.add(Level::note, "memory.huge_pages", seen, "memory is set aside that nothing uses",
            "TUTTI_SHM_HUGE_PAGES=1 uses them for shared memory");
  else
    out.ok("memory.huge_pages", seen);

  const std::string thp = f.line("/sys/kernel/mm/transparent_hugepage/enabled"),
                    defrag = f.line("/sys/kernel/mm/transparent_hugepage/defrag");
  if (thp.find("[never]") != thp.npos)
    out.add(Level::note, "memory.thp", "transparent huge pages: " + thp,
            "copies of large messages then miss the TLB more: up to a tenth of bandwidth within the host",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  else if (thp.find("[always]") != thp.npos && defrag.find("[always]") != defrag.npos)
    out.add(Level::note, "memory.thp", fmt::format("transparent huge pages: {}, defrag {}", thp, defrag),
            "a page fault may stop to compact memory for milliseconds, and all ranks wait for the one it hits",
            "echo defer+madvise > /sys/kernel/mm/transparent_hugepage/defrag");
  else if (!thp.empty())
    out.ok("memory.thp", "transparent huge pages: " + thp);

  const auto available = to_number(words(f.value("/proc/meminfo", "MemAvailable") + " 0")[0]);
  constexpr int64_t kPerRankKiB = 256 << 10; // memory.cap
  if (available && *available > 0) {
    const std::string memory = fmt::format("memory: {} available", amount(1024.0 * static_cast<double>(*available)));
    if (*available < kPerRankKiB * job.here)
      out.add(Level::warning, "memory.available", memory,
              fmt::format("each of {} ranks may take up to memory.cap (256 MiB) beside the program's own memory", job.here),
              "fewer ranks per host, or a smaller TUTTI_MEMORY_CAP");
    else
      out.ok("memory.available", memory);
  }
  if (const auto over = f.number("/proc/sys/vm/overcommit_memory"); over == 2)
    out.add(Level::note, "memory.overcommit", "vm.overcommit_memory: 2 (never)",
            "shared memory and stacks count in full when they are mapped: \"Cannot allocate memory\" comes early",
            "sysctl -w vm.overcommit_memory=0");
}

void check_single_copy(const Host &host, const Job &job, Findings &out) {
  const auto scope = host.files.number("/proc/sys/kernel/yama/ptrace_scope");
  const std::string setting = scope ? fmt::format("kernel.yama.ptrace_scope {}", *scope) : "no kernel.yama.ptrace_scope";
  const auto it = host.calls.find("process_vm_readv");
  const std::string why =
      "protocol pull copies once instead of twice between processes of a host; without it large messages of "
      "other memory than tuttiMemAlloc's take another protocol";
  if (it == host.calls.end()) return;
  if (it->second == 0) return out.ok("single_copy.pull", "process_vm_readv between processes works; " + setting);
  const int err = it->second;
  out.add(job.here > 1 ? Level::note : Level::ok, "single_copy.pull",
          fmt::format("process_vm_readv of another process: {} ({})", std::strerror(err), setting), why,
          err == ENOSYS || scope.value_or(0) == 0 ? "containers: --cap-add SYS_PTRACE, or a seccomp profile that allows "
                                                    "process_vm_readv; kernel: CONFIG_CROSS_MEMORY_ATTACH"
                                                  : "sysctl -w kernel.yama.ptrace_scope=0");
}

} // namespace tutti::doctor
