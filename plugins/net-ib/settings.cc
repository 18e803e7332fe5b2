// tutti/plugins/net-ib/settings.cc
#include "settings.h"
#include "selection.h"
#include "tutti/plugin/cxx/netif.hpp"

namespace tutti::net_ib {

using plugin::fail;

// key, default, help, further names, choices, min, max, type
const std::array<tutti_option, 30> option_table = {{
    {"disable", "false", "use no RDMA device", "NCCL_IB_DISABLE", nullptr, 0, 0, TUTTI_OPT_BOOL, 0},
    {"hca", "",
     "ports to use: device[:port[:rail]] separated by commas, device by its prefix; = first: exact names, ^ first: all but "
     "these; empty: all",
     "NCCL_IB_HCA", nullptr, 0, 0, TUTTI_OPT_STRING, 0},
    {"merge", "true", "the ports of one adapter are one device whose messages go over all of them", "NCCL_IB_MERGE_NICS",
     nullptr, 0, 0, TUTTI_OPT_BOOL, 0},
    {"merge_ports", "", "ports that are one device: device[:port] separated by commas, groups by semicolons",
     "NCCL_NET_FORCE_MERGE", nullptr, 0, 0, TUTTI_OPT_STRING, 0},
    {"rails", "pci",
     "what numbers the rails, which must mean the same on every host: the order of the PCI addresses, of the names or of the "
     "GUIDs; none: rails are unknown",
     nullptr, "pci|name|guid|none", 0, 0, TUTTI_OPT_STRING, 0},
    {"failover", "true", "other selected ports of the same kind take over when those of a device are down",
     "NCCL_IB_RESILIENCY_PORT_FAILOVER", nullptr, 0, 0, TUTTI_OPT_BOOL, 0},
    {"gid_index", "-1", "entry of the port's GID table; -1: chosen by the three options that follow", "NCCL_IB_GID_INDEX",
     nullptr, -1, 255, TUTTI_OPT_INT, 0},
    {"roce_version", "auto", "version of RoCE; auto: 2, or 1 where a port has no other", "NCCL_IB_ROCE_VERSION_NUM", "auto|1|2",
     0, 0, TUTTI_OPT_STRING, 0},
    {"family", "auto", "address family of the GID on Ethernet; auto: IPv4, or IPv6 where a port has no other",
     "NCCL_IB_ADDR_FAMILY", "auto|AF_INET|AF_INET6", 0, 0, TUTTI_OPT_STRING, 0},
    {"addr_range", "", "network that the GID lies in, like 10.0.0.0/8; empty: any", "NCCL_IB_ADDR_RANGE", nullptr, 0, 0,
     TUTTI_OPT_STRING, 0},
    {"service_level", "0", "service level of InfiniBand, priority of the VLAN tag on Ethernet; -1: 0", "NCCL_IB_SL", nullptr,
     -1, 15, TUTTI_OPT_INT, 0},
    {"traffic_class", "0", "byte of DSCP and ECN bits, DSCP * 4, of communicators that set none (net.traffic_class); -1: 0",
     "NCCL_IB_TC", nullptr, -1, 255, TUTTI_OPT_INT, 0},
    {"pkey", "0", "partition key, 0x8001; full and limited membership are the same; 0: the one at pkey_index", nullptr, nullptr,
     0, 0xffff, TUTTI_OPT_INT, 0},
    {"pkey_index", "0", "entry of the port's table of partition keys", "NCCL_IB_PKEY", nullptr, 0, 65535, TUTTI_OPT_INT, 0},
    {"timeout", "20", "how long the device waits for an acknowledgement: 4.096 us * 2^timeout, at least, per try; 0: for ever",
     "NCCL_IB_TIMEOUT", nullptr, 0, 31, TUTTI_OPT_INT, 0},
    {"retry_count", "7", "tries after the first that was not acknowledged", "NCCL_IB_RETRY_CNT", nullptr, 0, 7, TUTTI_OPT_INT,
     0},
    {"rnr_retry", "7", "tries after the peer said that it was not ready to receive; 7: for ever", nullptr, nullptr, 0, 7,
     TUTTI_OPT_INT, 0},
    {"min_rnr_timer", "12",
     "pause that a receiver which is not ready asks for, as InfiniBand codes it: 1 is 0.01 ms, 12 is 0.64 ms, 31 is 491 ms, 0 "
     "is 655 ms",
     nullptr, nullptr, 0, 31, TUTTI_OPT_INT, 0},
    {"mtu", "auto", "largest packet; auto: what both ports have", nullptr, "auto|256|512|1024|2048|4096", 0, 0,
     TUTTI_OPT_STRING, 0},
    {"qps_per_connection", "1", "queue pairs on each path of a connection: the network may take different ways for them",
     "NCCL_IB_QPS_PER_CONNECTION", nullptr, 1, 16, TUTTI_OPT_INT, 0},
    {"split_data", "true", "every message is split over all queue pairs and rails; false: messages take turns",
     "NCCL_IB_SPLIT_DATA_ON_QPS", nullptr, 0, 0, TUTTI_OPT_BOOL, 0},
    {"split_min", "64KiB", "a message is split into pieces no smaller than this", nullptr, nullptr, 128, 1 << 30,
     TUTTI_OPT_BYTES, 0},
    {"inline_bytes", "128", "messages up to this are copied into the work request, as far as the device allows", nullptr,
     nullptr, 0, 4096, TUTTI_OPT_BYTES, 0},
    {"relaxed_ordering", "auto",
     "writes of the device may pass each other on PCI; auto, 2: where the device can; off, 0; on, 1: as auto",
     "NCCL_IB_PCI_RELAXED_ORDERING", "auto|off|on|0|1|2", 0, 0, TUTTI_OPT_STRING, 0},
    {"max_inflight", "64", "calls under way per endpoint and direction", nullptr, nullptr, 8, 1024, TUTTI_OPT_INT, 0},
    {"dmabuf", "true", "register device memory by its dma-buf where the kernel can", "NCCL_DMABUF_ENABLE", nullptr, 0, 0,
     TUTTI_OPT_BOOL, 0},
    {"return_async_events", "true", "a fatal event of a device or a queue fails what uses it; false: it is only logged",
     "NCCL_IB_RETURN_ASYNC_EVENTS", nullptr, 0, 0, TUTTI_OPT_BOOL, 0},
    {"connect_timeout", "60s", "a connection that is not ready by then is an error", nullptr, nullptr, 1000000,
     0x7fffffffffffffff, TUTTI_OPT_DURATION, 0},
    {"link_down_timeout", "30s", "a connection all of whose ports are down for this long is an error", nullptr, nullptr,
     1000000, 0x7fffffffffffffff, TUTTI_OPT_DURATION, 0},
    {},
}};

namespace {

int family_of(const std::string &name) {
  return name == "AF_INET" ? AF_INET : name == "AF_INET6" ? AF_INET6 : 0;
}

// "auto" is 0.
int number_of(const std::string &text) {
  return text == "auto" ? 0 : std::stoi(text);
}

uint8_t small(const Host &host, const char *key) {
  return static_cast<uint8_t>(std::max<int64_t>(host.get_int(key), 0));
}

Rails rails_of(const std::string &name) {
  return name == "name" ? Rails::name : name == "guid" ? Rails::guid : name == "none" ? Rails::none : Rails::pci;
}

void read_ports(const Host &host, Settings &s) {
  if (host.get_bool("disable")) s.disabled_by = host.origin("disable");
  s.hca = host.get_string("hca");
  s.hca_origin = host.origin("hca");
  if (const std::string error = parse_selection(s.hca).error; !error.empty())
    fail(TUTTI_ERR_INVALID, "hca \"", s.hca, "\" (", s.hca_origin, "): ", error);
  s.merge = host.get_bool("merge");
  s.merge_ports = host.get_string("merge_ports");
  if (const std::string error = parse_merge_groups(s.merge_ports).error; !error.empty())
    fail(TUTTI_ERR_INVALID, "merge_ports \"", s.merge_ports, "\" (", host.origin("merge_ports"), "): ", error);
  s.rails = rails_of(host.get_string("rails"));
  s.failover = host.get_bool("failover");
}

void read_address(const Host &host, Settings &s) {
  s.gid_index = static_cast<int>(host.get_int("gid_index"));
  s.roce_version = number_of(host.get_string("roce_version"));
  s.family = family_of(host.get_string("family"));
  s.addr_range = host.get_string("addr_range");
  if (s.addr_range.empty()) return;
  netif::detail::Entry network;
  if (!netif::detail::parse_cidr(s.addr_range, &network))
    fail(TUTTI_ERR_INVALID, "addr_range \"", s.addr_range, "\" (", host.origin("addr_range"),
         ") is no network like 10.0.0.0/8 or fd00::/8");
  if (s.family != 0 && s.family != network.net.ss_family)
    fail(TUTTI_ERR_INVALID, "addr_range \"", s.addr_range, "\" (", host.origin("addr_range"), ") has no address of family ",
         host.get_string("family"), " (", host.origin("family"), ")");
}

void read_queues(const Host &host, Settings &s) {
  s.service_level = small(host, "service_level");
  s.traffic_class = small(host, "traffic_class");
  s.pkey = static_cast<uint16_t>(host.get_int("pkey"));
  s.pkey_index = static_cast<int>(host.get_int("pkey_index"));
  s.timeout = small(host, "timeout");
  s.retry_count = small(host, "retry_count");
  s.rnr_retry = small(host, "rnr_retry");
  s.min_rnr_timer = small(host, "min_rnr_timer");
  s.mtu = static_cast<uint32_t>(number_of(host.get_string("mtu")));
  s.qps_per_connection = static_cast<uint32_t>(host.get_int("qps_per_connection"));
  s.max_inflight = static_cast<uint32_t>(host.get_int("max_inflight"));
}

} // namespace

Settings read_settings(const Host &host) {
  Settings s;
  read_ports(host, s);
  read_address(host, s);
  read_queues(host, s);
  s.split_data = host.get_bool("split_data");
  s.split_min = static_cast<uint32_t>(host.get_bytes("split_min"));
  s.inline_bytes = static_cast<uint32_t>(host.get_bytes("inline_bytes"));
  const std::string ordering = host.get_string("relaxed_ordering");
  s.relaxed_ordering = ordering != "off" && ordering != "0";
  s.use_dmabuf = host.get_bool("dmabuf");
  s.return_async_events = host.get_bool("return_async_events");
  s.connect_timeout = host.get_duration("connect_timeout");
  s.link_down_timeout = host.get_duration("link_down_timeout");
  return s;
}

} // namespace tutti::net_ib
