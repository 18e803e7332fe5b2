#include "comm/select/calibrate.h"
#include "base/fork.h"
#include "base/hash.h"
#include "comm/select/determinism.h"
#include "comm/select/measure.h"
#include "log/log.h"
#include "topology/detect.h"
#include "tutti/tutti.h"
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <sys/utsname.h>

namespace tutti {
namespace {

using log::Subsys;

constexpr double kMostLost = 30;                           // ms without a core, joining other threads included
constexpr auto kMostTime = std::chrono::milliseconds(130); // and what a step that has begun then takes

constexpr int kMostTries = 2; // of one process, when the machine is too busy to measure everything

// What the process knows of a machine.
struct Known {
  CostConstants costs;
  bool whole = false;
  int tries = 0;
};

double thread_ms() { // that this thread has had a core
  timespec t{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

std::string variable(const char *name) {
  const char *value = ::secure_getenv(name);
  return value ? value : "";
}

CostConstants measured(const CpuSet &cpus, std::string_view why, bool *whole) {
  const auto start = Clock::now();
  const CostConstants costs = measure_machine(cpus, whole);
  log::info(Subsys::tuning, "cost model: measured this machine in {:.0f} ms ({}){}", us_since(start) * 1e-3, why,
            *whole ? "" : "; it is busy, so that some constants are the built-in ones");
  return costs;
}

} // namespace

std::string machine_name(const CpuSet &cpus) {
  utsname system{};
  (void)uname(&system);
  std::string name = fmt::format("{}, {} cores, {} {}, tutti {}.{}.{}", cpu_model(), cpus.count(), system.sysname,
                                 system.release, TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
  for (char &c : name)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = ' ';
  return name;
}

std::string cache_path(const Config &config, const CpuSet &cpus) {
  std::string directory = config.text("tuner.cache_dir");
  if (directory.empty()) {
    const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
    if (cache.starts_with('/'))
      directory = cache + "/tutti";
    else if (home.starts_with('/'))
      directory = home + "/.cache/tutti";
    else
      return "";
  }
  // Homes are shared by machines: each has a file.
  return fmt::format("{}/machine-{:016x}.toml", directory, fnv1a(machine_name(cpus)));
}

// Steps in an order such that those that were done are of use without the others. Once this thread has waited for a core for
// too long the rest is left alone: it would take as long again, and tell nothing.
CostConstants measure_machine(const CpuSet &cpus, bool *whole) {
  const Deadline deadline = Deadline::in(kMostTime);
  const auto start = Clock::now();
  const double worked = thread_ms();
  const auto lost = [&] { return us_since(start) * 1e-3 - (thread_ms() - worked) > kMostLost; };
  CostConstants costs;
  *whole = true;
  const std::function<bool()> steps[] = {
      [&] { return measure_kernels(&costs, deadline), true; }, [&] { return measure_rings(&costs, cpus, deadline), true; },
      [&] { return measure_system(&costs, deadline), true; },  [&] { return measure_sockets(&costs, cpus, deadline), true; },
      [&] { return measure_memory(&costs, cpus, deadline); },
  };
  try {
    for (const auto &step : steps)
      if (*whole) *whole = step() && !deadline.expired() && !lost();
  } catch (const std::bad_alloc &) { // the rest is built in
    *whole = false;
  }
  return CostConstants::decode(costs.encode()).value_or(CostConstants()); // as other ranks and the file will have them
}

void apply_bandwidths(const Config &config, CostConstants *costs, CostModel::Device *device) {
  if (const auto p2p = config.number("tuner.p2p_bandwidth"); p2p > 0)
    for (const LinkClass c : {LinkClass::local, LinkClass::shm}) costs->link[index_of(c)].byte_ns = 1 / double(p2p);
  if (const auto net = config.number("tuner.net_bandwidth"); net > 0) {
    costs->net_gbs = double(net);
    device->bytes_per_us = double(net) * 1e3;
  }
  *costs = CostConstants::decode(costs->encode()).value_or(*costs); // as other ranks will have them
}

CostConstants machine_costs(const Config &config, const CpuSet &cpus) {
  const std::string &mode = config.text("tuner.calibrate");
  if (mode == "off" || determinism_of(strictest_determinism(config)) != Determinism::off) return {};
  bool whole = true;
  if (mode == "always") return measured(cpus, "tuner.calibrate = always", &whole);
  static auto &mutex = *new ChildFreeMutex;  // guards known; one communicator of the process measures, the others use it
  static std::map<std::string, Known> known; // by machine_name()
  const std::string path = cache_path(config, cpus), machine = machine_name(cpus);
  std::lock_guard lock(mutex);
  Known &here = known[machine];
  if (here.whole || here.tries >= kMostTries) return here.costs;
  std::string why = "for the first time";
  if (!path.empty()) {
    auto cached = read_costs(path, machine);
    if (cached.ok() && *cached) {
      log::debug(Subsys::tuning, "cost model: this machine as in {}", path);
      here = {**cached, true};
      return here.costs;
    }
    if (!cached.ok()) why = fmt::format("{} is remade: {}", path, cached.status().error().message);
  }
  here.costs = measured(cpus, here.tries > 0 ? "once more" : why, &here.whole);
  here.tries++;
  if (!here.whole) return here.costs; // the next communicator may have more luck
  if (path.empty())
    log::info(Subsys::tuning,
              "cost model: kept in memory only: neither tuner.cache_dir nor XDG_CACHE_HOME nor HOME names a directory");
  else if (Status s = write_costs(path, machine, here.costs); !s.ok())
    log::info(Subsys::tuning, "cost model: kept in memory only: {}", s.error().message);
  return here.costs;
}

} // namespace tutti
