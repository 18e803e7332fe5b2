#include "tools/doctor/facts.h"
#include "bootstrap/wire.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tutti::doctor {
namespace {

// GIDs of all active ports by kind, without the addresses: "mlx5_0:1 IB/RoCE v1 2, RoCE v2 2".
std::string gid_tables(const Host &host) {
  std::string out;
  const std::string root = "/sys/class/infiniband";
  for (const std::string &device : host.files.list(root))
    for (const std::string &number : host.files.list(root + "/" + device + "/ports")) {
      const std::string port = root + "/" + device + "/ports/" + number;
      std::map<std::string, int> kinds;
      for (const std::string &index : host.files.list(port + "/gids"))
        if (const std::string type = host.files.line(port + "/gid_attrs/types/" + index); !type.empty()) kinds[type]++;
      out += fmt::format("{}{}:{} {}", out.empty() ? "" : "; ", device, number, host.files.line(port + "/state"));
      for (const auto &[kind, n] : kinds) out += fmt::format(", {} {}", kind, n);
    }
  return out.empty() ? "none" : out;
}

std::string processor(const Host &host) {
  for (const std::string &line : host.files.lines("/proc/cpuinfo"))
    if (line.starts_with("model name")) return trimmed(std::string_view(line).substr(line.find(':') + 1));
  return "unknown";
}

} // namespace

std::vector<Fact> facts_of(const Host &host) {
  std::vector<Fact> out;
  const auto add = [&](Level level, std::string name, std::string value, std::string why, std::string fix = {}) {
    if (!value.empty()) out.push_back({std::move(name), std::move(value), level, std::move(why), std::move(fix)});
  };
  const auto file = [&](const char *path) { return host.files.line(path); };
  add(Level::error, "version of tutti", boot::version_text(boot::library_version()),
      "ranks of different versions refuse each other", "install the same version on all hosts");
  if (host.config) { // one line for each setting that all ranks must have alike
    const std::string all = host.config->agreement_text();
    for (size_t at = 0; at < all.size();) {
      const size_t end = std::min(all.find('\n', at), all.size());
      const std::string line = all.substr(at, end - at);
      const size_t eq = line.find('=');
      if (eq != line.npos)
        add(Level::error, "setting " + line.substr(0, eq), "\"" + line.substr(eq + 1) + "\"",
            "ranks that differ in it refuse each other",
            "set it alike on all hosts: tutti info config says from where it comes");
      at = end + 1;
    }
  }
  int cards = 0;
  for (const auto &i : host.interfaces)
    if (!i.loopback && !i.made && i.up && !i.addresses.empty()) {
      add(Level::warning, "MTU of " + i.name, file(("/sys/class/net/" + i.name + "/mtu").c_str()),
          "packets of the host with the larger one are too large for the other: small messages pass, large ones hang",
          fmt::format("ip link set {} mtu ..., alike on all hosts", i.name));
      if (i.speed_mbps > 0)
        add(Level::warning, "speed of " + i.name, fmt::format("{} Mbit/s", i.speed_mbps),
            "the slowest host sets the pace of every ring", "cable and switch port");
      cards++;
    }
  add(Level::warning, "number of network interfaces", fmt::format("{}", cards),
      "rings use as many as the host that has fewest");
  add(Level::warning, "GIDs of RDMA ports", gid_tables(host),
      "the same index names another kind of address, and ports that are down on some hosts are missing in every ring",
      "leave NCCL_IB_GID_INDEX unset, or make the tables alike: addresses of the interfaces, the order in which they were "
      "given");
  add(Level::note, "kernel", file("/proc/sys/kernel/osrelease"), "what works on one may not on the other");
  add(Level::note, "processor", processor(host), "the slowest host sets the pace");
  add(Level::note, "usable cores", fmt::format("{}", host.usable_cpus), "ranks on the host with fewer share cores");
  add(Level::warning, "clock source", file("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
      "looking at the clock is slow on some hosts");
  add(Level::note, "TCP congestion control", file("/proc/sys/net/ipv4/tcp_congestion_control"),
      "it decides how flows share a link: one kind may push the other aside", "sysctl -w net.ipv4.tcp_congestion_control=...");
  for (const char *name : {"core/somaxconn", "ipv4/tcp_rmem", "ipv4/tcp_wmem"})
    add(Level::note, fmt::format("/proc/sys/net/{}", name), file((std::string("/proc/sys/net/") + name).c_str()),
        "one host is set up in another way than the others");
  return out;
}

std::string report_text(const std::string &name, const Host &host, const std::vector<Place> &places, const std::string &problem,
                        const Findings &findings) {
  nlohmann::json facts = nlohmann::json::array(), where = nlohmann::json::array();
  for (const Fact &f : facts_of(host))
    facts.push_back(
        {{"name", f.name}, {"value", f.value}, {"level", static_cast<int>(f.level)}, {"why", f.why}, {"fix", f.fix}});
  for (const Place &p : places) where.push_back(to_json(p));
  return nlohmann::json(
             {{"name", name}, {"facts", facts}, {"places", where}, {"problem", problem}, {"findings", findings_json(findings)}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HostReport report_from(const std::string &text) {
  HostReport out;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return out;
  try {
    out.name = json.at("name").get<std::string>();
    out.problem = json.at("problem").get<std::string>();
    for (const auto &f : json.at("facts")) {
      const int level = std::clamp(f.at("level").get<int>(), 0, 3);
      out.facts.push_back({f.at("name").get<std::string>(), f.at("value").get<std::string>(), static_cast<Level>(level),
                           f.at("why").get<std::string>(), f.at("fix").get<std::string>()});
    }
    for (const auto &p : json.at("places"))
      if (const auto place = place_from(p)) out.places.push_back(*place);
    out.findings = findings_from(json.at("findings"));
    out.present = true;
  } catch (const nlohmann::json::exception &e) { // another version of this program
    out.problem = fmt::format("what it says cannot be read: {}", e.what());
  }
  return out;
}

} // namespace tutti::doctor
