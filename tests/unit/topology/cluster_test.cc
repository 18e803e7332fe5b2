#include "cluster_check.h"
#include "topology/host_trees.h"
#include "topology/machine_file.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <set>

using namespace tutti;

namespace {

Machine load(const std::string &name) {
  auto file = MachineFile::read(std::string(TUTTI_SOURCE_DIR) + "/tests/data/topology/" + name);
  REQUIRE(file.ok());
  auto machine = file->machine();
  REQUIRE(machine.ok());
  return std::move(machine).value();
}
Machine parse(const std::string &text) {
  const auto file = MachineFile::parse("<system version=\"1\">" + text + "</system>", "t.xml");
  REQUIRE(file.ok());
  auto machine = file->machine();
  REQUIRE_MESSAGE(machine.ok(), machine.status().error().line());
  return std::move(machine).value();
}

std::string nic(int bus, int dev, int mbps, const std::string &more = "") {
  return fmt::format("<pci busid=\"0000:{:02x}:00.0\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic>"
                     "<net name=\"n{}\" dev=\"{}\" speed=\"{}\" {}/></nic></pci>",
                     bus, dev, dev, mbps, more);
}
std::string gpu(int bus, int dev) {
  return fmt::format("<pci busid=\"0000:{:02x}:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
                     "<gpu dev=\"{}\" sm=\"80\"/></pci>",
                     bus, dev);
}
// NUMA nodes of AMD: 16 GB/s between them.
std::string cpu(int numa, const std::string &inside) {
  return fmt::format("<cpu numaid=\"{}\" affinity=\"{:08x}\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" "
                     "modelid=\"49\">{}</cpu>",
                     numa, 0xfu << (4 * numa), inside);
}

// Hosts alike, `each` ranks on every one; rank r on host r % hosts when dealt, else in blocks.
ClusterInput job(const Machine &machine, int hosts, int each, bool dealt = false, Seat seat = {}) {
  ClusterInput input;
  input.machines.push_back(machine);
  input.hosts.resize(static_cast<size_t>(hosts));
  for (int r = 0; r < hosts * each; r++) input.ranks.push_back({.host = dealt ? r % hosts : r / each, .seat = seat});
  return input;
}
Cluster make(const ClusterInput &input, const ClusterRules &rules = {}) {
  auto cluster = make_cluster(input, rules);
  REQUIRE_MESSAGE(cluster.ok(), cluster.status().error().line());
  CHECK(verify::cluster_fault(*cluster) == "");
  return std::move(cluster).value();
}
bool says(const Cluster &c, std::string_view text) {
  return std::any_of(c.why.begin(), c.why.end(), [&](const std::string &l) { return l.find(text) != std::string::npos; });
}
double ring_total(const Cluster &c) {
  return c.ring_gbps * static_cast<double>(c.channels.size());
}

} // namespace

TEST_CASE("the two trees over hosts span them, are shallow, and who is inner in one is a leaf of the other") {
  for (int n = 1; n <= 130; n++) {
    int depth_limit = 1;
    while (1 << depth_limit <= n) depth_limit++;
    std::vector<std::vector<int>> below(2, std::vector<int>(static_cast<size_t>(n)));
    for (int tree : {0, 1}) {
      const std::vector<int> parents = host_tree(n, tree);
      CHECK(std::count(parents.begin(), parents.end(), -1) == 1);
      for (int i = 0; i < n; i++) {
        int depth = 0;
        for (int at = i; at >= 0 && depth <= n; at = parents[static_cast<size_t>(at)]) depth++;
        CHECK(depth <= depth_limit);
        if (const int up = parents[static_cast<size_t>(i)]; up >= 0)
          below[static_cast<size_t>(tree)][static_cast<size_t>(up)]++;
      }
      CHECK(*std::max_element(below[static_cast<size_t>(tree)].begin(), below[static_cast<size_t>(tree)].end()) <= 2);
    }
    for (size_t i = 0; i < static_cast<size_t>(n); i++) CHECK((below[0][i] == 0 || below[1][i] == 0));
  }
}
TEST_CASE("hosts alike: rings pass each once by a NIC of one rail, and both NICs carry the same") {
  const Cluster c = make(job(load("two_switches.xml"), 3, 4));
  CHECK(c.channels.size() == 4);             // two for each NIC
  CHECK(c.ring_gbps == doctest::Approx(12)); // each NIC and its GPU by PCI 4.0 x16
  CHECK(c.tree_gbps == doctest::Approx(8));  // three hosts: one has two neighbours in a tree and one in the other
  CHECK_FALSE(c.crossed);
  for (const ClusterChannel &channel : c.channels)
    for (const auto &u : channel.hosts) CHECK(u.rail == channel.hosts.front().rail);
  CHECK(says(c, "12 ranks on 3 hosts"));
  CHECK(says(c, "cross_nic 2: 48 GB/s by the same NIC"));
  const Cluster again = make(job(load("two_switches.xml"), 3, 4));
  CHECK(encode_cluster(again) == encode_cluster(c));
}
TEST_CASE("rings leave by another NIC where that spares the link between NUMA nodes, unless it is forbidden") {
  // A GPU and a NIC on each side of 16 GB/s: by the same NIC every ring passes that link both ways.
  const Machine m = parse(cpu(0, gpu(1, 0) + nic(2, 0, 200'000)) + cpu(1, gpu(3, 1) + nic(4, 1, 200'000)));
  const Cluster same = make(job(m, 4, 2), {.cross_nic = 0}), prefer = make(job(m, 4, 2)), odd = make(job(m, 3, 2));
  CHECK_FALSE(same.crossed);
  CHECK(ring_total(same) == doctest::Approx(16));
  CHECK(prefer.crossed);
  CHECK(ring_total(prefer) == doctest::Approx(24)); // into each GPU go two rings
  CHECK(says(prefer, "different ones taken"));
  CHECK(says(odd, "odd number of hosts"));
  const Cluster one = make(job(m, 4, 2), {.max_channels = 1});
  CHECK(one.channels.size() == 1);
  CHECK_FALSE(one.crossed); // two directions are two channels
}
TEST_CASE("fewer NICs than channels share their bandwidth") {
  const Machine m = parse(cpu(0, gpu(1, 0) + gpu(2, 1) + nic(3, 0, 100'000)));
  const Cluster c = make(job(m, 2, 2), {.min_channels = 4});
  CHECK(c.channels.size() == 4);
  CHECK(c.ring_gbps == doctest::Approx(12.5 / 4));
  CHECK(says(c, "limited by port n0: 12.5 GB/s, passed 4 times"));
}
TEST_CASE("a slow NIC is left out, as each channel would wait for it") {
  const Machine m = parse(cpu(0, gpu(1, 0) + nic(2, 0, 1000) + nic(3, 1, 100'000) + nic(4, 2, 100'000)));
  const Cluster c = make(job(m, 2, 1));
  REQUIRE(c.hosts[0].ports.size() == 2);
  CHECK(c.hosts[0].ports[0].name == "n1");
  CHECK(says(c, "n0 (0.125 GB/s)"));
}
TEST_CASE("rails are in order of PCI addresses unless the file says otherwise") {
  const Machine plain = parse(cpu(0, gpu(1, 0) + nic(9, 0, 100'000) + nic(4, 1, 100'000)));
  CHECK(make(job(plain, 2, 1)).hosts[0].ports[0].name == "n1");
  const Machine said = parse(cpu(0, gpu(1, 0) + nic(9, 0, 100'000, "rail=\"0\"") + nic(4, 1, 100'000, "rail=\"1\"")));
  const Cluster c = make(job(said, 2, 1));
  CHECK(c.hosts[0].ports[0].name == "n0");
  CHECK(c.hosts[0].ports[1].rail == 1);
}
TEST_CASE("ports of one card, or close ones, count as one NIC when asked to") {
  std::string second = nic(2, 1, 100'000);
  second.replace(second.find(":00.0"), 5, ":00.1");
  const Machine m = parse(cpu(0, gpu(1, 0) + nic(2, 0, 100'000) + second + nic(3, 2, 200'000)));
  CHECK(make(job(m, 2, 1)).hosts[0].ports.size() == 3);
  const Cluster card = make(job(m, 2, 1), {.merge_port = true});
  REQUIRE(card.hosts[0].ports.size() == 2);
  CHECK(card.hosts[0].ports[0].name == "n0+n1");
  CHECK(card.hosts[0].ports[0].devs == std::vector<int32_t>{0, 1});
  CHECK(card.hosts[0].ports[0].gbps == doctest::Approx(25));
  CHECK(ring_total(card) == doctest::Approx(24)); // the GPU's own link
  CHECK(make(job(m, 2, 1), {.merge = PathKind::phb}).hosts[0].ports.size() == 1);
}
TEST_CASE("what may not go directly goes through host memory, and links are loaded accordingly") {
  // Two GPUs and a NIC below one switch: directly nothing passes the switch's own link.
  const std::string below = gpu(1, 0) + gpu(2, 1) + nic(3, 0, 200'000);
  const Machine m = parse(cpu(
      0, "<pci busid=\"0000:00:01.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" + below + "</pci>"));
  CHECK(make(job(m, 2, 2)).ring_gbps == doctest::Approx(24));
  CHECK(make(job(m, 2, 2), {.gdr_level = PathKind::loc}).ring_gbps == doctest::Approx(12));
  CHECK(make(job(m, 2, 2), {.p2p_level = PathKind::loc, .gdr_level = PathKind::loc}).ring_gbps == doctest::Approx(8));
}
TEST_CASE("ranks on processors have one channel for each NIC, NUMA node by NUMA node") {
  const Machine m = parse(cpu(0, nic(2, 0, 100'000)) + cpu(1, ""));
  ClusterInput input = job(m, 2, 6);
  for (size_t r = 0; r < input.ranks.size(); r++) {
    const std::vector<uint64_t> words{r % 2 ? 0x30u : 0x3u};
    input.ranks[r].seat = {Seat::Kind::cpus, -1, CpuSet::from_words(words)};
  }
  const Cluster c = make(input);
  REQUIRE(c.channels.size() == 1);
  CHECK(c.ring_gbps == doctest::Approx(12.5));
  int changes = 0;
  for (size_t i = 0; i + 1 < 6; i++) changes += c.channels[0].ring[i] % 2 != c.channels[0].ring[i + 1] % 2;
  CHECK(changes == 1);
  CHECK(c.new_rank == std::vector<int32_t>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11});
  CHECK(says(c, "ranks on processors"));
  CHECK(make(input, {.min_channels = 3}).channels.size() == 3);
}
TEST_CASE("where nothing is known there still is a channel, and it says so") {
  const Machine m = parse("<cpu numaid=\"0\"/>");
  const Cluster one = make(job(m, 1, 5)), two = make(job(m, 2, 2));
  CHECK(one.channels.size() == 1);
  CHECK(one.ring_gbps == 0);
  CHECK(one.channels[0].ring.size() == 5);
  CHECK(says(two, "no NIC is known"));
  CHECK(two.channels[0].hosts[0].port_in == -1);
}
TEST_CASE("a single host has the rings of its own search, over the places where ranks are") {
  const Machine m = load("two_switches.xml");
  CHECK(ring_total(make(job(m, 1, 4))) == doctest::Approx(search_channels(m).rings.total()));
  ClusterInput some = job(m, 1, 2);
  some.ranks[0].seat = {Seat::Kind::gpu, 3};
  some.ranks[1].seat = {Seat::Kind::gpu, 1};
  const Cluster c = make(some);
  CHECK(c.hosts[0].ranks == std::vector<int32_t>{1, 0}); // in order of their GPUs
}
TEST_CASE("ranks that are dealt over hosts get new numbers that keep hosts together") {
  const Cluster c = make(job(load("two_switches.xml"), 3, 4, true));
  for (size_t r = 0; r < 12; r++) CHECK(c.new_rank[r] / 4 == static_cast<int>(r % 3));
}
TEST_CASE("hosts of one switch are next to each other") {
  ClusterInput input = job(load("two_switches.xml"), 4, 4);
  for (size_t h = 0; h < 4; h++) input.hosts[h].where = h % 2 ? "a" : "b";
  CHECK(make(input).host_order == std::vector<int32_t>{0, 2, 1, 3});
  input.hosts[2].where = "";
  CHECK(make(input).host_order == std::vector<int32_t>{0, 1, 3, 2});
}
TEST_CASE("hosts of several kinds have equally many channels") {
  ClusterInput input = job(load("two_switches.xml"), 2, 4);
  input.machines.push_back(parse(cpu(0, gpu(1, 0) + gpu(2, 1) + nic(3, 0, 40'000))));
  input.hosts.push_back({.machine = 1});
  for (int i = 0; i < 2; i++) input.ranks.push_back({.host = 2});
  const Cluster c = make(input);
  CHECK(ring_total(c) == doctest::Approx(5));
  CHECK(says(c, "3 hosts of 2 kinds"));
}
TEST_CASE("a thousand ranks on 128 hosts have sound channels") {
  const Cluster c = make(job(load("nvswitch.xml"), 128, 8, true));
  CHECK(c.channels.front().ring.size() == 1024);
}
TEST_CASE("seats that a machine does not have, and hosts without ranks, are named") {
  const Machine m = load("two_switches.xml");
  const auto message = [](const ClusterInput &input, const ClusterRules &rules = {}) {
    const auto c = make_cluster(input, rules);
    return c.ok() ? "" : c.status().error().message;
  };
  ClusterInput input = job(m, 1, 2);
  input.ranks[1].seat = {Seat::Kind::gpu, 9};
  CHECK(message(input) == "rank 1: its host has no GPU 9; it has 0, 1, 2, 3");
  input = job(m, 1, 2);
  input.hosts.push_back({});
  CHECK(message(input) == "host 1 has no rank");
  input.ranks[0].host = 7;
  CHECK(message(input) == "rank 0: host 7 of 2");
  CHECK(message(job(m, 1, 2), {.min_channels = 3, .max_channels = 2}) == "3 to 2 channels");
}
TEST_CASE("channels and machines pass the wire whole, and any damage is refused or harmless") {
  const Machine m = load("two_switches.xml");
  const Cluster c = make(job(m, 3, 4));
  const std::vector<std::byte> bytes = encode_cluster(c);
  const auto read = decode_cluster(bytes);
  REQUIRE(read.ok());
  CHECK(encode_cluster(*read) == bytes);
  CHECK(cluster_json(*read) == cluster_json(c));
  for (size_t cut = 0; cut < bytes.size(); cut += 7) CHECK_FALSE(decode_cluster(std::span(bytes).first(cut)).ok());
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::vector<std::byte> bad = bytes;
    bad[at] ^= std::byte{0x81};
    if (const auto r = decode_cluster(bad); r.ok()) CHECK(encode_cluster(*r).size() == bytes.size());
  }
  const std::vector<std::byte> machine = encode_machine(m);
  const auto back = decode_machine(machine);
  REQUIRE(back.ok());
  CHECK(encode_machine(*back) == machine);
  CHECK(encode_cluster(make(job(*back, 3, 4))) == bytes);
  CHECK_FALSE(decode_machine(std::span(machine).first(machine.size() - 1)).ok());
}
TEST_CASE("rules come from the configuration") {
  const auto config = Config::from("[net]\ncross_nic = 1\nmerge_level = \"port\"\n[coll]\nmin_channels = 20", "t.toml",
                                   {{"NCCL_NET_GDR_LEVEL", "PIX"}, {"NCCL_P2P_LEVEL", "nvl"}, {"NCCL_PXN_DISABLE", "1"}});
  REQUIRE_MESSAGE(config.ok(), config.status().error().line());
  const ClusterRules r = cluster_rules(**config);
  CHECK(r.cross_nic == 1);
  CHECK(r.merge_port);
  CHECK(r.merge == PathKind::loc);
  CHECK(r.min_channels == 20);
  CHECK(r.max_channels == 20);
  CHECK(r.gdr_level == PathKind::pix);
  CHECK(r.p2p_level == PathKind::nvl);
  CHECK_FALSE(r.pxn);
}
