// tutti/plugins/net-ib/gid.cc: which entry of a port's GID table to use.
#include "ports.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <cerrno>

namespace tutti::net_ib {

using plugin::text;

namespace {

struct Entry {
  uint32_t index = 0;
  ibv_gid gid{};
  int version = 0; // of RoCE, 0 = InfiniBand
  bool ipv4() const { return is_ipv4(gid); }
  const in6_addr *address() const { return reinterpret_cast<const in6_addr *>(&gid); }
  bool link_local() const { return IN6_IS_ADDR_LINKLOCAL(address()) || (ipv4() && gid.raw[12] == 169 && gid.raw[13] == 254); }
};

bool is_zero(const ibv_gid &gid) {
  return gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
}

int version_of(uint32_t type) {
  return type == IBV_GID_TYPE_ROCE_V2 ? 2 : type == IBV_GID_TYPE_ROCE_V1 ? 1 : 0;
}

// The entries that are there. Their number is the port's own word, and large tables are mostly empty.
std::vector<Entry> read_table(Verbs &verbs, ibv_context *context, const Port &port) {
  std::vector<Entry> out;
  ibv_port_attr attr{};
  if (verbs.query_port(context, port.port, &attr) != 0) return out;
  for (int i = 0; i < std::min(attr.gid_tbl_len, 256); i++) { // a queue pair names entries by a byte
    ibv_gid_entry e{};
    if (verbs.query_gid(context, port.port, static_cast<uint32_t>(i), &e) != 0 || is_zero(e.gid)) continue;
    out.push_back({static_cast<uint32_t>(i), e.gid, version_of(e.gid_type)});
  }
  return out;
}

std::string list(const std::vector<Entry> &table) {
  std::string out;
  for (const Entry &e : table) {
    out += text(out.empty() ? "" : ", ", e.index, ": ", gid_text(e.gid));
    if (e.version != 0) out += text(" (RoCE v", e.version, ")");
  }
  return out.empty() ? "its GID table is empty" : "its GID table has " + out;
}

bool in_range(const Entry &e, const netif::detail::Entry &network) {
  netif::Address a;
  if (e.ipv4()) {
    auto *v4 = reinterpret_cast<sockaddr_in *>(&a.storage);
    v4->sin_family = AF_INET;
    std::memcpy(&v4->sin_addr, e.gid.raw + 12, 4);
  } else {
    auto *v6 = reinterpret_cast<sockaddr_in6 *>(&a.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = *e.address();
  }
  return netif::detail::in_network(a, network);
}

bool allowed(const Settings &s, const Entry &e) {
  if (s.roce_version != 0 && e.version != s.roce_version) return false;
  if (s.family != 0 && e.ipv4() != (s.family == AF_INET)) return false;
  netif::detail::Entry network;
  return s.addr_range.empty() || (netif::detail::parse_cidr(s.addr_range, &network) && in_range(e, network));
}

// Smaller is better: an address that other hosts can reach, then RoCE 2, which routers forward, then IPv4.
int rank_of(const Entry &e) {
  return (e.link_local() ? 4 : 0) + (e.version == 2 ? 0 : 2) + (e.ipv4() ? 0 : 1);
}

std::string wish(const Settings &s) {
  std::string out;
  if (s.roce_version != 0) out += text(" of RoCE v", s.roce_version);
  if (s.family != 0) out += text(" of family ", s.family == AF_INET ? "AF_INET" : "AF_INET6");
  if (!s.addr_range.empty()) out += text(" in ", s.addr_range);
  return out;
}

void take(Port &port, const Entry &e) {
  port.gid_index = static_cast<int>(e.index);
  port.gid = e.gid;
  port.gid_text = gid_text(e.gid);
  port.roce_version = e.version;
}

bool choose_by_index(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why) {
  ibv_gid_entry e{};
  const int err = verbs.query_gid(context, port.port, static_cast<uint32_t>(settings.gid_index), &e);
  if (err == 0 && !is_zero(e.gid)) {
    take(port, {static_cast<uint32_t>(settings.gid_index), e.gid, version_of(e.gid_type)});
    return true;
  }
  why = text("there is no GID at index ", settings.gid_index, ", which gid_index asks for; ",
             list(read_table(verbs, context, port)));
  return false;
}

bool choose_on_ethernet(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why) {
  const std::vector<Entry> table = read_table(verbs, context, port);
  const Entry *best = nullptr;
  for (const Entry &e : table)
    if (allowed(settings, e) && (!best || rank_of(e) < rank_of(*best))) best = &e;
  if (!best) {
    why = text("there is no GID", wish(settings), "; ", list(table),
               table.empty() ? ": its network interface has no address or is down" : "");
    return false;
  }
  take(port, *best);
  if (best->link_local())
    why = text("its only usable GID is the link-local ", port.gid_text,
               ", which peers of the same network segment reach at most: give its network interface an address");
  else if (best->version == 1 && settings.roce_version == 0)
    why = text("it has no GID of RoCE v2: with v1 it reaches peers of the same network segment only");
  return true;
}

} // namespace

std::string gid_text(const ibv_gid &gid) {
  char buf[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, buf, sizeof buf);
  return buf;
}

bool is_ipv4(const ibv_gid &gid) {
  return IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr *>(&gid));
}

bool choose_gid(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why) {
  why.clear();
  if (settings.gid_index >= 0) return choose_by_index(settings, verbs, context, port, why);
  if (port.ethernet) return choose_on_ethernet(settings, verbs, context, port, why);
  // A LID is enough within a subnet; the prefix of entry 0 tells whether a peer is in another one.
  port.gid_index = -1;
  ibv_gid_entry e{};
  port.gid = verbs.query_gid(context, port.port, 0, &e) == 0 ? e.gid : ibv_gid{};
  port.gid_text = is_zero(port.gid) ? "" : gid_text(port.gid);
  return true;
}

} // namespace tutti::net_ib
