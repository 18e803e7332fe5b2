// What devices count.
#include "counters.h"
#include "host.h"
#include "machine.h"
#include <cstdio>
#include <cstring>
#include <doctest/doctest.h>
#include <linux/ethtool.h>

using namespace tutti::net_ib;

namespace {

Statistics pauses(const std::string &netdev) {
  CHECK(netdev == "eth0");
  return {{"rx_packets", 9}, {"rx_prio3_pause", 12}, {"tx_prio3_pause_duration", 5}, {"rx_discards_phy", 4}};
}

// A driver with so many statistics, that gets more at some request: it writes all that it has by then.
struct Driver {
  uint32_t statistics = 4;
  uint32_t more = 0, at_request = 0;
  uint32_t requests = 0;
  bool answer(void *data) {
    if (++requests == at_request) statistics += more;
    uint32_t command = 0;
    std::memcpy(&command, data, sizeof command);
    if (command == ETHTOOL_GSSET_INFO) {
      auto *info = static_cast<ethtool_sset_info *>(data);
      std::memcpy(info + 1, &statistics, sizeof statistics);
    } else if (command == ETHTOOL_GSTRINGS) {
      auto *names = static_cast<ethtool_gstrings *>(data);
      names->len = statistics;
      for (uint32_t i = 0; i < statistics; i++)
        std::snprintf(reinterpret_cast<char *>(names + 1) + size_t{i} * ETH_GSTRING_LEN, ETH_GSTRING_LEN, "s%u", i);
    } else {
      auto *values = static_cast<ethtool_stats *>(data);
      values->n_stats = statistics;
      for (uint64_t i = 0; i < statistics; i++) std::memcpy(reinterpret_cast<uint64_t *>(values + 1) + i, &i, sizeof i);
    }
    return true;
  }
};

const Counter *find(const std::vector<Counter> &all, const std::string &name) {
  for (const Counter &c : all)
    if (c.name == name) return &c;
  return nullptr;
}

} // namespace

TEST_CASE("counters are read from the port's files and its interface, each once, with what they mean") {
  Machine m;
  m.roce("mlx5_0", "10.0.0.1");
  const std::string port = "/class/infiniband/mlx5_0/ports/1/";
  m.file(port + "hw_counters/out_of_sequence", "7");
  m.file(port + "hw_counters/rx_write_requests", "18446744073709551615");
  m.file(port + "hw_counters/link_downed", "1");
  m.file(port + "hw_counters/lifespan", "10");
  m.file(port + "counters/link_downed", "2");
  m.file(port + "counters/port_rcv_data", "1000");
  m.file(port + "counters/symbol_error", "N/A (no PMA)");
  m.file(port + "gid_attrs/ndevs/2", "eth0.7");
  m.link("/class/net/eth0.7/lower_eth0", "/class/net/eth0");
  const Port p = find_devices(settings_with({}), m, m.sysfs()).devices.at(0).own.at(0);
  const std::vector<Counter> all = read_counters(p, m.sysfs(), pauses);
  REQUIRE(find(all, "out_of_sequence"));
  CHECK(find(all, "out_of_sequence")->value == 7);
  CHECK(std::string(find(all, "out_of_sequence")->hint).find("lost") != std::string::npos);
  REQUIRE(find(all, "rx_write_requests"));
  CHECK(find(all, "rx_write_requests")->value == UINT64_MAX);
  CHECK(find(all, "rx_write_requests")->hint == nullptr);
  REQUIRE(find(all, "link_downed"));
  CHECK(find(all, "link_downed")->value == 1); // the device's own word before that of the port
  CHECK(find(all, "port_rcv_data"));
  CHECK_FALSE(find(all, "symbol_error"));
  CHECK_FALSE(find(all, "lifespan"));
  REQUIRE(find(all, "rx_prio3_pause"));
  CHECK(find(all, "rx_prio3_pause")->value == 12);
  CHECK(find(all, "rx_discards_phy"));
  CHECK_FALSE(find(all, "rx_packets")); // of the interface, only what may be wrong
  CHECK(all.size() == 6);
}

TEST_CASE("a port without files has no counters") {
  Machine m;
  m.infiniband("d", 7);
  const Port p = find_devices(settings_with({}), m, m.sysfs()).devices.at(0).own.at(0);
  CHECK(read_counters(p, m.sysfs(), pauses).empty());
}

TEST_CASE("hints hold for every priority and for no other name") {
  CHECK(counter_hint("rx_prio0_pause"));
  CHECK(counter_hint("rx_prio17_pause"));
  CHECK(counter_hint("rx_priority_3_xoff.nic"));
  CHECK_FALSE(counter_hint("rx_prio_pause"));
  CHECK_FALSE(counter_hint("rx_prio3_pause_duration"));
  CHECK_FALSE(counter_hint("rx_priox_pause"));
  CHECK_FALSE(counter_hint("port_rcv_data"));
}

TEST_CASE("the statistics of an interface that is not there are empty") {
  CHECK(interface_statistics("nosuchif0").empty());
}

TEST_CASE("statistics of an interface are read whole, and none while a driver gets more of them") {
  Driver steady;
  const Statistics read = ethtool_statistics([&](void *data) { return steady.answer(data); });
  REQUIRE(read.size() == 4);
  CHECK(read[3] == std::pair<std::string, uint64_t>("s3", 3));
  for (uint32_t at = 2; at <= steady.requests; at++) {
    Driver growing{4, 200, at}; // more than what was asked for takes
    CHECK(ethtool_statistics([&](void *data) { return growing.answer(data); }).empty());
  }
  Driver absurd{UINT32_MAX};
  CHECK(ethtool_statistics([&](void *data) { return absurd.answer(data); }).empty());
  CHECK(absurd.requests == 1);
}
