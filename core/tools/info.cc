// `tutti info`: what this installation is, what it found, and where every setting comes from.
#include "bootstrap/launch.h"
#include "bootstrap/tls.h"
#include "comm/startup.h"
#include "config/secret.h"
#include "exec/kernels.h"
#include "plugin/guard.h"
#include "plugin/registry.h"
#include "tools/cli.h"
#include "tools/doctor/host.h"
#include "tools/help.h"
#include "tools/info_channels.h"
#include "tools/job.h"
#include "topology/detect.h"
#include "transport/net_counters.h"
#include "tutti/tutti.h"
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace tutti::tools {
namespace {

using doctor::amount;

void print_host() {
  const doctor::Tree tree;
  utsname name{};
  uname(&name);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const int usable = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : -1;
  struct sysinfo memory {};
  sysinfo(&memory);
  fmt::print("host\n  name        {}\n  system      {} {} {}\n", name.nodename, name.sysname, name.release, name.machine);
  fmt::print("  processor   {}, {} cores usable of {}\n", cpu_model(), usable, sysconf(_SC_NPROCESSORS_ONLN));
  const std::string l3 = tree.line("/sys/devices/system/cpu/cpu0/cache/index3/size");
  const std::string nodes = tree.line("/sys/devices/system/node/online");
  fmt::print("  caches      L3 {}; NUMA nodes {}\n", l3.empty() ? "unknown" : l3, nodes.empty() ? "unknown" : nodes);
  fmt::print("  memory      {}, {} free", amount(static_cast<double>(memory.totalram) * memory.mem_unit),
             amount(static_cast<double>(memory.freeram) * memory.mem_unit));
  if (const auto limit = doctor::memory_limit(tree))
    fmt::print(", container limit {}", amount(static_cast<double>(limit->bytes)));
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  fmt::print("; pages of {}\n", amount(static_cast<double>(sysconf(_SC_PAGESIZE))));
  fmt::print("  descriptors {} (ulimit -n)\n", files.rlim_cur);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0)
    fmt::print("  /dev/shm    {}, {} free (not needed: memory is shared through file descriptors)\n",
               amount(static_cast<double>(shm.f_blocks) * static_cast<double>(shm.f_frsize)),
               amount(static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_frsize)));
  else
    fmt::print("  /dev/shm    absent (not needed: memory is shared through file descriptors)\n");
}

void print_setting(std::string_view key, const Setting &s, bool is_default) {
  fmt::print("  {:<28} {:<20} {}\n", key, s.text.empty() ? "\"\"" : without_password(s.text),
             is_default ? "default" : s.origin);
}

// Text in lines of at most `width`, each but the first behind `indent` blanks.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::string out;
  while (indent + text.size() > width) {
    const size_t at = text.rfind(' ', width - indent);
    if (at == text.npos || at == 0) break;
    out += fmt::format("{}\n{:{}}", text.substr(0, at), "", indent);
    text.remove_prefix(at + 1);
  }
  return out.append(text);
}

// [plugin.NAME]: the options of a plugin, or those that were set.
void print_options(const Plugin &p, bool all) {
  constexpr size_t kHelpAt = 60, kWidth = 128;
  for (const tutti_option *o = p.desc->options; o && o->key; o++) {
    const auto at = p.settings.find(o->key);
    if (at == p.settings.end() || (!all && at->second.origin == "default")) continue;
    const std::string line =
        fmt::format("      {:<18} {:<10} {}", o->key, at->second.text.empty() ? "\"\"" : at->second.text, at->second.origin);
    const bool fits = line.size() < kHelpAt;
    fmt::print("{}{:{}}{}\n", line, fits ? "" : "\n", fits ? kHelpAt - line.size() : kHelpAt + 1,
               wrapped(o->help, kHelpAt, kWidth));
  }
}

std::string interfaces_of(const Plugin &p) {
  std::string out;
  for (const char *const *i = p.desc->ifaces; i && *i; i++) out += fmt::format("{}{}", out.empty() ? "" : " ", *i);
  return out;
}

void print_plugins(const Registry &registry, bool all_options) {
  fmt::print("plugins loaded\n");
  for (const auto &p : registry.plugins()) {
    const tutti_plugin_desc &d = *p->desc;
    fmt::print("  {:<14} {:<8} {:<16} ABI {}.{}  {}\n", d.name, d.version, interfaces_of(*p), d.abi_major, d.abi_minor,
               d.summary);
    fmt::print("      from {}  ({}, {})\n", p->path.empty() ? "this program" : p->path, d.vendor, d.license);
    print_options(*p, all_options);
  }
  if (registry.plugins().empty()) fmt::print("  none\n");
  fmt::print("plugin directories\n");
  for (const auto &dir : registry.directories())
    fmt::print("  {}{}\n", dir, access(dir.c_str(), F_OK) == 0 ? "" : "  (absent)");
  if (registry.skipped().empty()) return;
  fmt::print("files not loaded\n");
  for (const auto &s : registry.skipped()) fmt::print("  {}: {}\n", s.path, s.reason);
}

nlohmann::json plugins_json(const Registry &registry) {
  nlohmann::json loaded = nlohmann::json::array(), skipped = nlohmann::json::array();
  for (const auto &p : registry.plugins()) {
    const tutti_plugin_desc &d = *p->desc;
    nlohmann::json options = nlohmann::json::object(), ifaces = nlohmann::json::array();
    for (const auto &[key, s] : p->settings) options[key] = {{"value", s.text}, {"origin", s.origin}};
    for (const char *const *i = d.ifaces; i && *i; i++) ifaces.push_back(*i);
    loaded.push_back({{"name", d.name},
                      {"version", d.version},
                      {"abi", fmt::format("{}.{}", d.abi_major, d.abi_minor)},
                      {"interfaces", ifaces},
                      {"path", p->path},
                      {"vendor", d.vendor},
                      {"license", d.license},
                      {"summary", d.summary},
                      {"options", options}});
  }
  for (const auto &s : registry.skipped()) skipped.push_back({{"path", s.path}, {"reason", s.reason}});
  return {{"loaded", loaded}, {"directories", registry.directories()}, {"skipped", skipped}};
}

nlohmann::json config_json(const Config &config) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto &[option, setting] : config.all())
    out[option->key] = {
        {"value", without_password(setting->text)}, {"origin", setting->origin}, {"default", option->default_value}};
  for (const auto &s : config.communicator_settings()) {
    auto &own = out["communicator." + s.name + "." + s.key];
    const std::string before = own.is_null() ? "" : own["value"].get<std::string>() + "; "; // several classes
    own = {{"value", before + s.setting.text}, {"origin", s.setting.origin}};
  }
  return out;
}

std::string device_text(const tutti_net_dev &d) {
  std::string out = d.speed_mbps ? fmt::format("{} Mbit/s", d.speed_mbps) : "speed unknown";
  out += d.numa_node >= 0 ? fmt::format(", NUMA node {}", d.numa_node) : ", NUMA node unknown";
  if (d.flags & TUTTI_NET_LOOPBACK) out += ", this host only";
  if (d.flags & TUTTI_NET_ENCRYPTS) out += ", encrypts";
  if (d.rail >= 0) out += fmt::format(", rail {}", d.rail);
  if (d.pci[0]) out += fmt::format(", {}", d.pci);
  return out;
}

// What counts trouble and is not 0 is told with what it means; the rest in one paragraph.
void print_counters(const std::vector<NetCounter> &counters) {
  std::string quiet;
  for (const NetCounter &c : counters) {
    if (c.value && !c.hint.empty())
      fmt::print("    {} {}: {}\n", c.name, c.value, c.hint);
    else
      quiet += fmt::format("{}{} {}", quiet.empty() ? "" : ", ", c.name, c.value);
  }
  if (!quiet.empty()) fmt::print("    {}\n", quiet);
}

void print_devices(const Registry &registry) {
  fmt::print("network devices\n");
  int shown = 0;
  for (const auto &net : registry.all<tutti_net_v1>(TUTTI_NET)) {
    uint32_t count = 0;
    if (const tutti_status s = guarded(net.plugin, "device_count", net.table->device_count, net.plugin->state, &count); s < 0) {
      fmt::print("  {}: {}\n", net.table->name, plugin_error(*net.plugin, s, "listing devices").error().line());
      continue;
    }
    for (uint32_t i = 0; i < count; i++, shown++) {
      tutti_net_dev dev{};
      dev.struct_size = sizeof dev;
      const tutti_status s = guarded(net.plugin, "device_info", net.table->device_info, net.plugin->state, i, &dev);
      if (s < 0)
        fmt::print("  {} {}: {}\n", net.table->name, i, plugin_error(*net.plugin, s, "describing a device").error().line());
      else
        fmt::print("  {:<8} {:<12} {}\n", net.table->name, dev.name, device_text(dev));
      print_counters(read_counters(net.plugin, i));
    }
  }
  if (shown == 0) fmt::print("  none\n");
}

// Ways into networks that reduce, where a plugin for one is loaded.
void print_collnets(const Registry &registry, const Config &config) {
  const auto all = registry.all<tutti_collnet_v1>(TUTTI_COLLNET);
  if (all.empty()) return;
  const Setting &s = config.setting("coll.collnet");
  fmt::print("in-network reduction (coll.collnet {}, {})\n", s.text, s.origin);
  for (const auto &c : all) {
    uint32_t count = 0;
    const tutti_status listed = guarded(c.plugin, "device_count", c.table->device_count, c.plugin->state, &count);
    if (listed < 0 || count == 0)
      fmt::print("  {}: {}\n", c.table->name,
                 plugin_error(*c.plugin, listed < 0 ? listed : tutti_status{TUTTI_ERR_UNSUPPORTED}, "listing devices")
                     .error()
                     .message);
    for (uint32_t i = 0; i < count; i++) {
      tutti_collnet_dev dev{};
      dev.struct_size = sizeof dev;
      const tutti_status described = guarded(c.plugin, "device_info", c.table->device_info, c.plugin->state, i, &dev);
      if (described < 0)
        fmt::print("  {} {}: {}\n", c.table->name, i, plugin_error(*c.plugin, described, "describing a device").error().line());
      else
        fmt::print("  {:<8} {}  {}\n", c.table->name, dev.name,
                   dev.speed_mbps ? fmt::format("{} Mbit/s", dev.speed_mbps) : "speed unknown");
    }
  }
}

// Where ranks could meet: what URLs of core.rendezvous may begin with.
void print_stores(const Registry &registry) {
  const auto all = registry.all<tutti_store_v1>(TUTTI_STORE);
  if (all.empty()) return;
  fmt::print("stores that ranks can meet through (core.rendezvous)\n");
  for (const auto &s : all) {
    std::string schemes;
    for (const char *const *i = s.table->schemes; *i; i++) schemes += fmt::format("{}{}://", schemes.empty() ? "" : ", ", *i);
    fmt::print("  {:<8} {}\n", s.table->name, schemes);
  }
}

int print_config(const Config &config, bool all) {
  int shown = 0;
  for (const auto &[option, setting] : config.all()) {
    if (!all && config.is_default(option->key)) continue;
    if (option->key == "coll.class" && !config.classes().empty()) {
      for (const OpClass *c : config.classes()) fmt::print("  {:<28} {}  {}\n", option->key, c->text(), c->origin);
    } else
      print_setting(option->key, *setting, config.is_default(option->key));
    shown++;
  }
  for (const auto &s : config.communicator_settings()) {
    print_setting("communicator." + s.name + "." + s.key, s.setting, false);
    shown++;
  }
  return shown;
}

// Who started this process as a rank of a job, read from where, and where its ranks would meet.
void print_launcher(const Config &config) {
  fmt::print("launcher\n");
  const auto found = recognise_launcher(config);
  if (!found.ok()) return fmt::print("  {}\n", found.status().error().line());
  if (!*found)
    return fmt::print("  none: tutti run, mpirun, mpiexec, srun, torchrun or TUTTI_RANK would make this a rank of a job\n");
  const Launcher &l = **found;
  const auto number = [](int n, int unknown) { return n == unknown ? std::string("?") : fmt::format("{}", n); };
  fmt::print("  {:<11} rank {} of {}, on this host {} of {} ({})\n", l.name, number(l.rank, -1), number(l.nranks, 0),
             number(l.local_rank, -1), number(l.local_size, -1), l.variables);
  fmt::print("  meeting     {}\n", l.nranks == 1                          ? "alone"
                                   : l.meeting == Launcher::Meeting::none ? "not known: " + l.missing
                                                                          : l.where);
}

std::string encryption(const Config &config) {
  const Setting &s = config.setting("core.security");
  if (!boot::can_encrypt()) return "not in this build (TUTTI_WITH_TLS=OFF)";
  return fmt::format("TLS 1.3 between hosts: {} (core.security {}, {})", s.text == "encrypted" ? "on" : "off", s.text,
                     s.origin);
}

int print_all(const Config &config) {
  int library = 0;
  tuttiGetVersion(&library);
  fmt::print("tutti\n  version     {}.{}.{}, plugin ABI {}.{}\n  kernels     {}\n  encryption  {}\n  program     {}\n",
             library / 10000, library / 100 % 100, library % 100, TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, simd_target(),
             encryption(config), own_path());
  print_host();
  print_launcher(config);
  fmt::print("settings that are not the default (tutti info config shows all)\n");
  if (print_config(config, false) == 0) fmt::print("  none\n");
  const auto started = process(); // as a communicator would: it provides what plugins ask of the core
  if (!started.ok()) {
    std::fflush(stdout);
    print_error(started.status().error().line());
    return kFailed;
  }
  print_plugins(*started.value().registry, false);
  print_devices(*started.value().registry);
  print_collnets(*started.value().registry, config);
  print_stores(*started.value().registry);
  if (const Status s = print_channels(config, *started.value().registry, {}); !s.ok()) {
    std::fflush(stdout);
    print_error(s.error().line());
    return kFailed;
  }
  fmt::print("more\n  tutti info config, plugins: every setting and every plugin's options; --json for programs\n"
             "  tutti info channels --ranks N --hosts H: of another job\n"
             "  tutti doctor: what is wrong with this host, or between hosts, and what mends it\n"
             "  by symptom: docs/troubleshooting.md; all settings explained: docs/configuration.md\n");
  return kOk;
}

} // namespace

int info_main(int argc, char **argv) {
  CLI::App app{
      "Shows version, host, plugins loaded (path, version, interfaces, options), files not loaded with the reason, network\n"
      "devices, and settings with their origin",
      "tutti info"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.formatter(std::make_shared<HelpText>());
  std::string topic;
  app.add_option("topic", topic,
                 "only this: config (every setting with its value and origin), plugins, devices, channels or host")
      ->check(CLI::IsMember({"config", "plugins", "devices", "channels", "host"}));
  bool json = false;
  app.add_flag("--json", json, "config, plugins and channels: as JSON");
  ChannelJob job;
  app.add_option("--ranks", job.ranks, "channels: of a job of so many ranks, in blocks (0 = one for each core)")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  app.add_option("--hosts", job.hosts, "channels: on so many hosts like this one")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
  }
  job.json = json;
  if (json && topic != "config" && topic != "plugins" && topic != "channels") {
    print_error("--json is for tutti info config, tutti info plugins and tutti info channels");
    return kUsage;
  }
  if (topic != "channels" && (job.ranks != 0 || job.hosts != 1)) {
    print_error("--ranks and --hosts are for tutti info channels");
    return kUsage;
  }
  if (topic == "host") return print_host(), kOk;
  const auto config = Config::process();
  if (!config.ok()) {
    print_error(config.status().error().line());
    return kFailed;
  }
  if (topic.empty()) return print_all(**config);
  if (topic == "config") {
    if (json)
      fmt::print("{}\n", config_json(**config).dump(2));
    else
      print_config(**config, true);
    return kOk;
  }
  const auto started = process(); // as a communicator would: it provides what plugins ask of the core
  if (!started.ok()) {
    print_error(started.status().error().line());
    return kFailed;
  }
  if (topic == "channels") {
    const Status s = print_channels(**config, *started.value().registry, job);
    if (!s.ok()) print_error(s.error().line());
    return s.ok() ? kOk : kFailed;
  }
  if (topic == "plugins" && json)
    fmt::print("{}\n", plugins_json(*started.value().registry).dump(2));
  else if (topic == "plugins")
    print_plugins(*started.value().registry, true);
  else
    print_devices(*started.value().registry), print_collnets(*started.value().registry, **config);
  return kOk;
}

} // namespace tutti::tools
