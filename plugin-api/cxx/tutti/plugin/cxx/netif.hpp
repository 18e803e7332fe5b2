// tutti/plugin/cxx/netif.hpp: which network interfaces and addresses to use. Header only, C++17, no exceptions of its own.
//
// A rule is a list separated by commas:
//   eth         interfaces whose name starts with it         =ens5      the interface of exactly this name
//   10.0.0.0/8  addresses inside the network (also IPv6)     ^docker,lo everything but these (the ^ stands first, for all
//   entries)
// An empty rule, and what an exclusion leaves, is taken in automatic order: running devices of the host, devices without
// carrier, devices that containers and bridges make (docker0, virbr0, veth...), loopback last. Named ones keep the rule's
// order.
#ifndef TUTTI_PLUGIN_CXX_NETIF_HPP
#define TUTTI_PLUGIN_CXX_NETIF_HPP
#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace tutti::netif {

struct Address {
  sockaddr_storage storage{}; // port 0; IPv6 link-local ones carry their scope
  uint32_t prefix = 0;        // bits of the network part
  int family() const { return storage.ss_family; }
  socklen_t length() const { return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }
  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
  sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
  bool link_local() const;
};

struct Interface {
  std::string name;
  uint32_t index = 0;
  bool up = false;      // administratively
  bool running = false; // has a carrier
  bool loopback = false;
  bool made = false;       // made by container or virtual machine software, by its name
  int64_t speed_mbps = -1; // -1 = not known
  std::vector<Address> addresses;
};

// One address to use, with the interface it belongs to (a copy without the address list).
struct Choice {
  Interface interface;
  Address address;
};

struct Selection {
  std::vector<Choice> choices;
  std::string error; // not empty: nothing was chosen, and why; lists what exists
};

inline bool Address::link_local() const {
  if (family() == AF_INET6) return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr);
  return (ntohl(reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr.s_addr) >> 16) == 0xa9fe; // 169.254/16
}

// "10.0.0.1", "fe80::1%eth0"; with port != 0 "10.0.0.1:80", "[fe80::1%eth0]:80".
inline std::string to_text(const Address &a, uint16_t port = 0) {
  char buf[INET6_ADDRSTRLEN] = "";
  if (a.family() == AF_INET6) {
    const auto *s = reinterpret_cast<const sockaddr_in6 *>(&a.storage);
    inet_ntop(AF_INET6, &s->sin6_addr, buf, sizeof buf);
    std::string text = buf;
    if (s->sin6_scope_id != 0) {
      char name[IF_NAMESIZE] = "";
      text += '%';
      text += if_indextoname(s->sin6_scope_id, name) ? std::string(name) : std::to_string(s->sin6_scope_id);
    }
    return port ? "[" + text + "]:" + std::to_string(port) : text;
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(&a.storage)->sin_addr, buf, sizeof buf);
  return port ? std::string(buf) + ":" + std::to_string(port) : std::string(buf);
}

namespace detail {

inline bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

inline bool made_by_software(std::string_view name) {
  for (std::string_view p : {"docker", "virbr", "veth", "br-", "cni", "flannel", "cali", "vnet", "lxc", "lxdbr", "podman",
                             "kube-", "cilium", "tunl", "vxlan", "dummy"})
    if (starts_with(name, p)) return true;
  return false;
}

// Megabits per second from sysfs, else from the driver (also where there is no sysfs); -1 = not known.
inline int64_t speed_of(const std::string &name, int sock) {
  long long mbps = -1;
  if (FILE *f = std::fopen(("/sys/class/net/" + name + "/speed").c_str(), "re")) {
    if (std::fscanf(f, "%lld", &mbps) != 1) mbps = -1;
    std::fclose(f);
  }
  if (mbps > 0 || sock < 0) return mbps > 0 ? mbps : -1;
  ethtool_cmd cmd{};
  cmd.cmd = ETHTOOL_GSET;
  ifreq req{};
  std::strncpy(req.ifr_name, name.c_str(), IFNAMSIZ - 1);
  req.ifr_data = reinterpret_cast<char *>(&cmd);
  if (ioctl(sock, SIOCETHTOOL, &req) != 0) return -1;
  const uint32_t speed = ethtool_cmd_speed(&cmd);
  return speed == 0 || speed == static_cast<uint32_t>(SPEED_UNKNOWN) ? -1 : static_cast<int64_t>(speed);
}

inline const uint8_t *raw(const sockaddr_storage &s, uint32_t *bits) {
  if (s.ss_family == AF_INET6) {
    *bits = 128;
    return reinterpret_cast<const sockaddr_in6 *>(&s)->sin6_addr.s6_addr;
  }
  *bits = 32;
  return reinterpret_cast<const uint8_t *>(&reinterpret_cast<const sockaddr_in *>(&s)->sin_addr);
}

inline uint32_t mask_bits(const sockaddr *mask, int family) {
  if (!mask) return family == AF_INET6 ? 128 : 32;
  sockaddr_storage s{};
  std::memcpy(&s, mask, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  s.ss_family = static_cast<sa_family_t>(family); // masks may come without one
  uint32_t bits = 0, count = 0;
  const uint8_t *p = raw(s, &bits);
  for (uint32_t i = 0; i < bits && (p[i / 8] & (0x80 >> (i % 8))); i++) count++;
  return count;
}

struct Entry {
  std::string text;
  bool exact = false;
  bool cidr = false;
  sockaddr_storage net{};
  uint32_t prefix = 0;
};

inline bool parse_cidr(const std::string &text, Entry *out) {
  const size_t slash = text.find('/');
  const std::string host = text.substr(0, slash);
  auto *v4 = reinterpret_cast<sockaddr_in *>(&out->net);
  auto *v6 = reinterpret_cast<sockaddr_in6 *>(&out->net);
  uint32_t limit = 0;
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    out->net.ss_family = AF_INET;
    limit = 32;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    out->net.ss_family = AF_INET6;
    limit = 128;
  } else {
    return false;
  }
  out->prefix = limit; // a bare address stands for itself
  if (slash != std::string::npos) {
    const std::string digits = text.substr(slash + 1);
    if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos) return false;
    out->prefix = static_cast<uint32_t>(std::atoi(digits.c_str()));
  }
  out->cidr = out->prefix <= limit;
  return out->cidr;
}

inline bool in_network(const Address &a, const Entry &e) {
  if (a.family() != e.net.ss_family) return false;
  uint32_t bits = 0;
  const uint8_t *x = raw(a.storage, &bits), *y = raw(e.net, &bits);
  for (uint32_t i = 0; i < e.prefix; i++)
    if ((x[i / 8] ^ y[i / 8]) & (0x80 >> (i % 8))) return false;
  return true;
}

inline bool matches(const Entry &e, const Interface &i, const Address &a) {
  if (e.cidr) return in_network(a, e);
  return e.exact ? i.name == e.text : starts_with(i.name, e.text);
}

struct Rule {
  bool exclude = false;
  std::vector<Entry> entries;
  std::string error;
};

inline Rule parse(std::string_view rule) {
  Rule out;
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!rule.empty() && blank(rule.front())) rule.remove_prefix(1);
  if (!rule.empty() && rule.front() == '^') {
    out.exclude = true;
    rule.remove_prefix(1);
  }
  bool exact_all = false;
  for (size_t pos = 0; pos <= rule.size();) {
    const size_t comma = std::min(rule.find(',', pos), rule.size());
    std::string_view item = rule.substr(pos, comma - pos);
    pos = comma + 1;
    while (!item.empty() && blank(item.front())) item.remove_prefix(1);
    while (!item.empty() && blank(item.back())) item.remove_suffix(1);
    if (item.empty()) continue;
    Entry e;
    if (item.front() == '^') {
      out.error = "\"" + std::string(item) + "\": the ^ stands once, before the first entry, and excludes all of them";
      return out;
    }
    if (item.front() == '=') {
      exact_all = exact_all || out.entries.empty(); // "=a,b": as in the field's rule, both are exact
      item.remove_prefix(1);
      e.exact = true;
    }
    e.exact = e.exact || exact_all;
    e.text = std::string(item);
    const bool address = e.text.find('/') != std::string::npos || e.text.find(':') != std::string::npos ||
                         e.text.find_first_not_of("0123456789.") == std::string::npos;
    if (address && !parse_cidr(e.text, &e) && e.text.find('/') != std::string::npos) {
      out.error = "\"" + e.text + "\" is no network like 10.0.0.0/8 or fd00::/8";
      return out;
    }
    out.entries.push_back(e);
  }
  return out;
}

// Lower is better in automatic order.
inline int rank_of(const Interface &i) {
  return i.loopback ? 3 : i.made ? 2 : i.running ? 0 : 1;
}

inline std::string describe(const std::vector<Interface> &all) {
  std::string text;
  for (const Interface &i : all) {
    text += text.empty() ? "" : ", ";
    text += i.name;
    if (!i.up) text += " (down)";
    for (const Address &a : i.addresses) text += " " + to_text(a) + "/" + std::to_string(a.prefix);
  }
  return text.empty() ? "none" : text;
}

inline void add(Selection *out, const Interface &i, const Address &a) {
  for (const Choice &c : out->choices)
    if (c.interface.name == i.name && std::memcmp(&c.address.storage, &a.storage, sizeof a.storage) == 0) return;
  Choice c;
  c.interface = i;
  c.interface.addresses.clear();
  c.address = a;
  out->choices.push_back(std::move(c));
}

inline std::vector<Interface> automatic(std::vector<Interface> all) {
  all.erase(std::remove_if(all.begin(), all.end(), [](const Interface &i) { return !i.up; }), all.end());
  std::stable_sort(all.begin(), all.end(), [](const Interface &a, const Interface &b) { return rank_of(a) < rank_of(b); });
  return all;
}

} // namespace detail

// All interfaces with their addresses of the family (0 = both), in the kernel's order; link-local addresses last.
inline std::vector<Interface> list(int family = 0) {
  std::vector<Interface> out;
  ifaddrs *head = nullptr;
  if (getifaddrs(&head) != 0) return out;
  const int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (ifaddrs *p = head; p; p = p->ifa_next) {
    if (!p->ifa_name) continue;
    std::string name = p->ifa_name;
    name = name.substr(0, name.find(':')); // "eth0:1" is an alias of eth0
    auto it = std::find_if(out.begin(), out.end(), [&](const Interface &i) { return i.name == name; });
    if (it == out.end()) {
      Interface i;
      i.name = name;
      i.index = if_nametoindex(name.c_str());
      i.up = p->ifa_flags & IFF_UP;
      i.running = p->ifa_flags & IFF_RUNNING;
      i.loopback = p->ifa_flags & IFF_LOOPBACK;
      i.made = detail::made_by_software(name);
      i.speed_mbps = detail::speed_of(name, sock);
      it = out.insert(out.end(), std::move(i));
    }
    const int f = p->ifa_addr ? p->ifa_addr->sa_family : 0;
    if ((f != AF_INET && f != AF_INET6) || (family != 0 && f != family)) continue;
    Address a;
    std::memcpy(&a.storage, p->ifa_addr, f == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    a.prefix = detail::mask_bits(p->ifa_netmask, f);
    if (f == AF_INET6) {
      auto *s = reinterpret_cast<sockaddr_in6 *>(&a.storage);
      s->sin6_port = 0;
      s->sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&s->sin6_addr) ? it->index : 0;
    }
    it->addresses.push_back(a);
  }
  if (sock >= 0) close(sock);
  freeifaddrs(head);
  for (Interface &i : out)
    std::stable_sort(i.addresses.begin(), i.addresses.end(),
                     [](const Address &a, const Address &b) { return a.link_local() < b.link_local(); });
  return out;
}

// The addresses that the rule allows, best first. `family`: AF_INET, AF_INET6 or 0 for both. `all` comes from list().
inline Selection select(std::string_view rule, int family, const std::vector<Interface> &all) {
  Selection out;
  const detail::Rule r = detail::parse(rule);
  if (!r.error.empty()) {
    out.error = "interface rule \"" + std::string(rule) + "\": " + r.error;
    return out;
  }
  const auto wanted = [family](const Address &a) { return family == 0 || a.family() == family; };
  if (r.exclude || r.entries.empty()) {
    for (const Interface &i : detail::automatic(all))
      for (const Address &a : i.addresses) {
        const bool hit =
            std::any_of(r.entries.begin(), r.entries.end(), [&](const detail::Entry &e) { return detail::matches(e, i, a); });
        if (!hit && wanted(a)) detail::add(&out, i, a);
      }
  } else {
    for (const detail::Entry &e : r.entries)
      for (const Interface &i : all)
        for (const Address &a : i.addresses)
          if (i.up && wanted(a) && detail::matches(e, i, a)) detail::add(&out, i, a);
  }
  if (!out.choices.empty()) return out;
  const char *name = family == AF_INET ? "IPv4 " : family == AF_INET6 ? "IPv6 " : "";
  out.error = rule.empty()
                  ? std::string("no interface is up with an ") + name + "address"
                  : "interface rule \"" + std::string(rule) + "\" matches no " + name + "address of an interface that is up";
  out.error += "; interfaces: " + detail::describe(all);
  return out;
}

inline Selection select(std::string_view rule, int family = 0) {
  return select(rule, family, list());
}

} // namespace tutti::netif
#endif
