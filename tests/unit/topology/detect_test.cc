#include "topology/detect.h"
#include "topology/paths.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace tutti;
namespace fs = std::filesystem;

namespace {

// A folder with what sysfs would have, as far as a test writes it.
struct Sysfs {
  fs::path root = fs::path("sysfs-" + std::to_string(getpid()));
  Sysfs() { fs::create_directories(root); }
  ~Sysfs() { fs::remove_all(root); }
  void file(const std::string &path, const std::string &text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  void pci(const std::string &busid, const std::string &speed, const std::string &width) {
    file("bus/pci/devices/" + busid + "/max_link_speed", speed);
    file("bus/pci/devices/" + busid + "/max_link_width", width);
  }
  DetectFrom from() const {
    return {root.string(), std::string(TUTTI_SOURCE_DIR) + "/tests/data/topology/two_sockets.hwloc.xml", false};
  }
};

bool says(const std::vector<std::string> &notes, std::string_view text) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string &n) { return n.find(text) != n.npos; });
}

} // namespace

TEST_CASE("what hwloc and sysfs show becomes a topology file: processors, switches, accelerators, ports") {
  Sysfs sys;
  for (const char *busid : {"0000:03:00.0", "0000:43:00.0", "0000:01:00.0", "0000:41:00.0"})
    sys.pci(busid, "16.0 GT/s PCIe", "16");
  sys.pci("0000:04:00.0", "Unknown", "255");
  sys.file("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
  sys.file("class/infiniband/mlx5_0/node_guid", "0c42:a103:0011:2233");
  sys.file("class/infiniband/mlx5_1/ports/1/rate", "100 Gb/sec (4X EDR)");
  sys.file("class/infiniband/mlx5_1/ports/2/rate", "100 Gb/sec (4X EDR)");
  sys.file("class/net/eth0/speed", "1000");
  MachineFile file;
  const auto notes = complete_machine(&file, sys.from());
  REQUIRE(notes.ok());
  const auto built = file.machine();
  REQUIRE_MESSAGE(built.ok(), built.status().error().message);
  const Machine &m = *built;
  INFO(file.text());
  CHECK(m.of_kind(NodeKind::cpu).size() == 2);
  CHECK(m.node(m.of_kind(NodeKind::cpu)[1]).affinity == "0000000c");
  CHECK(m.of_kind(NodeKind::gpu).size() == 2); // the console is none
  // Of port, switch, port the switch alone is a place.
  REQUIRE(m.of_kind(NodeKind::pci).size() == 2);
  CHECK(m.find(NodeKind::pci, "0000:01:00.0") >= 0);
  CHECK(m.find(NodeKind::pci, "0000:41:00.0") >= 0);
  CHECK(m.of_kind(NodeKind::nic).size() == 3);
  REQUIRE(m.of_kind(NodeKind::net).size() == 4); // and not ib0, ib1: they are the adapters' ports
  const auto gbps = [&](const char *port) { return m.link(m.links_from(m.find(NodeKind::net, port)).front()).gbps; };
  CHECK(gbps("mlx5_0") == doctest::Approx(25));
  CHECK(gbps("mlx5_1") == doctest::Approx(12.5));
  CHECK(gbps("eth0") == doctest::Approx(0.125));
  const Paths paths(m);
  const Path &p = paths.between(m.find(NodeKind::gpu, "0000:03:00.0"), m.find(NodeKind::nic, "0000:04:00.0"));
  CHECK(p.kind == PathKind::pix);
  CHECK(p.gbps == doctest::Approx(12)); // 8 GT/s assumed
  CHECK(says(m.notes(), "without a known link_speed"));
  CHECK(file.text().find("guid=\"0x0c42a10300112233\"") != std::string::npos);
}
TEST_CASE("a partial file keeps what it says, and gets what it leaves out") {
  Sysfs sys;
  sys.pci("0000:03:00.0", "16.0 GT/s PCIe", "16");
  auto file = MachineFile::parse("<system version=\"1\">\n"
                                 "  <cpu numaid=\"1\" vendor=\"GenuineIntel\">\n"
                                 "    <pci busid=\"0000:03:00.0\" link_width=\"4\" shelf=\"7\" />\n"
                                 "  </cpu>\n"
                                 "</system>\n",
                                 "part.xml");
  REQUIRE(file.ok());
  REQUIRE(complete_machine(&*file, sys.from()).ok());
  const std::string once = file->text();
  INFO(once);
  CHECK(once.find("shelf=\"7\"") != std::string::npos);
  const auto m = file->machine();
  REQUIRE(m.ok());
  const int gpu = m->find(NodeKind::gpu, "0000:03:00.0");
  REQUIRE(gpu >= 0);
  CHECK(m->node(m->node(gpu).parent).label() == "CPU/1"); // although hwloc sees it at the other one
  CHECK(m->link(m->links_from(gpu).front()).gbps == doctest::Approx(6));
  CHECK(m->node(m->node(gpu).parent).intel);
  REQUIRE(complete_machine(&*file, sys.from()).ok());
  CHECK(file->text() == once); // nothing is added twice
}
TEST_CASE("this machine is found, whatever it hides") {
  MachineFile file;
  const auto notes = complete_machine(&file);
  REQUIRE(notes.ok());
  const auto m = file.machine();
  INFO(file.text());
  REQUIRE(m.ok());
  CHECK(!m->of_kind(NodeKind::cpu).empty());
}
TEST_CASE("where no PCI device is visible, it is said, and interfaces that are up stand in") {
  Sysfs sys;
  sys.file("class/net/eth7/operstate", "up");
  sys.file("class/net/eth7/speed", "25000");
  sys.file("class/net/eth8/operstate", "down");
  sys.file("machine.xml",
           "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" "
           "complete_cpuset=\"0x1\" allowed_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" "
           "gp_index=\"1\">"
           "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
           "complete_nodeset=\"0x1\" gp_index=\"2\"/>"
           "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
           "gp_index=\"3\"/>"
           "</object></topology>");
  MachineFile file;
  const auto notes = complete_machine(&file, {sys.root.string(), (sys.root / "machine.xml").string(), false});
  REQUIRE(notes.ok());
  CHECK(says(*notes, "no PCI devices of note"));
  CHECK(says(*notes, "the maker of the processor is not visible"));
  const auto m = file.machine();
  REQUIRE(m.ok());
  REQUIRE(m->of_kind(NodeKind::net).size() == 1);
  CHECK(m->node(m->of_kind(NodeKind::net)[0]).id == "eth7");
  CHECK(!complete_machine(&file, {sys.root.string(), "no/such/file.xml", false}).ok());
}
