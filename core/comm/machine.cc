#include "comm/machine.h"
#include "base/fork.h"
#include "base/hash.h"
#include "log/log.h"
#include "plugin/guard.h"
#include "topology/cluster.h"
#include "topology/detect.h"
#include "topology/net_devices.h"
#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

namespace tutti {
namespace {

using log::Subsys;

using Devices = std::vector<tutti_net_dev>;

Result<Devices> net_devices(const Iface<tutti_net_v1> &net) {
  const auto turn = plugin_setup(net.plugin);
  uint32_t count = 0;
  void *state = net.plugin ? net.plugin->state : nullptr;
  if (const tutti_status s = guarded(net.plugin, "device_count", net.table->device_count, state, &count); s < 0)
    return plugin_error(*net.plugin, s, "listing devices");
  Devices out(count);
  for (uint32_t i = 0; i < count; i++) {
    out[i].struct_size = sizeof out[i];
    if (const tutti_status s = guarded(net.plugin, "device_info", net.table->device_info, state, i, &out[i]); s < 0)
      return plugin_error(*net.plugin, s, fmt::format("describing device {}", i));
  }
  return out;
}

std::vector<std::string> names_of(const Devices &devices) {
  std::vector<std::string> names;
  for (const tutti_net_dev &d : devices) names.emplace_back(d.name, ::strnlen(d.name, sizeof d.name));
  return names;
}

Result<std::shared_ptr<const HostMachine>> describe(const Config &config, bool with_net, const Devices &devices) {
  const auto t0 = Clock::now();
  auto out = std::make_shared<HostMachine>();
  MachineFile file;
  if (const std::string &path = config.text("topology.file"); !path.empty()) {
    TUTTI_ASSIGN(read, MachineFile::read(path));
    file = std::move(read);
  }
  TUTTI_ASSIGN(notes, complete_machine(&file));
  if (with_net) {
    const std::vector<std::string> merged = add_net_devices(&file, devices);
    notes.insert(notes.end(), merged.begin(), merged.end());
  }
  if (const std::string path = expand_path(config, "topology.dump_file"); !path.empty()) TUTTI_TRY(file.write(path));
  TUTTI_ASSIGN(machine, file.machine());
  out->notes = std::move(notes);
  out->notes.insert(out->notes.end(), machine.notes().begin(), machine.notes().end());
  out->encoded = encode_machine(machine);
  out->digest = std::max<uint64_t>(1, fnv1a(out->encoded));
  out->machine = std::move(machine);
  out->took_ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count();
  log::info(Subsys::graph, "this host was described in {:.1f} ms: {} NUMA nodes, {} GPUs, {} network ports", out->took_ms,
            out->machine.of_kind(NodeKind::cpu).size(), out->machine.of_kind(NodeKind::gpu).size(),
            out->machine.of_kind(NodeKind::net).size());
  for (const std::string &note : out->notes) log::info(Subsys::graph, "note: {}", note);
  return std::shared_ptr<const HostMachine>(std::move(out));
}

} // namespace

std::string expand_path(const Config &config, const char *key) {
  const std::string &text = config.text(key);
  return text.empty() ? text : log::expand_file(text);
}

uint32_t numa_nodes() {
  std::ifstream in("/sys/devices/system/node/online"); // "0-1,3"
  std::string text;
  std::getline(in, text);
  uint32_t count = 0;
  for (const char *at = text.data(), *end = at + text.size(); at < end; at++) {
    uint32_t first = 0, last = 0;
    auto r = std::from_chars(at, end, first);
    if (r.ec != std::errc()) break;
    last = first;
    if (r.ptr < end && *r.ptr == '-') r = std::from_chars(r.ptr + 1, end, last);
    count += last - first + 1;
    at = r.ptr;
  }
  return std::max(1u, count);
}

const Result<std::vector<tutti_net_dev>> &NetSurvey::devices() {
  if (!found_) found_ = net_ ? net_devices(net_) : Devices();
  return *found_;
}

Result<std::shared_ptr<const HostMachine>> host_machine(const Config &config, NetSurvey &survey) {
  struct Known {
    ChildFreeMutex turn; // held while the host is described: ranks of a process wait for the first
    std::shared_ptr<const HostMachine> machine;
    std::vector<std::string> devices; // that it has, by number
  };
  struct All {
    std::mutex mutex; // guards `of`, and what is known but not the turns
    std::map<const void *, Known> of;
  };
  static auto *const all = [] {
    auto *made = new All;
    hold_over_fork(made->mutex);
    return made;
  }();
  const auto &devices = survey.devices();
  if (!devices.ok()) return devices.status();
  const std::vector<std::string> names = names_of(*devices);
  Known *known = nullptr;
  {
    std::lock_guard lock(all->mutex);
    known = &all->of[survey.net().table]; // stays where it is
  }
  std::lock_guard turn(known->turn);
  {
    std::lock_guard lock(all->mutex);
    if (known->machine && known->devices == names) return known->machine;
  }
  TUTTI_ASSIGN(machine, describe(config, static_cast<bool>(survey.net()), *devices));
  std::lock_guard lock(all->mutex);
  known->devices = names;
  known->machine = machine;
  return machine;
}

} // namespace tutti
