// Clock, kernel, system calls, and what the machine's buses say.
#include "tools/doctor/host.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::doctor {

void check_clock(const Host &host, const Job &job, Findings &out) {
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  const std::string current = host.files.line(folder + "current_clocksource"),
                    available = host.files.line(folder + "available_clocksource");
  // Read without a system call on x86 and Arm.
  const bool fast = current == "tsc" || current == "arch_sys_counter" || current == "kvm-clock" ||
                    current == "hyperv_clocksource_tsc_page" || current == "timebase" || current == "tod";
  if (!current.empty() && !fast)
    out.add(Level::warning, "clock.source", fmt::format("clock source: {} (there is: {})", current, available),
            "each look at the clock is a system call or a slow register, 1 us instead of 20 ns: waiting loops and time stamps "
            "pay it",
            available.find("tsc") != available.npos
                ? "echo tsc > " + folder +
                      "current_clocksource; the kernel's log says why it was given up (dmesg | grep -i tsc)"
                : "the kernel's log says why tsc is not used (dmesg | grep -i tsc)");
  else if (!current.empty())
    out.ok("clock.source", "clock source: " + current);
  if (host.clock_synchronised == false)
    out.add(job.hosts > 1 ? Level::warning : Level::note, "clock.synchronised", "the clock is not synchronised (adjtimex)",
            "time stamps of logs and records of several hosts cannot be put in order", "timedatectl set-ntp true, or chrony");
  else if (host.clock_synchronised)
    out.ok("clock.synchronised", "the clock is synchronised");
}

void check_kernel(const Host &host, const Job &, Findings &out) {
  const std::string release = host.files.line("/proc/sys/kernel/osrelease");
  int major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2 && (major < 4 || (major == 4 && minor < 18)))
    out.add(Level::warning, "kernel.version", "kernel " + release,
            "the library is tried on 4.18 and later; memfd seals and socket options may lack", "a newer kernel");
  else if (!release.empty())
    out.ok("kernel.version", "kernel " + release);
}

void check_calls(const Host &host, const Job &, Findings &out) {
  struct Use {
    const char *call, *why;
    Level level;
  };
  static constexpr Use kUses[] = {
      {"memfd_create", "ranks of one host share memory through it; without it they go over the network", Level::error},
      {"epoll_create1", "the control plane waits with it", Level::error},
      {"signalfd", "tutti run watches signals with it", Level::warning},
      {"unix_socket", "ranks of one host pass descriptors over unix-domain sockets", Level::error},
      {"tcp_socket", "the control plane and net-socket", Level::error},
      {"sched_getaffinity", "how many cores there are decides how ranks wait", Level::warning},
      {"mbind", "memory is placed near the rank that polls it", Level::note},
  };
  const std::string seccomp = host.files.value("/proc/self/status", "Seccomp");
  const std::string filter = seccomp == "2" ? "; a seccomp filter is on" : "";
  std::vector<std::string> fine;
  for (const Use &use : kUses) {
    const auto it = host.calls.find(use.call);
    if (it == host.calls.end()) continue;
    if (it->second == 0)
      fine.emplace_back(use.call);
    else
      out.add(use.level, fmt::format("calls.{}", use.call),
              fmt::format("{}: {}{}", use.call, std::strerror(it->second), filter), use.why,
              "containers: --security-opt seccomp=unconfined, or a profile that allows it");
  }
  if (!fine.empty()) out.ok("calls.all", fmt::format("system calls that work: {}{}", fmt::join(fine, ", "), filter));
}

namespace {

uint32_t word_at(const std::string &config, size_t at, size_t bytes) {
  uint32_t out = 0;
  for (size_t i = 0; i < bytes && at + i < config.size(); i++)
    out |= uint32_t{static_cast<unsigned char>(config[at + i])} << (8 * i);
  return out;
}

// Access control services of a PCIe bridge: what is on sends a peer's packets up to the root instead of across. 0 also where
// the configuration space cannot be read beyond its first bytes, as by ordinary users.
uint32_t acs_control(const std::string &config) {
  constexpr uint32_t kAcs = 0x000d;
  for (size_t at = 0x100, steps = 0; at >= 0x100 && at + 8 <= config.size() && steps < 64; steps++) {
    const uint32_t head = word_at(config, at, 4);
    if ((head & 0xffff) == kAcs) return word_at(config, at + 6, 2);
    at = head >> 20;
  }
  return 0;
}

// The sum of "NAME N" lines and of the line "TOTAL_ERR_X N", which repeats them.
int64_t total_of(const Tree &files, const std::string &path) {
  for (const std::string &line : files.lines(path))
    if (line.starts_with("TOTAL_ERR")) {
      const auto w = words(line);
      return w.size() == 2 ? to_number(w[1]).value_or(0) : 0;
    }
  return 0;
}

bool devices_that_peer(const Host &host) { // a NIC or GPU that others on the bus would talk to
  return has_rdma(host) || host.files.exists("/proc/driver/nvidia/version");
}

void check_acs(const Host &host, Findings &out) {
  constexpr uint32_t kRedirects = 0x000c | 0x0001; // P2P request and completion redirect, source validation
  std::vector<std::string> on;
  bool readable = false;
  for (const std::string &name : host.files.list("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + name;
    if (!host.files.line(folder + "/class").starts_with("0x0604")) continue;
    const std::string config = host.files.all(folder + "/config", 4096);
    readable = readable || config.size() > 256;
    if (acs_control(config) & kRedirects) on.push_back(name);
  }
  if (on.empty())
    return out.ok("pci.acs", readable ? "PCIe access control (ACS): off on all bridges"
                                      : "PCIe access control (ACS): not readable, or no bridges");
  const size_t shown = std::min<size_t>(on.size(), 4);
  out.add(devices_that_peer(host) ? Level::warning : Level::note, "pci.acs",
          fmt::format("PCIe access control (ACS) is on at {} bridge{}: {}{}", on.size(), on.size() == 1 ? "" : "s",
                      fmt::join(on.begin(), on.begin() + static_cast<long>(shown), ", "), on.size() > shown ? ", ..." : ""),
          "packets between a GPU and a NIC, or two GPUs, go up to the processor and back: GPU-direct is slow, hangs or fails",
          fmt::format("setpci -s {} ECAP_ACS+6.w=0000 for each; for good in the BIOS; inside a virtual machine use ATS instead",
                      on.front()));
}

void check_iommu(const Host &host, Findings &out) {
  const auto units = host.files.list("/sys/class/iommu");
  const std::string line = host.files.line("/proc/cmdline");
  const bool through = line.find("iommu=pt") != line.npos || line.find("iommu.passthrough=1") != line.npos;
  std::string type;
  for (const std::string &group : host.files.list("/sys/kernel/iommu_groups"))
    if (type.empty()) type = host.files.line("/sys/kernel/iommu_groups/" + group + "/type");
  if (units.empty()) return out.ok("pci.iommu", "IOMMU: none in use");
  const std::string seen =
      fmt::format("IOMMU: {}{}{}", units.front(), type.empty() ? "" : ", domain type " + type, through ? ", iommu=pt" : "");
  if (through || type == "identity" || !devices_that_peer(host)) return out.ok("pci.iommu", seen);
  out.add(Level::warning, "pci.iommu", seen,
          "every transfer of a device is translated: bandwidth of NICs drops, and GPU-direct may fail",
          "iommu=pt on the kernel's command line (intel_iommu=on iommu=pt), or the IOMMU off in the BIOS");
}

void check_errors(const Host &host, Findings &out) {
  int64_t corrected = 0, uncorrected = 0, bad_memory = 0, corrected_memory = 0;
  std::string device;
  for (const std::string &name : host.files.list("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + name;
    corrected += total_of(host.files, folder + "/aer_dev_correctable");
    const int64_t bad = total_of(host.files, folder + "/aer_dev_fatal") + total_of(host.files, folder + "/aer_dev_nonfatal");
    if (bad > 0) device = name;
    uncorrected += bad;
  }
  for (const std::string &mc : host.files.list("/sys/devices/system/edac/mc")) {
    bad_memory += host.files.number("/sys/devices/system/edac/mc/" + mc + "/ue_count").value_or(0);
    corrected_memory += host.files.number("/sys/devices/system/edac/mc/" + mc + "/ce_count").value_or(0);
  }
  const std::string up =
      fmt::format("in {} hours since start",
                  host.files.number("/proc/uptime")
                          .value_or(static_cast<int64_t>(std::strtod(host.files.line("/proc/uptime").c_str(), nullptr))) /
                      3600);
  if (uncorrected > 0)
    out.add(Level::warning, "pci.errors", fmt::format("{} uncorrected PCIe errors {} (last of {})", uncorrected, up, device),
            "transfers of that device were lost",
            fmt::format("lspci -vvv -s {}; reseat the card, look at the kernel's log (dmesg | grep AER)", device));
  else if (corrected > 1000)
    out.add(Level::note, "pci.corrected", fmt::format("{} corrected PCIe errors {}", corrected, up),
            "each one is sent again: bandwidth to NIC or GPU is lower and varies", "dmesg | grep AER names the device");
  else
    out.ok("pci.errors", fmt::format("PCIe: no uncorrected errors {}", up));
  if (bad_memory > 0)
    out.add(Level::error, "memory.ecc", fmt::format("{} uncorrected memory errors {} (EDAC)", bad_memory, up),
            "data of ranks may be wrong, or they are killed", "take the host out of service");
  else if (corrected_memory > 100)
    out.add(Level::note, "memory.ecc", fmt::format("{} corrected memory errors {} (EDAC)", corrected_memory, up),
            "a module that fails announces itself so; each correction stalls the processor", "edac-util -v names the module");
}

} // namespace

void check_pci(const Host &host, const Job &, Findings &out) {
  check_iommu(host, out);
  check_acs(host, out);
  check_errors(host, out);
}

Findings check_host(const Host &host, const Job &job) {
  Findings out;
  for (const auto check : {check_interfaces, check_routes, check_names, check_firewall, check_tcp, check_limits, check_shm,
                           check_pages, check_single_copy, check_calls, check_cpus, check_container, check_numa, check_clock,
                           check_kernel, check_pci, check_rdma, check_gpus})
    check(host, job, out);
  return out;
}

} // namespace tutti::doctor
