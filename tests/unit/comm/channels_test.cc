// Channels as the search told them: what algorithms, links and the tuner get of them, and how files change them.
#include "comm/channel_graphs.h"
#include "comm/channels.h"
#include "comm/select/determinism.h"
#include "comm/select/limits.h"
#include <cstdio>
#include <doctest/doctest.h>
#include <fstream>
#include <map>
#include <set>
#include <unistd.h>

using namespace tutti;

namespace {

CpuSet cpu(int number) {
  const uint64_t word = uint64_t(1) << number;
  return CpuSet::from_words({&word, 1});
}

// Two NUMA nodes of a core each, ports of 10 Gbit/s with these numbers at them in turn.
Machine two_nodes(const std::vector<int> &ports = {0, 1}) {
  Machine m;
  for (int i = 0; i < 2; i++)
    m.add({.kind = NodeKind::cpu, .id = std::to_string(i), .number = i, .affinity = i ? "00000002" : "00000001"});
  m.connect_both(0, 1, LinkKind::sys, 10);
  for (int i = 0; i < static_cast<int>(ports.size()); i++) {
    const int nic = m.add({.kind = NodeKind::nic, .id = fmt::format("0000:{}0:00.0", i + 1), .parent = i});
    m.connect_both(nic, i, LinkKind::pci, 12);
    const int number = ports[static_cast<size_t>(i)];
    const int port = m.add({.kind = NodeKind::net, .id = fmt::format("eth{}", i), .number = number, .parent = nic});
    m.connect_both(port, nic, LinkKind::net, 1.25);
  }
  return m;
}

// `hosts` such machines with a rank on each core, core 0 first or last in turn.
ClusterInput job(int hosts) {
  ClusterInput in;
  in.machines.push_back(two_nodes());
  for (int h = 0; h < hosts; h++) {
    in.hosts.push_back({0, fmt::format("h{}", h), ""});
    for (int i = 0; i < 4; i++) in.ranks.push_back({h, {Seat::Kind::cpus, -1, cpu(i % 2)}});
  }
  return in;
}

Topology topology_of(const ClusterInput &in, const Cluster &cluster) {
  std::vector<TopologyInput> ranks;
  for (const auto &r : in.ranks) ranks.push_back({static_cast<uint64_t>(r.host), r.seat.cpus});
  Topology t = make_topology(ranks);
  t.cluster = std::make_shared<const Cluster>(cluster);
  return t;
}

Cluster searched(const ClusterInput &in) {
  auto c = make_cluster(in, {});
  REQUIRE_MESSAGE(c.ok(), (c.ok() ? "" : c.status().error().message));
  return *c;
}

std::shared_ptr<const Config> config(const std::map<std::string, std::string> &environment) {
  auto c = Config::from("", "test", environment);
  REQUIRE(c.ok());
  return *c;
}

std::string error_of(const Status &s) {
  return s.ok() ? "" : s.error().message;
}

} // namespace

TEST_CASE("a topology file mended after an error is read, and the dump has the devices of the network") {
  const std::string file = fmt::format("/tmp/tutti-channels-{}.xml", getpid()), dump = file + ".dump";
  tutti_net_v1 net{};
  const auto described = [&](const Config &of) {
    NetSurvey survey({nullptr, &net}); // of one communicator
    return host_machine(of, survey);
  };
  net.device_count = [](void *, uint32_t *count) noexcept -> tutti_status { return (*count = 1, TUTTI_OK); };
  net.device_info = [](void *, uint32_t, tutti_net_dev *d) noexcept -> tutti_status {
    std::string_view("fake7").copy(d->name, sizeof d->name - 1);
    d->numa_node = d->rail = -1;
    return TUTTI_OK;
  };
  const auto c = config({{"TUTTI_TOPO_FILE", file}, {"TUTTI_TOPO_DUMP_FILE", dump}});
  std::ofstream(file) << "<system version=\"1\"><cpu numaid=\"x\"/></system>";
  CHECK(error_of(described(*c).status()).find("numaid=\"x\"") != std::string::npos);
  std::ofstream(file) << "<system version=\"1\"><cpu numaid=\"0\"><nic><net name=\"none\" dev=\"0\"/></nic></cpu></system>";
  const auto host = described(*c);
  REQUIRE(host.ok());
  const Machine &m = (*host)->machine;
  REQUIRE(m.of_kind(NodeKind::net).size() == 1);
  CHECK(m.node(m.of_kind(NodeKind::net)[0]).id == "fake7");
  std::string notes, dumped;
  for (const std::string &n : (*host)->notes) notes += n + "\n";
  CHECK(notes.find("no devices of the network in use: none") != std::string::npos);
  CHECK(notes.find("speed of fake7 is not known: 10 Gbit/s assumed") != std::string::npos);
  std::getline(std::ifstream(dump), dumped, '\0');
  CHECK(dumped.find("name=\"fake7\"") != std::string::npos);
  CHECK(dumped.find("name=\"none\"") == std::string::npos);
  CHECK(described(*c)->get() == host->get()); // described once
  std::remove(file.c_str());
  std::remove(dump.c_str());
}

TEST_CASE("a host is described anew when a device of the network has come or gone, and only then") {
  static std::vector<std::string> devices;
  static int asked = 0;
  tutti_net_v1 net{};
  net.device_count = [](void *, uint32_t *count) noexcept -> tutti_status {
    asked++;
    return (*count = static_cast<uint32_t>(devices.size()), TUTTI_OK);
  };
  net.device_info = [](void *, uint32_t i, tutti_net_dev *d) noexcept -> tutti_status {
    devices[i].copy(d->name, sizeof d->name - 1);
    d->numa_node = 0, d->rail = -1, d->speed_mbps = 1000;
    return TUTTI_OK;
  };
  const auto c = config({});
  const auto ports = [&] {
    NetSurvey survey({nullptr, &net});
    const auto host = host_machine(*c, survey);
    REQUIRE(host.ok());
    REQUIRE(survey.devices().ok());
    std::map<int, std::string> names; // by number
    for (const int node : (*host)->machine.of_kind(NodeKind::net))
      names[(*host)->machine.node(node).number] = (*host)->machine.node(node).id;
    return std::pair(host->get(), names);
  };
  devices = {"a", "b", "c"};
  const auto before = ports();
  CHECK(before.second == std::map<int, std::string>{{0, "a"}, {1, "b"}, {2, "c"}});
  devices = {"b", "c"}; // its port has gone down
  const auto after = ports();
  CHECK(after.second == std::map<int, std::string>{{0, "b"}, {1, "c"}});
  CHECK(ports().first == after.first);
  CHECK(asked == 3); // once for each communicator
}

TEST_CASE("requests hold the searched ring, tree, head and rail of each channel, and more channels take them again") {
  const ClusterInput in = job(2);
  const Cluster cluster = searched(in);
  REQUIRE(cluster.channels.size() == 2);
  const Topology t = topology_of(in, cluster);
  for (int rank = 0; rank < 8; rank++) {
    const PlanRequest q = make_request(t, TUTTI_COLL_ALL_REDUCE, rank, -1, 3, 0);
    REQUIRE(q.channel.size() == 3);
    for (size_t c = 0; c < 3; c++) {
      const ClusterChannel &from = cluster.channels[c % 2];
      CHECK(q.channel[c].order == from.ring);
      CHECK(q.channel[c].tree_parent == from.parent[static_cast<size_t>(rank)]);
      CHECK(q.channel[c].tree_children == from.children[static_cast<size_t>(rank)]);
      CHECK(q.channel[c].head == from.hosts[static_cast<size_t>(rank / 4)].head);
      CHECK(q.channel[c].rail == from.hosts[static_cast<size_t>(rank / 4)].rail);
    }
    CHECK(q.channel[0].rail != q.channel[1].rail);
  }
}

TEST_CASE("one host has the searched rings and no trees, whose chains would be longer than those of algorithms") {
  const ClusterInput in = job(1);
  const Topology t = topology_of(in, searched(in));
  const PlanRequest q = make_request(t, TUTTI_COLL_ALL_REDUCE, 2, -1, 1, 0);
  CHECK(q.channel[0].order == std::vector<int32_t>{0, 2, 1, 3}); // ranks of a NUMA node next to each other
  CHECK(q.channel[0].tree_parent == -1);
  CHECK(q.channel[0].tree_children.empty());
  CHECK(reordering(*t.cluster, t) == "ring order: 0 1 2 3 -> 0 2 1 3");
}

TEST_CASE("both ends of a link call its way alike, and each channel goes by its own device") {
  const ClusterInput in = job(3);
  const Cluster cluster = searched(in);
  const Topology t = topology_of(in, cluster);
  std::vector<NetRoutes> routes;
  for (int r = 0; r < 12; r++) routes.push_back(net_routes(cluster, t, r));
  for (uint32_t c = 0; c < 4; c++)
    for (int a = 0; a < 12; a++)
      for (int b = 0; b < 12; b++) {
        if (a == b) continue;
        const uint32_t way = routes[static_cast<size_t>(a)].route(c, b, true);
        CHECK(way == routes[static_cast<size_t>(b)].route(c, a, false));
        CHECK(way > 0);
        const size_t host = static_cast<size_t>(a) / 4;
        const ClusterChannel::Use &use = cluster.channels[c % 2].hosts[host];
        const int32_t port = way % 2 ? use.port_out : use.port_tree;
        const int32_t device = routes[static_cast<size_t>(a)].device(way, 0, true);
        CHECK(routes[static_cast<size_t>(a)].devices().at(static_cast<size_t>(device)) ==
              cluster.hosts[host].ports[static_cast<size_t>(port)].dev_names[0]);
      }
  CHECK(std::set<std::string>(routes[0].devices().begin(), routes[0].devices().end()) == std::set<std::string>{"eth0", "eth1"});
  CHECK(routes[0].channel_of_pair(0, 4) != routes[0].channel_of_pair(1, 5)); // neighbours' pairs take turns
}

TEST_CASE("hosts with one NIC do not tell channels apart, so that these share links") {
  ClusterInput in = job(2);
  in.machines[0] = two_nodes({3});
  const Cluster cluster = searched(in);
  CHECK(cluster.channels.size() == 1);
  const NetRoutes routes = net_routes(cluster, topology_of(in, cluster), 0);
  CHECK(routes.route(1, 4, true) == 0);
  CHECK(routes.device(0, 0, true) == 0);
  CHECK(routes.devices() == std::vector<std::string>{"eth0"});
  CHECK(NetRoutes().device(0, 0, true) == -1);
}

TEST_CASE("the search proposes its number of channels to long messages over several NICs, within the user's limits") {
  const ClusterInput two = job(2), one = job(1);
  const Topology across = topology_of(two, searched(two)), here = topology_of(one, searched(one));
  const auto limits = [&](const Topology &t, const std::map<std::string, std::string> &env) {
    const auto c = config(env);
    return channel_limits(static_cast<uint32_t>(c->number("coll.min_channels")),
                          static_cast<uint32_t>(c->number("coll.max_channels")), t);
  };
  CHECK(limits(across, {}).proposal(1 << 20) == 2);
  CHECK(limits(across, {}).proposal(1 << 10) == 1);
  CHECK(limits(across, {}).unmeasured == 2);
  CHECK(limits(across, {}).max == 64); // for what was measured
  CHECK(limits(across, {{"NCCL_MAX_NCHANNELS", "1"}}).proposal(1 << 20) == 1);
  CHECK(limits(across, {{"TUTTI_MIN_CHANNELS", "4"}}).proposal(8) == 4);
  CHECK(limits(here, {}).proposal(1 << 30) == 1); // memory is shared
  CHECK(limits(here, {}).unmeasured == 64);
}

TEST_CASE("what rank 0 tells arrives as it was, is shared by the ranks of a process, and a refusal is an error on all") {
  const ClusterInput in = job(2);
  const Cluster cluster = searched(in);
  const ChannelPlan plan{std::make_shared<const Cluster>(cluster), cluster.why};
  const Bytes told = plan.encode();
  auto a = ChannelPlan::decode(told, 77), b = ChannelPlan::decode({}, 77);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a->get() == b->get());
  CHECK((*a)->why == plan.why);
  CHECK(plan.why.size() > 2);
  CHECK((*a)->cluster->channels[1].ring == plan.cluster->channels[1].ring);
  const auto nothing = ChannelPlan::decode(ChannelPlan{nullptr, {"one host"}}.encode(), 78);
  REQUIRE(nothing.ok());
  CHECK(!(*nothing)->cluster);
  const auto refused = ChannelPlan::decode(ChannelPlan::encode_refusal(fail(Code::system, "no luck")), 79);
  CHECK(error_of(refused.status()) == "no luck");
  for (size_t cut = 0; cut < told.size(); cut += 7)
    CHECK_MESSAGE(!ChannelPlan::decode(std::span(told).first(cut), 80).ok(), cut << " of " << told.size());
}

TEST_CASE("a graph file's orders replace the search on every host, and come out again as they were read") {
  const ClusterInput in = job(2);
  Cluster cluster = searched(in);
  const auto graph = [](std::vector<int> order) {
    return Graph{0, Graph::kRing, 5, PathKind::sys, {{order, {}}, {{0, 1}, {}}, {order, {}}}};
  };
  std::vector<Graph> graphs{graph({1, 0}), {1, Graph::kTree, 3, PathKind::sys, {{{1, 0}, {}}}}};
  REQUIRE(take_graphs(graphs, "g.xml", in, 64, &cluster).ok());
  CHECK(cluster.ring_gbps == 5);
  CHECK(cluster.tree_gbps == 3);
  REQUIRE(cluster.channels.size() == 3);
  CHECK(cluster.channels[0].ring == std::vector<int32_t>{1, 3, 0, 2, 5, 7, 4, 6});
  CHECK(cluster.channels[1].ring == std::vector<int32_t>{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(cluster.channels[0].parent[3] == 1);
  CHECK(cluster.channels[0].children[1].back() == 3);
  const auto back = graphs_of(in, cluster);
  REQUIRE(back.ok());
  CHECK((*back)[0].channels[0].gpus == std::vector<int>{1, 0});
  CHECK((*back)[0].channels[1].gpus == std::vector<int>{0, 1});
  CHECK((*back)[1].channels[2].gpus == std::vector<int>{1, 0});
  REQUIRE(take_graphs(graphs, "g.xml", in, 2, &cluster).ok());
  CHECK(cluster.channels.size() == 2);
  CHECK(cluster.why[cluster.why.size() - 2] == "g.xml: 2 of 3 channels, as max_channels is 2");
}

TEST_CASE("a graph file that does not visit each place once is refused with file, graph, channel and host") {
  const ClusterInput in = job(2);
  const auto refusal = [&](std::vector<int> order) {
    Cluster cluster = searched(in);
    return error_of(
        take_graphs({{0, Graph::kRing, 5, PathKind::sys, {{{0, 1}, {}}, {std::move(order), {}}}}}, "g.xml", in, 64, &cluster));
  };
  CHECK(refusal({0, 1}) == "");
  CHECK(refusal({0, 0}) == "g.xml: graph 0 channel 1: visits 0 0, but ranks of host h0 are at 0 1");
  CHECK(refusal({0, 7}).find("visits 0 7") != std::string::npos);
  CHECK(refusal({}).find("visits nothing") != std::string::npos);
  Cluster cluster = searched(in);
  CHECK(error_of(take_graphs({}, "g.xml", in, 64, &cluster)) == "g.xml: no graph 0, which holds the rings");
}
