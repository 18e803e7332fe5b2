// Discovery, selection, merging, rails and spares.
#include "groups.h"
#include "host.h"
#include "machine.h"
#include <doctest/doctest.h>

using namespace tutti::net_ib;

namespace {

Found find(Machine &m, TestHost::Options options = {}) {
  const Found found = find_devices(settings_with(std::move(options)), m, m.sysfs());
  CHECK(m.opened == 0); // everything that was opened to look at it is closed
  return found;
}

std::string joined(const std::vector<std::string> &lines) {
  std::string out;
  for (const std::string &l : lines) out += l + "\n";
  return out;
}

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

// Two adapters of two RoCE functions each, and one that is alone.
void cluster_node(Machine &m) {
  m.roce("mlx5_0", "10.0.0.1");
  m.roce("mlx5_1", "10.0.1.1");
  m.roce("mlx5_2", "10.0.2.1");
  m.roce("mlx5_3", "10.0.3.1");
  m.roce("mlx5_10", "10.0.4.1");
  m.place("mlx5_0", "0000:81:00.0", 1);
  m.place("mlx5_1", "0000:81:00.1", 1);
  m.place("mlx5_2", "0000:01:00.0", 0);
  m.place("mlx5_3", "0000:01:00.1", 0);
  m.place("mlx5_10", "0000:c1:00.0", 1);
}

} // namespace

TEST_CASE("a host without RDMA is no error, and says so") {
  Machine m;
  CHECK(has(find(m).why, "no RDMA device"));
  m.list_error = ENOSYS;
  CHECK(has(find(m).why, "ib_uverbs"));
}

TEST_CASE("disabled, nothing is looked at") {
  Machine m;
  m.roce("mlx5_0", "10.0.0.1");
  const Found f = find(m, {{"disable", "true"}});
  CHECK(f.devices.empty());
  CHECK(has(f.why, "switched off (test.toml:7)"));
}

TEST_CASE("the selection follows NCCL_IB_HCA") {
  Machine m;
  cluster_node(m);
  m.infiniband("ibp0", 7, 2);
  const auto select = [&](const char *hca) { return names(find(m, {{"hca", hca}, {"merge", "false"}, {"rails", "name"}})); };
  CHECK(select("mlx5_1") == "mlx5_1:1 mlx5_10:1"); // a prefix
  CHECK(select("=mlx5_1") == "mlx5_1:1");
  CHECK(select("=mlx5_1,mlx5_3") == "mlx5_1:1 mlx5_3:1"); // = holds for all
  CHECK(select("^mlx5") == "ibp0:1 ibp0:2");
  CHECK(select("^=mlx5_1,ibp0:2") == "ibp0:1 mlx5_0:1 mlx5_2:1 mlx5_3:1 mlx5_10:1");
  CHECK(select("ibp0:2, mlx5_0") == "ibp0:2 mlx5_0:1");
  CHECK(select("") == "ibp0:1 ibp0:2 mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 mlx5_10:1");
}

TEST_CASE("entries that name nothing are told, and a selection of nothing lists what there is") {
  Machine m;
  cluster_node(m);
  const Found some = find(m, {{"hca", "mlx5_0:1,mlx5_0:3,bnxt"}});
  CHECK(names(some) == "mlx5_0:1");
  CHECK(joined(some.unmatched) == "hca: mlx5_0:3\nhca: bnxt\n");
  const Found none = find(m, {{"hca", "bnxt"}});
  CHECK(none.devices.empty());
  CHECK(has(none.why, "hca \"bnxt\" (test.toml:7) selects none"));
  CHECK(has(none.why, "mlx5_10"));
  CHECK(find(m, {{"hca", "^bnxt"}}).unmatched.empty());
  CHECK(find(m, {{"hca", "mlx5,mlx5_0"}}).unmatched.empty()); // named twice is named
}

TEST_CASE("ports that cannot be used are declined with the reason") {
  Machine m;
  m.roce("down", "10.0.0.1").ports[0].attr.state = IBV_PORT_DOWN;
  m.infiniband("init", 0).ports[0].attr.state = IBV_PORT_INIT;
  m.infiniband("nolid", 0);
  m.roce("iwarp", "10.0.0.2").transport = IBV_TRANSPORT_IWARP;
  m.roce("efa", "10.0.0.3").transport = IBV_TRANSPORT_UNSPECIFIED;
  m.roce("noqp", "10.0.0.4").max_qp = 0;
  m.roce("locked", "10.0.0.5").open_error = EACCES;
  m.roce("nogid", "").ports[0].gids.clear();
  const Found f = find(m);
  CHECK(f.devices.empty());
  const std::string all = joined(f.declined);
  for (const char *part :
       {"down:1: its state is DOWN", "init:1: its state is INIT (no subnet manager", "nolid:1: it has no LID",
        "iwarp: it is an iWARP device", "efa: it has no reliable connected queue pairs", "noqp: it has no queue pairs",
        "locked: cannot be opened: Permission denied", "nogid:1: there is no GID; its GID table is empty"}) {
    CAPTURE(part);
    CHECK(has(all, part));
    CHECK(has(f.why, part));
  }
  CHECK(f.declined.size() == 8);
}

TEST_CASE("a declined device has been named, all the same") {
  Machine m;
  m.roce("a", "10.0.0.1").transport = IBV_TRANSPORT_IWARP;
  const Found f = find(m, {{"hca", "=a:1"}});
  CHECK(f.unmatched.empty());
  CHECK(has(f.why, "iWARP"));
}

TEST_CASE("the place of a device is read from sysfs, and devices come in the order of their PCI addresses") {
  Machine m;
  cluster_node(m);
  m.file("/class/infiniband/mlx5_2/ports/1/rate", "800 Gb/sec (4X XDR)");
  m.file("/class/infiniband/mlx5_2/ports/1/gid_attrs/ndevs/2", "eth2");
  const Found f = find(m, {{"merge", "false"}});
  CHECK(names(f) == "mlx5_2:1 mlx5_3:1 mlx5_0:1 mlx5_1:1 mlx5_10:1");
  const Port &p = f.devices[0].own[0];
  CHECK(p.pci == m.sysfs() + "/devices/pci0000:00/0000:01:00.0");
  CHECK(p.numa_node == 0);
  CHECK(p.speed_mbps == 800000);
  CHECK(p.netdev == "eth2");
  CHECK(p.rail == 0);
  CHECK(p.mtu == IBV_MTU_4096);
  CHECK(f.devices[1].own[0].speed_mbps == 200000); // 4 lanes of HDR, from the port itself
  CHECK(f.devices[2].own[0].numa_node == 1);
}

TEST_CASE("speeds of all widths and lanes are known") {
  const std::pair<int, uint32_t> lanes[] = {{1, 2500},   {2, 5000},   {4, 10000},    {8, 10000}, {16, 14000},
                                            {32, 25000}, {64, 50000}, {128, 100000}, {0, 0},     {3, 0}};
  const std::pair<int, uint32_t> widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}, {0, 0}};
  for (const auto &[speed, mbps] : lanes)
    for (const auto &[width, n] : widths) {
      Machine m;
      TestPort &p = m.roce("d", "10.0.0.1").ports[0];
      p.attr.active_speed = static_cast<uint8_t>(speed);
      p.attr.active_width = static_cast<uint8_t>(width);
      CHECK(find(m).devices.at(0).own[0].speed_mbps == mbps * n);
    }
}

TEST_CASE("a soft device has the place of the interface below it, and none is fine") {
  Machine m;
  m.roce("rxe0", "10.0.0.1");
  m.roce("rxe1", "10.0.0.2");
  m.file("/class/infiniband/rxe0/parent", "eth0.100");
  m.link("/class/net/eth0.100/lower_eth0", "/class/net/eth0");
  m.file("/devices/pci0000:00/0000:02:00.0/numa_node", "3");
  m.link("/class/net/eth0/device", "/devices/pci0000:00/0000:02:00.0");
  const Found f = find(m);
  CHECK(names(f) == "rxe0:1 rxe1:1");
  CHECK(has(f.devices[0].own[0].pci, "0000:02:00.0"));
  CHECK(f.devices[0].own[0].numa_node == 3);
  CHECK(f.devices[1].own[0].pci.empty());
  CHECK(f.devices[1].own[0].numa_node == -1);
}

TEST_CASE("the ports of one adapter are one device, its rails") {
  Machine m;
  cluster_node(m);
  const Found f = find(m);
  CHECK(names(f) == "mlx5_2:1+mlx5_3:1 mlx5_0:1+mlx5_1:1 mlx5_10:1");
  CHECK(f.devices[0].own[1].rail == 0);
  CHECK(f.devices[1].own[0].rail == 1);
  CHECK(f.devices[2].own[0].rail == 2);
  m.device("mlx5_1").ports[0].attr.active_speed = 32; // another speed: apart
  CHECK(names(find(m)) == "mlx5_2:1+mlx5_3:1 mlx5_0:1 mlx5_1:1 mlx5_10:1");
}

TEST_CASE("two ports of one device are one, too") {
  Machine m;
  m.infiniband("ibp0", 7, 2);
  m.place("ibp0", "0000:01:00.0", 0);
  CHECK(names(find(m)) == "ibp0:1+ibp0:2");
  m.infiniband("ibp1", 17, 2); // also where there is no PCI address
  CHECK(names(find(m)) == "ibp0:1+ibp0:2 ibp1:1+ibp1:2");
  CHECK(names(find(m, {{"hca", "ibp0:2"}})) == "ibp0:2");
}

TEST_CASE("listed ports are merged whatever they belong to, up to four") {
  Machine m;
  cluster_node(m);
  const Found f = find(m, {{"merge_ports", "mlx5_0,mlx5_2;mlx5_3:1,nosuch"}, {"merge", "false"}});
  CHECK(names(f) == "mlx5_3:1 mlx5_0:1+mlx5_2:1 mlx5_1:1 mlx5_10:1");
  CHECK(joined(f.unmatched) == "merge_ports: nosuch\n");
  const Found five = find(m, {{"merge_ports", "mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_10"}});
  CHECK(names(five) == "mlx5_0:1+mlx5_1:1+mlx5_2:1+mlx5_3:1 mlx5_10:1");
  CHECK(has(joined(five.notes), "at most 4 ports"));
  m.infiniband("ibp0", 7);
  const Found mixed = find(m, {{"merge_ports", "mlx5_0,ibp0"}, {"merge", "false"}});
  CHECK(has(joined(mixed.notes), "InfiniBand"));
  CHECK(has(names(mixed), "ibp0:1"));
}

TEST_CASE("virtual functions over one wire are not merged with each other") {
  Machine m;
  m.roce("vf0", "10.0.0.1");
  m.roce("vf1", "10.0.0.2");
  m.place("vf0", "0000:01:00.2", 0);
  m.place("vf1", "0000:01:00.3", 0);
  m.file("/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/node_guid", "0002:c903:00ab:cdef");
  m.link("/devices/pci0000:00/0000:01:00.2/physfn", "/devices/pci0000:00/0000:01:00.0");
  m.link("/devices/pci0000:00/0000:01:00.3/physfn", "/devices/pci0000:00/0000:01:00.0");
  const Found f = find(m);
  CHECK(names(f) == "vf0:1 vf1:1");
  CHECK(f.devices[0].own[0].guid == 0x0002c90300abcdef);
  CHECK(f.devices[1].own[0].guid == 0x0002c90300abcdef);
  CHECK(f.devices[0].spare.empty()); // it would be down together with the port
}

TEST_CASE("a port that is down keeps its place, so that rails mean the same on every host") {
  Machine m;
  cluster_node(m);
  m.device("mlx5_2").ports[0].attr.state = IBV_PORT_DOWN;
  m.device("mlx5_0").ports[0].attr.state = IBV_PORT_DOWN;
  m.device("mlx5_1").ports[0].attr.state = IBV_PORT_DOWN;
  const Found f = find(m);
  CHECK(names(f) == "mlx5_3:1 mlx5_10:1");
  CHECK(f.devices[0].own[0].rail == 0);
  CHECK(f.devices[1].own[0].rail == 2);
}

TEST_CASE("rails follow the option, or the selection") {
  Machine m;
  cluster_node(m);
  const auto rail = [&](TestHost::Options o, const std::string &name) {
    o["merge"] = "false";
    const Found f = find(m, std::move(o));
    for (const Device &d : f.devices)
      if (d.name == name) return d.own[0].rail;
    return -9;
  };
  CHECK(rail({{"rails", "pci"}}, "mlx5_2:1") == 0);
  CHECK(rail({{"rails", "name"}}, "mlx5_2:1") == 2);
  CHECK(rail({{"rails", "name"}}, "mlx5_10:1") == 4);
  CHECK(rail({{"rails", "none"}}, "mlx5_2:1") == -1);
  m.device("mlx5_2").guid = 0xffff;
  CHECK(rail({{"rails", "guid"}}, "mlx5_2:1") == 4);
  CHECK(rail({{"hca", "mlx5_2:1:7,mlx5_0"}}, "mlx5_2:1") == 7);
}

TEST_CASE("spares are other ports of the same kind of network, nearest first") {
  Machine m;
  cluster_node(m);
  m.infiniband("ibp0", 7);
  const auto spares = [](const Device &d) {
    std::string out;
    for (const Port &p : d.spare) out += (out.empty() ? "" : " ") + p.name();
    return out;
  };
  Found f = find(m, {{"merge", "false"}}); // mlx5_2 mlx5_3 on node 0; mlx5_0 mlx5_1 mlx5_10 on node 1; ibp0
  CHECK(spares(f.devices[0]) == "mlx5_3:1 mlx5_0:1");
  CHECK(spares(f.devices[1]) == "mlx5_2:1 mlx5_0:1");
  CHECK(spares(f.devices[2]) == "mlx5_1:1 mlx5_10:1");
  CHECK(spares(f.devices[5]) == ""); // InfiniBand has nobody
  m.infiniband("ibp1", 9);
  CHECK(spares(find(m, {{"hca", "ibp"}}).devices[0]) == "ibp1:1");
  Machine::set_gid(m.device("ibp1").ports[0], 0, "fec0::9", IBV_GID_TYPE_IB); // another subnet
  CHECK(spares(find(m, {{"hca", "ibp"}}).devices[0]) == "");
  m.roce("eth0", ""); // its GID is link-local, and has the prefix that subnets of InfiniBand have by default
  m.infiniband("ibp2", 11);
  CHECK(spares(find(m, {{"hca", "eth0,ibp2"}, {"rails", "name"}}).devices[1]) == "");
  f = find(m, {{"failover", "false"}});
  for (const Device &d : f.devices) CHECK(d.spare.empty());
}

TEST_CASE("the MTU is the port's, or less where the option says so") {
  Machine m;
  m.infiniband("d", 7);
  CHECK(find(m).devices[0].own[0].mtu == IBV_MTU_2048);
  CHECK(find(m, {{"mtu", "1024"}}).devices[0].own[0].mtu == IBV_MTU_1024);
  const Found f = find(m, {{"mtu", "4096"}});
  CHECK(f.devices[0].own[0].mtu == IBV_MTU_2048);
  CHECK(has(joined(f.notes), "its MTU is 2048, less than the 4096"));
}

TEST_CASE("a partition key is looked up, full members first") {
  Machine m;
  TestPort &p = m.infiniband("d", 7).ports[0];
  p.pkeys = {0xffff, 0x0012, 0x8012, 0x8033};
  p.attr.pkey_tbl_len = 4;
  CHECK(find(m).devices[0].own[0].pkey_index == 0);
  CHECK(find(m, {{"pkey", "0x0012"}}).devices[0].own[0].pkey_index == 2);
  CHECK(find(m, {{"pkey_index", "3"}}).devices[0].own[0].pkey_index == 3);
  CHECK(has(find(m, {{"pkey", "0x8044"}}).why, "no member of partition 0x8044"));
  CHECK(has(find(m, {{"pkey_index", "9"}}).why, "no partition key at index 9"));
}

TEST_CASE("a port is asked again after a change") {
  Machine m;
  TestPort &p = m.roce("d", "10.0.0.1").ports[0];
  const Settings s = settings_with({});
  Port port = find(m).devices[0].own[0];
  ibv_context *context = m.open("d");
  std::string why;
  p.attr.state = IBV_PORT_DOWN;
  CHECK_FALSE(refresh_port(s, m, context, port, why));
  CHECK(has(why, "DOWN"));
  p.attr.state = IBV_PORT_ACTIVE;
  p.attr.active_mtu = IBV_MTU_1024;
  p.gids.erase(2);
  Machine::set_gid(p, 3, "10.0.0.1", IBV_GID_TYPE_ROCE_V2);
  CHECK(refresh_port(s, m, context, port, why));
  CHECK(port.gid_index == 3);
  CHECK(port.mtu == IBV_MTU_1024);
  CHECK(port.name() == "d:1");
  m.close(context);
}

TEST_CASE("names are ordered as people count") {
  CHECK(natural_less("mlx5_2", "mlx5_10"));
  CHECK_FALSE(natural_less("mlx5_10", "mlx5_2"));
  CHECK(natural_less("mlx5", "mlx5_0"));
  CHECK(natural_less("a1b2", "a1b10"));
  CHECK_FALSE(natural_less("same", "same"));
}
