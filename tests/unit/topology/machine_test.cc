#include "topology/machine_file.h"
#include "topology/paths.h"
#include <doctest/doctest.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace tutti;

namespace {

const std::string kFolder = std::string(TUTTI_SOURCE_DIR) + "/tests/data/topology/";

Machine load(const std::string &name) {
  auto file = MachineFile::read(kFolder + name);
  REQUIRE(file.ok());
  auto machine = file->machine();
  REQUIRE_MESSAGE(machine.ok(), machine.status().error().message);
  return std::move(machine).value();
}

// The message that a text is refused with; "" if it is not.
std::string refusal(const std::string &text) {
  auto file = MachineFile::parse(text, "t.xml");
  if (!file.ok()) return file.status().error().message;
  auto machine = file->machine();
  return machine.ok() ? "" : machine.status().error().message;
}
bool refused(const std::string &text, const std::string &start) {
  const std::string message = refusal(text);
  INFO(message);
  return message.starts_with(start);
}
std::string host(const std::string &inside) {
  return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + inside + "\n</cpu></system>\n";
}

struct Ends {
  const Machine &m;
  Paths paths{m};
  const Path &operator()(NodeKind a, std::string_view x, NodeKind b, std::string_view y) const {
    REQUIRE(m.find(a, x) >= 0);
    REQUIRE(m.find(b, y) >= 0);
    return paths.between(m.find(a, x), m.find(b, y));
  }
};

} // namespace

TEST_CASE("a file becomes nodes and links with the bandwidths of their kinds") {
  const Machine m = load("two_switches.xml");
  CHECK(m.of_kind(NodeKind::gpu).size() == 4);
  CHECK(m.of_kind(NodeKind::pci).size() == 2);
  CHECK(m.of_kind(NodeKind::nic).size() == 2);
  const int gpu = m.find(NodeKind::gpu, "0000:11:00.0"), sw = m.find(NodeKind::pci, "0000:10:00.0");
  CHECK(m.link(m.find_link(gpu, sw, LinkKind::pci)).gbps == doctest::Approx(24));
  CHECK(m.link(m.find_link(sw, gpu, LinkKind::pci)).gbps == doctest::Approx(24));
  const int net = m.find(NodeKind::net, "mlx5_0");
  CHECK(m.link(m.find_link(net, m.node(net).parent, LinkKind::net)).gbps == doctest::Approx(25));
  const int peer = m.find(NodeKind::gpu, "0000:12:00.0");
  CHECK(m.link(m.find_link(gpu, peer, LinkKind::nvl)).gbps == doctest::Approx(40));
  CHECK(m.notes().empty());
}
TEST_CASE("paths have the kind, the bandwidth and the hops of the closest way") {
  const Machine m = load("two_switches.xml");
  const Ends path{m};
  using enum NodeKind;
  CHECK(path(gpu, "0000:11:00.0", gpu, "0000:11:00.0").kind == PathKind::loc);
  CHECK(path(gpu, "0000:11:00.0", gpu, "0000:12:00.0").kind == PathKind::nvl);
  const Path &diagonal = path(gpu, "0000:11:00.0", gpu, "0000:22:00.0");
  CHECK(diagonal.kind == PathKind::nvb);
  CHECK(diagonal.links.size() == 2);
  CHECK(path(gpu, "0000:11:00.0", nic, "0000:13:00.0").kind == PathKind::pix);
  const Path &far = path(gpu, "0000:11:00.0", nic, "0000:23:00.0");
  CHECK(far.kind == PathKind::sys);
  CHECK(far.gbps == doctest::Approx(16));
  CHECK(far.links.size() == 5);
  CHECK(path(gpu, "0000:11:00.0", net, "mlx5_0").kind == PathKind::pix);
  // By NVLink to a GPU beside the other NIC, and not through the processors.
  const Path &pxn = path(gpu, "0000:11:00.0", net, "mlx5_1");
  CHECK(pxn.kind == PathKind::pxn);
  CHECK(pxn.gbps == doctest::Approx(24));
  CHECK(pxn.links.size() == 4);
  const Paths without(m, {.nvlink = false, .pxn = false});
  CHECK(without.between(m.find(gpu, "0000:11:00.0"), m.find(gpu, "0000:12:00.0")).kind == PathKind::pix);
}
TEST_CASE("a path is made of links that follow one another") {
  for (const char *name : {"two_switches.xml", "nvswitch.xml", "chip_to_chip.xml"}) {
    const Machine m = load(name);
    const Paths paths(m);
    for (int a = 0; a < static_cast<int>(m.nodes().size()); a++)
      for (int b = 0; b < static_cast<int>(m.nodes().size()); b++) {
        if (paths.between(a, b).kind == PathKind::dis) continue;
        int at = a;
        for (int l : paths.between(a, b).links) {
          CHECK(m.link(l).from == at);
          at = m.link(l).to;
        }
        CHECK(at == b);
      }
  }
}
TEST_CASE("NVSwitches are passed, and traffic through an Intel processor counts more") {
  const Machine m = load("nvswitch.xml");
  const Ends path{m};
  const Path &p = path(NodeKind::gpu, "0000:10:00.0", NodeKind::gpu, "0000:80:00.0");
  CHECK(p.kind == PathKind::nvl);
  CHECK(p.gbps == doctest::Approx(18 * 20.6));
  const Paths without(m, {.nvlink = false, .pxn = false});
  const Path &q = without.between(m.find(NodeKind::gpu, "0000:10:00.0"), m.find(NodeKind::gpu, "0000:80:00.0"));
  CHECK(q.kind == PathKind::phb);
  CHECK(q.expansion == doctest::Approx(1.2));
  CHECK(q.gbps == doctest::Approx(40));
}
TEST_CASE("C2C, then PCI, is closer than PCI through the processor, both ways") {
  const Machine m = load("chip_to_chip.xml");
  const Ends path{m};
  CHECK(path(NodeKind::gpu, "0000:01:00.0", NodeKind::cpu, "0").kind == PathKind::c2c);
  CHECK(path(NodeKind::gpu, "0000:01:00.0", NodeKind::nic, "0000:03:00.0").kind == PathKind::p2c);
  CHECK(path(NodeKind::nic, "0000:03:00.0", NodeKind::gpu, "0000:01:00.0").kind == PathKind::p2c);
  CHECK(path(NodeKind::nic, "0000:03:00.0", NodeKind::gpu, "0000:01:00.0").gbps == doctest::Approx(48));
}
TEST_CASE("ranks sit on GPUs, also those known by class; on CPUs when there are none; on NICs of a single CPU") {
  CHECK(load("two_switches.xml").places().size() == 4);
  const Machine cpus = load("no_gpu.xml");
  REQUIRE(cpus.places().size() == 2);
  CHECK(cpus.node(cpus.places()[0]).kind == NodeKind::cpu);
  CHECK(cpus.notes().size() == 2); // what was assumed is said
  const auto machine = [](const std::string &text) { return std::move(MachineFile::parse(text, "t")->machine()).value(); };
  const Machine by_class =
      machine(host("<pci busid=\"1:00.0\" class=\"0x030200\"/><pci busid=\"2:00.0\" class=\"0x120000\"/>"));
  CHECK(by_class.of_kind(NodeKind::gpu).size() == 2);
  CHECK(by_class.node(by_class.places()[1]).number == 1);
  const Machine nics = machine(host("<pci busid=\"1:00.0\" class=\"0x020000\"/><pci busid=\"2:00.0\" class=\"0x020700\"/>"));
  REQUIRE(nics.places().size() == 2);
  CHECK(nics.node(nics.places()[0]).kind == NodeKind::nic);
}
TEST_CASE("what is not understood is still there after writing") {
  std::ifstream in(kFolder + "two_switches.xml");
  std::ostringstream text;
  text << in.rdbuf();
  auto file = MachineFile::read(kFolder + "two_switches.xml");
  REQUIRE(file.ok());
  CHECK(file->text() == text.str()); // it is written as we would
  const std::string path = "topology-" + std::to_string(getpid()) + ".xml";
  REQUIRE(file->write(path).ok());
  auto again = MachineFile::read(path);
  ::unlink(path.c_str());
  REQUIRE(again.ok());
  CHECK(again->text() == text.str());
  CHECK(!file->write("no/such/folder/t.xml").ok());
}
TEST_CASE("files that are wrong are refused with the line") {
  CHECK(refused("", "t.xml:1: not well-formed XML"));
  CHECK(refused("<system version=\"1\">\n<cpu numaid=\"0\">\n</system>", "t.xml:3: not well-formed XML"));
  CHECK(refused("<graphs version=\"1\"/>", "t.xml:1: a topology file has <system>"));
  CHECK(refused("\n<system version=\"9\"/>", "t.xml:2: <system version=\"9\">"));
  CHECK(refused("<system version=\"1\"/>\n<system version=\"1\"/>", "t.xml:1: more than one root"));
  CHECK(refused("<system version=\"1\"/>", "t.xml:1: <system>: no <cpu>"));
  CHECK(refused("<system version=\"1\">\n<cpu/>\n</system>", "t.xml:2: <cpu>: numaid is missing"));
  CHECK(refused("<system version=\"1\">\n<cpu numaid=\"x\"/>\n</system>", "t.xml:2: <cpu>: numaid=\"x\""));
  CHECK(refused("<system version=\"1\">\n<cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>",
                "t.xml:3: <cpu>: numaid=\"0\" twice"));
  CHECK(refused(host("<pci busid=\"zz:00.0\"/>"), "t.xml:3: <pci>: busid=\"zz:00.0\""));
  CHECK(refused(host("<pci busid=\"0:1:2.3.4\"/>"), "t.xml:3: <pci>: busid"));
  CHECK(refused(host("<pci busid=\"1:00.0\" link_width=\"wide\"/>"), "t.xml:3: <pci>: link_width=\"wide\""));
  CHECK(refused(host("<pci busid=\"1:00.0\" class=\"display\"/>"), "t.xml:3: <pci>: class=\"display\""));
  const std::string gpu = "\"><gpu dev=\"0\" sm=\"80\"/></pci>\n";
  CHECK(refused(host("<pci busid=\"1:00.0" + gpu + "<pci busid=\"2:00.0" + gpu), "t.xml:4: <gpu>: dev=\"0\" twice"));
  CHECK(
      refused(host("<pci busid=\"1:00.0" + gpu + "<pci busid=\"1:00.0" + gpu), "t.xml:4: <pci>: busid=\"0000:01:00.0\" twice"));
  const auto linked = [](const std::string &link) {
    return host("<pci busid=\"1:00.0\"><gpu dev=\"0\" sm=\"80\">\n" + link + "</gpu></pci>");
  };
  CHECK(refused(linked("<nvlink target=\"?\"/>"), "t.xml:4: <nvlink>: target=\"?\""));
  CHECK(refused(linked("<nvlink target=\"1:00.0\"/>"), "t.xml:4: <nvlink>: target=\"0000:01:00.0\" is the GPU itself"));
  CHECK(refused(linked("<nvlink target=\"2:00.0\" count=\"0\"/>"), "t.xml:4: <nvlink>: count=\"0\""));
  CHECK(refused(linked("<c2c count=\"1\"/>"), "t.xml:4: <c2c>: bw is missing"));
  CHECK(refused(host("<nic>\n<net name=\"a\"/></nic>"), "t.xml:4: <net>: dev is missing"));
  CHECK(refused(host("<nic>\n<net name=\"a\" dev=\"0\" speed=\"fast\"/></nic>"), "t.xml:4: <net>: speed=\"fast\""));
  CHECK(refusal(linked("<nvlink target=\"2:00.0\" tclass=\"0x030200\"/>")) == ""); // a GPU that this job does not see
  CHECK(!MachineFile::read("no/such/file.xml").ok());
}
TEST_CASE("files beyond all measure are refused before they take time or memory") {
  std::string wide;
  const auto nested = [](int levels) {
    std::string deep;
    for (int i = 0; i < levels; i++) deep += fmt::format("<pci busid=\"{:x}:00.0\">", i & 0xff);
    for (int i = 0; i < levels; i++) deep += "</pci>";
    return deep;
  };
  CHECK(refused(host(nested(100)), "t.xml:3: <pci>: more than 64 levels"));
  CHECK(refused(host(nested(50'000)), "t.xml:3: more than 128 levels of elements"));
  for (int i = 0; i < 5000; i++) wide += fmt::format("<pci busid=\"{:04x}:00:00.0\"/>", i);
  CHECK(refused(host(wide), "t.xml:3: <pci>: more than 512 devices"));
}
TEST_CASE("PCI addresses are brought into one form") {
  CHECK(normal_busid("0000:0C:00.0") == "0000:0c:00.0");
  CHECK(normal_busid("c:00.0") == "0000:0c:00.0");
  CHECK(normal_busid("10000:0c:1f.7") == "10000:0c:1f.7");
  CHECK(normal_busid("") == "");
  CHECK(normal_busid("0000:0c:00") == "");
  CHECK(normal_busid("0000:0c:00.0x") == "");
}
