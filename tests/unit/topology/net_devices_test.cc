#include "topology/net_devices.h"
#include "topology/paths.h"
#include <cstring>
#include <doctest/doctest.h>

using namespace tutti;

namespace {

tutti_net_dev device(const char *name, const char *pci = "", uint32_t mbps = 0, int32_t numa = -1) {
  tutti_net_dev d{};
  d.struct_size = sizeof d;
  std::strncpy(d.name, name, sizeof d.name - 1);
  std::strncpy(d.pci, pci, sizeof d.pci - 1);
  d.speed_mbps = mbps;
  d.numa_node = numa;
  d.rail = -1;
  return d;
}
MachineFile parse(const std::string &text) {
  auto file = MachineFile::parse("<system version=\"1\">" + text + "</system>", "t.xml");
  REQUIRE(file.ok());
  return std::move(file).value();
}
Machine build(const MachineFile &file) {
  auto machine = file.machine();
  REQUIRE_MESSAGE(machine.ok(), machine.status().error().line());
  return std::move(machine).value();
}

} // namespace

TEST_CASE("devices of a network take the places of ports by name, then by PCI device, and the rest is removed") {
  MachineFile file = parse(R"(<cpu numaid="0"><pci busid="0000:01:00.0" class="0x020700"><nic>
    <net name="mlx5_0" dev="4" speed="100000" port="1"/><net name="mlx5_0" dev="5" speed="100000" port="2"/></nic></pci>
    <pci busid="0000:02:00.0" class="0x020000"><nic><net name="old" dev="0" speed="1000"/></nic></pci>
    <pci busid="0000:03:00.0" class="0x020000"><nic><net name="gone" dev="1" speed="1000"/></nic></pci></cpu>)");
  tutti_net_dev devices[] = {device("eth9", "/sys/devices/pci0000:00/0000:02:00.0", 25'000), device("mlx5_0:2"), device("lo")};
  devices[1].latency_ns = 1500;
  devices[1].rail = 3;
  devices[2].flags = TUTTI_NET_LOOPBACK;
  const auto notes = add_net_devices(&file, devices);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == "ports that are no devices of the network in use: mlx5_0, gone");
  const Machine m = build(file);
  const auto ports = m.of_kind(NodeKind::net);
  REQUIRE(ports.size() == 2);
  CHECK(m.node(ports[0]).id == "eth9");
  CHECK(m.node(m.node(ports[0]).parent).id == "0000:02:00.0");
  CHECK(m.gbps_up(ports[0]) == doctest::Approx(0.125)); // the file said so first
  CHECK(m.node(ports[1]).id == "mlx5_0:2");
  CHECK(m.node(ports[1]).number == 1);
  CHECK(m.node(ports[1]).rail == 3);
  CHECK(m.node(ports[1]).latency_us == doctest::Approx(1.5));
}
TEST_CASE("devices that no file knows go to their NUMA node, or to the first with a note") {
  MachineFile file = parse("<cpu numaid=\"0\"/><cpu numaid=\"1\"/>");
  const tutti_net_dev devices[] = {device("eth0", "/sys/devices/0000:0a:00.0", 25'000, 1), device("veth", "", 10'000)};
  const auto notes = add_net_devices(&file, devices);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("veth: its NUMA node is not known"));
  const Machine m = build(file);
  const auto ports = m.of_kind(NodeKind::net);
  REQUIRE(ports.size() == 2);
  CHECK(m.node(m.cpu_of(ports[0])).number == 1);
  CHECK(m.node(m.node(ports[0]).parent).id == "0000:0a:00.0");
  CHECK(m.gbps_up(ports[0]) == doctest::Approx(3.125));
  CHECK(m.node(m.cpu_of(ports[1])).number == 0);
  const tutti_net_dev more[] = {device("eth0"), device("a"), device("b")};
  MachineFile bare = parse("<cpu numaid=\"0\"/>");
  add_net_devices(&bare, more);
  const Machine cards = build(bare); // a card of its own for each
  CHECK(cards.of_kind(NodeKind::nic).size() == 3);
  CHECK(cards.notes().back().ends_with("speed of b is not known: 10 Gbit/s assumed"));
  MachineFile empty;
  const tutti_net_dev only[] = {[] {
    tutti_net_dev d = device("lo");
    d.flags = TUTTI_NET_LOOPBACK;
    return d;
  }()};
  add_net_devices(&empty, only);
  CHECK(build(empty).of_kind(NodeKind::net).size() == 1); // better than none
}
TEST_CASE("the latency of a path is the sum over its links, and a port's is what its file says") {
  const auto text = [](const char *latency) {
    return fmt::format(R"(<cpu numaid="0"><pci busid="0000:00:01.0" class="0x060400">
      <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0"/></pci>
      <pci busid="0000:02:00.0" class="0x020000"><nic><net name="n" dev="0" speed="1000" {}/></nic></pci></pci></cpu>
      <cpu numaid="1"><pci busid="0000:03:00.0" class="0x030200"><gpu dev="1"/></pci></cpu>)",
                       latency);
  };
  const Machine m = build(parse(text("latency=\"5.0\"")));
  const Paths paths(m);
  const int gpu = m.of_kind(NodeKind::gpu)[0], far = m.of_kind(NodeKind::gpu)[1], port = m.of_kind(NodeKind::net)[0];
  CHECK(paths.between(gpu, port).latency_us == doctest::Approx(2 * kPciUs + 2.5));
  CHECK(paths.between(gpu, far).latency_us == doctest::Approx(3 * kPciUs + kSysUs));
  const Machine unknown = build(parse(text("")));
  CHECK(Paths(unknown).between(gpu, port).latency_us == doctest::Approx(2 * kPciUs + kPortUs));
  const auto bad = parse(text("latency=\"slow\"")).machine();
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.status().error().message.find("latency=\"slow\": microseconds from 0") != std::string::npos);
}
