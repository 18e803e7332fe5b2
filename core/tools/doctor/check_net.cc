// Interfaces, routes and names: by which address others would reach this host.
#include "tools/doctor/host.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace tutti::doctor {
namespace {

int family_of(const Host &host) {
  const std::string family = host.config ? host.config->text("socket.family") : "auto";
  return family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : 0;
}

std::string rule_of(const Host &host) {
  return host.config ? host.config->text("socket.ifname") : std::string();
}

std::string origin_of(const Host &host) {
  return host.config ? host.config->setting("socket.ifname").origin : std::string();
}

std::optional<int64_t> mtu_of(const Host &host, const std::string &name) {
  return host.files.number("/sys/class/net/" + name + "/mtu");
}

// Every entry of the rule has to name something: one that names nothing is a typing mistake, or another host's interface.
void check_rule(const Host &host, Findings &out) {
  const std::string rule = rule_of(host);
  if (rule.empty() || netif::select(rule, family_of(host), host.interfaces).choices.empty()) return;
  const bool excludes = rule[rule.find_first_not_of(" \t")] == '^';
  std::string rest = excludes ? rule.substr(rule.find('^') + 1) : rule;
  const bool exact = !excludes && rest.starts_with('=');
  std::vector<std::string> idle;
  for (size_t at = 0; at <= rest.size();) {
    const size_t comma = std::min(rest.find(',', at), rest.size());
    const std::string entry = trimmed(rest.substr(at, comma - at));
    at = comma + 1;
    if (entry.empty()) continue;
    const std::string one = exact && !entry.starts_with('=') ? "=" + entry : entry;
    if (netif::select(one, 0, host.interfaces).choices.empty()) idle.push_back(entry);
  }
  if (!idle.empty())
    out.add(Level::note, "network.rule_idle",
            fmt::format("socket.ifname \"{}\" ({}): {} match{} no address of an interface that is up", rule, origin_of(host),
                        fmt::join(idle, ", "), idle.size() == 1 ? "es" : ""),
            "harmless where the rule is one for all hosts; otherwise a typing mistake",
            "tutti info devices lists the interfaces");
}

void check_devices(const Host &host, const netif::Selection &chosen, Findings &out) {
  std::map<int64_t, std::vector<std::string>> by_mtu;
  for (const netif::Interface &i : host.interfaces) {
    if (i.loopback || !i.up) continue;
    const bool used =
        std::any_of(chosen.choices.begin(), chosen.choices.end(), [&](const auto &c) { return c.interface.name == i.name; });
    const std::string folder = "/sys/class/net/" + i.name + "/";
    if (used && !i.running)
      out.add(Level::warning, "network.carrier", fmt::format("{} is up, has an address, and no carrier", i.name),
              "others may try it first, and wait for answers that do not come",
              fmt::format("cable or switch port; or TUTTI_SOCKET_IFNAME=^{}", i.name));
    if (used && host.files.line(folder + "duplex") == "half")
      out.add(Level::warning, "network.duplex", fmt::format("{} runs at half duplex", i.name),
              "sending and receiving at the same time collides, which every ring does",
              fmt::format("ethtool -s {} duplex full autoneg on", i.name));
    const auto mtu = mtu_of(host, i.name);
    if (mtu && used && !i.made) by_mtu[*mtu].push_back(i.name);
    if (mtu && used && *mtu < 1280)
      out.add(Level::warning, "network.mtu_small", fmt::format("{}: MTU {}", i.name, *mtu),
              "packets this small cost throughput, and IPv6 needs 1280", fmt::format("ip link set {} mtu 1500", i.name));
    if (used && i.speed_mbps >= 25'000 && mtu && *mtu <= 1500)
      out.add(Level::note, "network.mtu_fast", fmt::format("{}: {} Mbit/s with MTU {}", i.name, i.speed_mbps, *mtu),
              "at this speed a core is busy with packets; jumbo frames take a sixth of them, where all switches carry them",
              fmt::format("ip link set {} mtu 9000, on all hosts and switches", i.name));
    for (const char *counter : {"rx_errors", "rx_crc_errors", "tx_errors", "tx_carrier_errors"})
      if (const auto n = host.files.number(folder + "statistics/" + counter); used && n.value_or(0) > 0)
        out.add(Level::note, "network.errors", fmt::format("{}: {} {} since it came up", i.name, counter, *n),
                "damaged packets are sent again, which costs milliseconds each",
                fmt::format("watch whether it rises: ip -s link show {}; then cable or transceiver", i.name));
  }
  if (by_mtu.size() > 1) {
    std::string all;
    for (const auto &[mtu, names] : by_mtu)
      all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", fmt::join(names, ", "), mtu);
    out.add(Level::note, "network.mtu_differs", "MTU differs between interfaces in use: " + all,
            "one of them may differ from what its network carries: small messages pass, large ones hang",
            "tutti doctor --hosts ... tests the path");
  }
}

void check_duplicates(const Host &host, Findings &out) {
  std::map<std::string, std::vector<std::string>> by_address, by_mac;
  for (const netif::Interface &i : host.interfaces) {
    for (const auto &a : i.addresses)
      if (!a.link_local()) by_address[netif::to_text(a)].push_back(i.name);
    const std::string mac = host.files.line("/sys/class/net/" + i.name + "/address");
    // Those of a bond, a bridge or a VLAN have their parts' address.
    bool stacked = i.made || i.loopback || host.files.exists("/sys/class/net/" + i.name + "/master");
    for (const std::string &name : host.files.list("/sys/class/net/" + i.name)) stacked = stacked || name.starts_with("lower_");
    if (!stacked && mac.size() == 17 && mac != "00:00:00:00:00:00") by_mac[mac].push_back(i.name);
  }
  for (const auto &[address, names] : by_address)
    if (names.size() > 1)
      out.add(Level::error, "network.duplicate_address", fmt::format("address {} is on {}", address, fmt::join(names, " and ")),
              "answers leave by one of them, whichever the route takes; connections to the other hang",
              fmt::format("ip addr del {} dev {}", address, names.back()));
  for (const auto &[mac, names] : by_mac)
    if (names.size() > 1)
      out.add(Level::warning, "network.duplicate_mac",
              fmt::format("hardware address {} is that of {}", mac, fmt::join(names, " and ")),
              "a switch that sees both sends packets to one of them",
              "machines that were cloned: give each interface its own address");
  std::map<std::string, std::vector<std::string>> networks; // two interfaces in one subnet
  for (const netif::Interface &i : host.interfaces)
    for (const auto &a : i.addresses) {
      if (i.loopback || !i.up || i.made || a.family() != AF_INET || a.prefix >= 31) continue;
      const uint32_t ip = ntohl(reinterpret_cast<const sockaddr_in *>(&a.storage)->sin_addr.s_addr);
      const uint32_t net = a.prefix == 0 ? 0 : ip & ~uint32_t{0} << (32 - a.prefix);
      auto &names = networks[fmt::format("{}.{}.{}.{}/{}", net >> 24, net >> 16 & 255, net >> 8 & 255, net & 255, a.prefix)];
      if (std::find(names.begin(), names.end(), i.name) == names.end()) names.push_back(i.name);
    }
  for (const auto &[net, names] : networks) {
    if (names.size() < 2) continue;
    const auto arp = host.files.number("/proc/sys/net/ipv4/conf/all/arp_ignore"),
               filter = host.files.number("/proc/sys/net/ipv4/conf/all/rp_filter");
    out.add(Level::note, "network.same_subnet",
            fmt::format("{} are in one subnet, {} (arp_ignore {}, rp_filter {})", fmt::join(names, " and "), net,
                        arp.value_or(0), filter.value_or(0)),
            "the kernel sends all of it by one interface and answers ARP for one on the other: their bandwidth does not add "
            "up, and "
            "with rp_filter 1 packets are dropped",
            "a subnet for each interface; or sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 and a "
            "routing rule for each");
  }
}

} // namespace

void check_interfaces(const Host &host, const Job &job, Findings &out) {
  const std::string rule = rule_of(host);
  const auto chosen = netif::select(rule, family_of(host), host.interfaces);
  if (!chosen.error.empty()) {
    out.add(rule.empty() && job.hosts == 1 ? Level::warning : Level::error, rule.empty() ? "network.none" : "network.rule",
            chosen.error, "ranks of other hosts cannot reach this one",
            rule.empty() ? "ip link set ... up, ip addr add ..." : fmt::format("change {}", origin_of(host)));
    return check_duplicates(host, out);
  }
  const netif::Choice &first = chosen.choices.front();
  std::vector<std::string> rest;
  for (size_t i = 1; i < chosen.choices.size(); i++)
    if (!chosen.choices[i].interface.loopback)
      rest.push_back(fmt::format("{} ({})", netif::to_text(chosen.choices[i].address), chosen.choices[i].interface.name));
  const std::string seen =
      fmt::format("others are told {} ({}{}){}", netif::to_text(first.address), first.interface.name,
                  first.interface.speed_mbps > 0 ? fmt::format(", {} Mbit/s", first.interface.speed_mbps) : "",
                  rest.empty() ? "" : fmt::format(", then {}", fmt::join(rest, ", ")));
  if (first.interface.loopback)
    out.add(job.hosts > 1 ? Level::error : Level::note, "network.loopback", seen, "no other host can reach a loopback address",
            rule.empty() ? "ip addr add ... on an interface" : fmt::format("change {}", origin_of(host)));
  else if (first.interface.made && rule.empty())
    out.add(job.hosts > 1 ? Level::warning : Level::note, "network.made", seen,
            "this interface is one of a container or virtual machine, which other hosts do not reach",
            "TUTTI_SOCKET_IFNAME=... names the right one");
  else
    out.ok("network.reach", seen);
  check_rule(host, out);
  check_devices(host, chosen, out);
  check_duplicates(host, out);
}

void check_routes(const Host &host, const Job &job, Findings &out) {
  struct Route {
    std::string interface;
    int64_t metric = 0, mtu = 0;
  };
  std::vector<Route> defaults;
  size_t all = 0;
  for (const std::string &line : host.files.lines("/proc/net/route")) {
    const auto w = words(line);
    if (w.size() < 11 || w[0] == "Iface") continue;
    all++;
    const auto flags = to_number(w[3], 16).value_or(0);
    if (flags & 0x200) // RTF_REJECT
      out.add(Level::note, "network.route_reject", fmt::format("a route refuses packets to {}", w[1]),
              "hosts of that network cannot be reached", "ip route show type unreachable");
    if (w[1] == "00000000" && w[7] == "00000000")
      defaults.push_back({w[0], to_number(w[6]).value_or(0), to_number(w[8]).value_or(0)});
    const auto device = mtu_of(host, w[0]);
    if (const int64_t mtu = to_number(w[8]).value_or(0); mtu > 0 && device && mtu < *device)
      out.add(Level::note, "network.route_mtu", fmt::format("a route by {} has MTU {}, the interface {}", w[0], mtu, *device),
              "packets by this route are smaller than the network carries", "ip route change ... mtu");
  }
  if (all == 0) return;
  if (defaults.empty() && job.hosts > 1)
    out.add(Level::note, "network.no_default", "there is no default route",
            "hosts of other subnets cannot be reached; those of the same can");
  else if (defaults.size() > 1 && defaults[0].metric == defaults[1].metric)
    out.add(Level::note, "network.two_defaults",
            fmt::format("default routes by {} and {} with the same metric", defaults[0].interface, defaults[1].interface),
            "the one that was made first is taken; after a restart it may be the other",
            "a metric for each: ip route replace default ... metric N");
  else
    out.ok("network.routes",
           fmt::format("{} routes of IPv4{}", all, defaults.empty() ? "" : ", default by " + defaults[0].interface));
}

namespace {
bool is_loopback(const std::string &address) {
  return address.starts_with("127.") || address == "::1";
}
} // namespace

void check_names(const Host &host, const Job &job, Findings &out) {
  const Names &n = host.names;
  if (n.own.empty()) return;
  if (n.own == "localhost" || n.own.starts_with("localhost."))
    out.add(job.hosts > 1 ? Level::error : Level::note, "names.localhost", fmt::format("this host's name is \"{}\"", n.own),
            "launchers that hand out host names send every rank to itself", "hostnamectl set-hostname NAME");
  if (!n.forward_error.empty()) {
    out.add(job.hosts > 1 ? Level::warning : Level::note, "names.forward",
            fmt::format("\"{}\" resolves to nothing: {}", n.own, n.forward_error),
            "TUTTI_COMM_ID, MASTER_ADDR and host lists that name this host do not lead to it",
            "an entry in DNS or in /etc/hosts of all hosts");
  } else if (!n.forward.empty()) {
    const bool loopback = std::all_of(n.forward.begin(), n.forward.end(), is_loopback);
    std::string hosts;
    for (const std::string &line : host.files.lines("/etc/hosts"))
      for (const auto &w = words(line); const std::string &name : w)
        if (hosts.empty() && name == n.own && !line.starts_with('#')) hosts = line;
    const std::string seen = fmt::format("\"{}\" resolves to {}{}", n.own, fmt::join(n.forward, ", "),
                                         hosts.empty() ? "" : fmt::format(" (/etc/hosts: {})", fmt::join(words(hosts), " ")));
    bool own = loopback;
    for (const netif::Interface &i : host.interfaces)
      for (const auto &a : i.addresses)
        own = own || std::find(n.forward.begin(), n.forward.end(), netif::to_text(a)) != n.forward.end();
    if (loopback && job.hosts > 1)
      out.add(
          Level::warning, "names.loopback", seen,
          "a root that is named by this host's name listens where no other host comes; Debian's installer writes such a line",
          "in /etc/hosts give the name the address of the network, and 127.0.0.1 to localhost alone");
    else if (!own)
      out.add(Level::error, "names.elsewhere", seen,
              "none of these is an address of this host: who goes by the name reaches another one, or none",
              "correct DNS or /etc/hosts");
    else if (!loopback && !n.reverse.empty() && n.reverse != n.own && !n.reverse.starts_with(n.own + ".") &&
             !n.own.starts_with(n.reverse + "."))
      out.add(Level::note, "names.reverse",
              fmt::format("{} resolves back to \"{}\", not \"{}\"", n.forward.front(), n.reverse, n.own),
              "launchers that compare names take one host for two");
    else
      out.ok("names.own", seen);
  }
  if (n.seconds > 1)
    out.add(Level::warning, "names.slow", fmt::format("looking up \"{}\" took {:.1f} s", n.own, n.seconds),
            "every rank does so at start, and ssh as well",
            "a name server of /etc/resolv.conf does not answer: remove it, or put the hosts into /etc/hosts");
}

} // namespace tutti::doctor
