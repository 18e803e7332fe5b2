#include "comm/startup.h"
#include "base/fork.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/tls.h"
#include "exec/kernels.h"
#include "log/log.h"
#include "plan/check.h"
#include "plugin/guard.h"
#include "transport/net_port.h"
#include "tutti/plugin/algo.h"
#include "tutti/plugin/proto.h"
#include "tutti/tutti.h"
#include <algorithm>
#include <mutex>
#include <optional>

namespace tutti {
namespace {

using log::Subsys;

Result<Process> start() {
  TUTTI_ASSIGN(config, Config::process());
  provide_services();
  TUTTI_ASSIGN(registry, Registry::process());
  Process p{config, registry};
  log::info(Subsys::init, "tutti {}.{}.{}, plugin ABI {}.{}, kernels {}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH,
            TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, simd_target());
  return p;
}

// More is better.
struct NetRank {
  uint32_t devices = 0, speed = 0;
  std::string against; // why none of its devices serves
};

// What core.security forbids counts as not there.
Result<NetRank> look_at(const Iface<tutti_net_v1> &net, const Config &config) {
  const Setting &security = config.setting("core.security");
  const auto turn = plugin_setup(net.plugin);
  NetRank out;
  if (const auto s = guarded(net.plugin, "device_count", net.table->device_count, net.plugin->state, &out.devices); s < 0)
    return plugin_error(*net.plugin, s, "counting devices");
  for (uint32_t d = 0; d < out.devices; d++) {
    tutti_net_dev dev{};
    dev.struct_size = sizeof dev;
    if (const auto s = guarded(net.plugin, "device_info", net.table->device_info, net.plugin->state, d, &dev); s < 0)
      return plugin_error(*net.plugin, s, fmt::format("describing device {}", d));
    out.speed = std::max(out.speed, dev.speed_mbps);
    if (security.text == "encrypted" && !encrypts(dev))
      out.against = fmt::format("{} does not encrypt, and core.security is \"encrypted\" ({})", dev.name, security.origin);
  }
  if (!out.against.empty()) out.devices = 0;
  return out;
}

Result<Iface<tutti_net_v1>> required_net(const Registry &registry, const Config &config, std::string_view name,
                                         std::string_view origin) {
  auto net = registry.named<tutti_net_v1>(TUTTI_NET, name);
  if (!net.ok()) {
    net.status().error().message = fmt::format("{}: {}", origin, net.status().error().message);
    return net;
  }
  auto look = look_at(*net, config);
  if (!look.ok()) return std::move(look.status());
  if (!look->against.empty())
    return fail(Code::invalid_usage, "{}: network \"{}\" cannot be used: {}", origin, name, look->against)
        .hint("name one that encrypts (tutti info), or set core.security to \"authenticated\" (TUTTI_SECURITY)");
  if (look->devices == 0) {
    const Status why = plugin_error(*net->plugin, TUTTI_ERR_UNSUPPORTED, "looking for devices");
    return fail(Code::invalid_usage, "{}: network \"{}\" has no usable device: {}", origin, name, why.error().message);
  }
  return net;
}

} // namespace

void provide_services() {
  provide_host_service(TUTTI_HOST_REDUCE, host_reduce_service());
  provide_host_service(TUTTI_HOST_PLAN, host_plan_service());
  provide_host_service(TUTTI_HOST_WATCH, host_watch_service());
  provide_host_service(TUTTI_HOST_TLS, host_tls_service());
}

Result<Process> process() {
  static auto &mutex = *new ChildFreeMutex; // guards outcome
  static std::optional<Result<Process>> outcome;
  std::lock_guard lock(mutex);
  if (!outcome) outcome.emplace(start());
  return *outcome;
}

Result<Iface<tutti_net_v1>> choose_net(const Config &config, const Registry &registry, std::string *why) {
  if (const Setting &name = config.setting("net.name"); !name.text.empty()) {
    *why = fmt::format("named by {}", name.origin);
    return required_net(registry, config, name.text, name.origin);
  }
  const auto nets = registry.all<tutti_net_v1>(TUTTI_NET);
  const auto &listed = config.list("plugins.net");
  for (const std::string &name : listed) { // paths name files that are loaded under the plugin's own name
    if (name == "none" || name.find('/') != std::string::npos) continue;
    auto net = registry.named<tutti_net_v1>(TUTTI_NET, name);
    if (!net.ok()) continue;
    if (auto look = look_at(*net, config); look.ok() && look->devices > 0) {
      *why = fmt::format("first of plugins.net ({})", config.setting("plugins.net").origin);
      return net;
    }
  }
  Iface<tutti_net_v1> best;
  uint32_t best_speed = 0;
  std::vector<std::pair<Iface<tutti_net_v1>, std::string>> seen; // and what is against it
  for (const auto &net : nets) {
    auto look = look_at(net, config);
    const bool usable = look.ok() && look->devices > 0;
    seen.emplace_back(net, usable                   ? fmt::format("{} Mbit/s", look->speed)
                           : !look.ok()             ? look.status().error().message
                           : !look->against.empty() ? look->against
                                                    : std::string("no device"));
    if (usable && (!best || look->speed > best_speed)) {
      best = net;
      best_speed = look->speed;
    }
  }
  *why = best ? fmt::format("the fastest with a device, {} Mbit/s", best_speed) : std::string("no network plugin is loaded");
  if (!best && !seen.empty()) why->clear();
  for (const auto &[net, against] : seen)
    if (net.table != best.table)
      *why += fmt::format("{}{}: {}", why->empty() ? "" : "; not chosen: ", net.table->name, against);
  return best;
}

Result<Iface<tutti_tuner_v1>> choose_tuner(const Config &config, const Registry &registry, std::string *why) {
  const auto all = registry.all<tutti_tuner_v1>(TUTTI_TUNER);
  const auto chosen = [&](Iface<tutti_tuner_v1> tuner, std::string reason) {
    *why = std::move(reason);
    for (const auto &t : all)
      if (t.table != tuner.table) *why += fmt::format("; not chosen: {}", t.table->name);
    return tuner;
  };
  if (const Setting &name = config.setting("plugins.tuner"); !name.text.empty()) {
    const std::string &text = name.text;
    const std::string reason = "named by " + name.origin;
    if (text.find('/') == std::string::npos) {
      TUTTI_ASSIGN(tuner, registry.named<tutti_tuner_v1>(TUTTI_TUNER, text));
      return chosen(tuner, reason);
    }
    for (const auto &t : all)
      if (t.plugin->path == text) return chosen(t, reason);
    return fail(Code::invalid_usage, "{}: \"{}\" offers no tuner", name.origin, text);
  }
  if (auto table = registry.named<tutti_tuner_v1>(TUTTI_TUNER, "table"); table.ok()) return chosen(*table, "the default");
  if (all.empty()) return chosen({}, "none is loaded: the core's own order holds");
  return chosen(all.front(), "the first loaded");
}

} // namespace tutti
