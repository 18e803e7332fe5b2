// Checks of `tutti doctor` on made-up hosts.
#include "doctor_tree.h"
#include <arpa/inet.h>
#include <cerrno>
#include <nlohmann/json.hpp>

using namespace tutti;
using namespace tutti::doctor;
using doctor_test::MadeUp;

namespace {

netif::Interface interface(const std::string &name, const std::string &address, uint32_t prefix, int64_t speed = 1000) {
  netif::Interface i;
  i.name = name;
  i.up = i.running = true;
  i.loopback = name == "lo";
  i.made = netif::detail::made_by_software(name);
  i.speed_mbps = speed;
  netif::Address a;
  auto *v4 = reinterpret_cast<sockaddr_in *>(&a.storage);
  v4->sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &v4->sin_addr);
  a.prefix = prefix;
  i.addresses.push_back(a);
  return i;
}

std::shared_ptr<const Config> config(const std::map<std::string, std::string> &environment = {}) {
  auto c = Config::from("", "", environment);
  REQUIRE(c.ok());
  return *c;
}

Host bad_host(const MadeUp &files) {
  Host h;
  h.files = files.tree();
  h.config = config();
  h.interfaces = {interface("lo", "127.0.0.1", 8), interface("eth0", "10.0.2.2", 24, 40'000),
                  interface("eth1", "10.0.2.3", 24, 1000)};
  h.interfaces[2].running = false;
  h.shm = Space{64ull << 20, 1ull << 20, 100, 200, false};
  h.names = {"node1", {"127.0.1.1"}, "", "", 3};
  h.usable_cpus = 2;
  h.calls = {{"memfd_create", EPERM}, {"process_vm_readv", EPERM}, {"mbind", EPERM}, {"signalfd", 0}};
  h.clock_synchronised = false;
  h.firewall_problem = "only root may read them";
  h.visible_gpus = {"0", "0"};
  return h;
}

Host good_host(const MadeUp &files) {
  Host h;
  h.files = files.tree();
  h.config = config();
  h.interfaces = {interface("lo", "127.0.0.1", 8), interface("eth0", "10.0.2.2", 24, 100'000)};
  h.shm = Space{16ull << 30, 16ull << 30, 1000, 1000, false};
  h.names = {"node1", {"10.0.2.2"}, "", "node1.cluster", 0.01};
  h.usable_cpus = 8;
  h.root = true;
  for (const char *call : {"memfd_create", "process_vm_readv", "mbind", "signalfd", "epoll_create1", "unix_socket",
                           "tcp_socket", "sched_getaffinity"})
    h.calls[call] = 0;
  h.clock_synchronised = true;
  return h;
}

constexpr Job kJob{64, 8, 8};

Level level(const Findings &f, std::string_view id) {
  const Finding *found = f.find(id);
  INFO(id);
  REQUIRE(found != nullptr);
  return found->level;
}

} // namespace

TEST_CASE("a host on which nothing is wrong gives nothing but what is ok") {
  const MadeUp files("good.tree");
  Job job{32, 4, 8};
  const Findings f = check_host(good_host(files), job);
  for (const Finding &one : f.all()) {
    INFO(one.id, ": ", one.seen);
    CHECK(one.level == Level::ok);
  }
  CHECK(f.all().size() > 25);
  CHECK(findings_text(f, false).empty());
}

TEST_CASE("a host on which much is wrong is told so, each time with a reason and mostly a cure") {
  const MadeUp files("bad.tree");
  const Findings f = check_host(bad_host(files), kJob);
  const std::map<std::string, Level> expected = {
      {"limits.files", Level::warning},
      {"limits.file_max", Level::ok},
      {"limits.memlock", Level::error},
      {"limits.stack", Level::warning},
      {"limits.processes", Level::error},
      {"tcp.somaxconn", Level::warning},
      {"tcp.syn_backlog", Level::warning},
      {"tcp.rmem", Level::warning},
      {"tcp.wmem", Level::note},
      {"tcp.rmem_max", Level::note},
      {"tcp.wmem_max", Level::ok},
      {"tcp.local_ports", Level::error},
      {"tcp.conntrack", Level::error},
      {"network.two_defaults", Level::note},
      {"network.route_reject", Level::note},
      {"network.route_mtu", Level::note},
      {"network.duplex", Level::warning},
      {"network.duplicate_mac", Level::warning},
      {"network.same_subnet", Level::note},
      {"network.mtu_differs", Level::note},
      {"network.mtu_fast", Level::note},
      {"network.errors", Level::note},
      {"network.carrier", Level::warning},
      {"names.loopback", Level::warning},
      {"names.slow", Level::warning},
      {"shm.size", Level::warning},
      {"shm.left", Level::note},
      {"memory.available", Level::warning},
      {"memory.overcommit", Level::note},
      {"memory.thp", Level::note},
      {"single_copy.pull", Level::note},
      {"calls.memfd_create", Level::error},
      {"calls.mbind", Level::note},
      {"container.cpu_quota", Level::error},
      {"container.memory", Level::warning},
      {"container.oom", Level::warning},
      {"container.pids", Level::error},
      {"cpus.count", Level::warning},
      {"cpus.governor", Level::warning},
      {"numa.balancing", Level::note},
      {"numa.reclaim", Level::note},
      {"numa.mems", Level::note},
      {"numa.empty", Level::note},
      {"clock.source", Level::warning},
      {"clock.synchronised", Level::warning},
      {"kernel.version", Level::warning},
      {"pci.iommu", Level::warning},
      {"pci.errors", Level::warning},
      {"memory.ecc", Level::error},
      {"rdma.state", Level::ok},
      {"rdma.gids", Level::warning},
      {"rdma.counters", Level::note},
      {"rdma.pcie", Level::warning},
      {"rdma.duplicate", Level::warning},
      {"rdma.speeds", Level::note},
      {"rdma.pkeys", Level::warning},
      {"rdma.verbs", Level::error},
      {"gpus.peer_memory", Level::error},
      {"gpus.duplicate", Level::error},
      {"gpus.shared", Level::warning},
      {"gpus.count", Level::note},
  };
  for (const auto &one : expected) {
    const std::string id = one.first;
    if (id == "limits.file_max") continue; // 4096 are enough for this job
    INFO(id);
    CHECK(level(f, id) == one.second);
  }
  for (const Finding &one : f.all()) {
    INFO(one.id);
    CHECK_FALSE(one.seen.empty());
    if (one.level > Level::note) CHECK_FALSE(one.why.empty());
    if (one.level > Level::note) CHECK_FALSE(one.fix.empty());
  }
  CHECK(f.find("container.cpu_quota")->seen.find("1.50 cores (/sys/fs/cgroup/kubepods/cpu.max), throttled 7 times") !=
        std::string::npos);
  CHECK(f.find("limits.files")->seen.find("80 soft, 1024 hard") != std::string::npos);
  CHECK(f.find("rdma.counters")->seen == "mlx5_0:1: out_of_sequence 12"); // lifespan is none
}

TEST_CASE("limits count against the ranks that will run") {
  const MadeUp files("bad.tree");
  const Host h = bad_host(files);
  Findings one, many;
  check_limits(h, Job{1, 1, 1}, one);
  check_limits(h, Job{4096, 64, 64}, many);
  CHECK(level(one, "limits.files") == Level::ok);
  CHECK(level(one, "limits.processes") == Level::ok);
  CHECK(level(many, "limits.files") == Level::error); // above the hard limit
  CHECK(level(many, "limits.file_max") == Level::error);
}

TEST_CASE("an interface rule that matches nothing is an error, one of whose entries does a note") {
  const MadeUp files("good.tree");
  Host h = good_host(files);
  h.config = config({{"TUTTI_SOCKET_IFNAME", "=ib9"}});
  Findings none;
  check_interfaces(h, kJob, none);
  CHECK(level(none, "network.rule") == Level::error);
  CHECK(none.find("network.rule")->fix == "change TUTTI_SOCKET_IFNAME");
  h.config = config({{"TUTTI_SOCKET_IFNAME", "ib9,eth0"}});
  Findings idle;
  check_interfaces(h, kJob, idle);
  CHECK(level(idle, "network.rule_idle") == Level::note);
  CHECK(idle.find("network.rule_idle")->seen.find("ib9 matches no address") != std::string::npos);
  CHECK(idle.find("network.reach")->seen.find("10.0.2.2 (eth0") != std::string::npos);
}

TEST_CASE("only loopback, or an interface of containers, is said where other hosts take part") {
  const MadeUp files("");
  Host h = good_host(files);
  h.files = files.tree();
  h.interfaces = {interface("lo", "127.0.0.1", 8)};
  Findings loopback, alone;
  check_interfaces(h, kJob, loopback);
  check_interfaces(h, Job{4, 4, 1}, alone);
  CHECK(level(loopback, "network.loopback") == Level::error);
  CHECK(level(alone, "network.loopback") == Level::note);
  h.interfaces = {interface("docker0", "172.17.0.1", 16)};
  Findings made;
  check_interfaces(h, kJob, made);
  CHECK(level(made, "network.made") == Level::warning);
  h.interfaces = {interface("eth0", "10.0.0.1", 24), interface("eth1", "10.0.0.1", 24)};
  Findings twice;
  check_interfaces(h, kJob, twice);
  CHECK(level(twice, "network.duplicate_address") == Level::error);
}

TEST_CASE("names that lead elsewhere, to nothing, or back to another name") {
  const MadeUp files("");
  Host h = good_host(files);
  const auto look = [&](const Names &names) {
    h.names = names;
    Findings f;
    check_names(h, kJob, f);
    return f;
  };
  CHECK(look({"localhost", {"10.0.2.2"}, "", "", 0}).find("names.localhost") != nullptr);
  CHECK(level(look({"n1", {}, "Name or service not known", "", 0}), "names.forward") == Level::warning);
  CHECK(level(look({"n1", {"10.9.9.9"}, "", "", 0}), "names.elsewhere") == Level::error);
  CHECK(level(look({"n1", {"10.0.2.2"}, "", "gateway", 0}), "names.reverse") == Level::note);
  CHECK(level(look({"n1", {"10.0.2.2"}, "", "n1.cluster", 0}), "names.own") == Level::ok);
}

TEST_CASE("rules of a firewall that refuse connections are found, harmless ones are not") {
  const MadeUp files("");
  Host h = good_host(files);
  const auto look = [&](const std::string &file, const std::string &from) {
    std::ifstream in(doctor_test::data(file));
    h.firewall.assign(std::istreambuf_iterator<char>(in), {});
    h.firewall_from = from;
    Findings f;
    check_firewall(h, kJob, f);
    return f;
  };
  const Findings nft = look("nft.txt", "nft list ruleset");
  CHECK(nft.find("firewall.policy")->seen == "policy drop (nft list ruleset): inet filter input");
  CHECK(nft.find("firewall.refuses")->seen.find("1 rule refuses") == 0);
  CHECK(nft.find("firewall.refuses")->seen.find("tcp dport 40000-41000 reject") != std::string::npos);
  const Findings iptables = look("iptables.txt", "iptables-save");
  CHECK(iptables.find("firewall.policy") == nullptr);
  CHECK(iptables.find("firewall.refuses")->seen.find("-A INPUT -j REJECT") != std::string::npos);
  CHECK(iptables.find("firewall.refuses")->seen.find("1 rule refuses") == 0);
  h.config = config({{"TUTTI_SOCKET_PORT_RANGE", "40000-40003"}});
  CHECK(look("nft.txt", "nft list ruleset").find("firewall.policy")->fix.find("dport 40000-40003 accept") != std::string::npos);
}

TEST_CASE("a range of ports that is too narrow for the ranks of a host is an error") {
  const MadeUp files("good.tree");
  Host h = good_host(files);
  h.config = config({{"TUTTI_SOCKET_PORT_RANGE", "40000-40003"}});
  Findings f;
  check_tcp(h, kJob, f);
  CHECK(level(f, "tcp.port_range") == Level::error);
  CHECK(f.find("tcp.port_range")->seen.find("TUTTI_SOCKET_PORT_RANGE") != std::string::npos);
}

TEST_CASE("quotas of cgroup version 1 are read where a container mounts them") {
  const MadeUp files("cgroup_v1.tree");
  Host h = good_host(files);
  h.files = files.tree();
  Findings f;
  check_container(h, Job{4, 4, 1}, f);
  CHECK(level(f, "container.cpu_quota") == Level::error);
  CHECK(f.find("container.cpu_quota")->seen.find("2.50 cores") != std::string::npos);
  CHECK(level(f, "container.memory") == Level::ok);
  CHECK(f.find("container.memory")->seen.find("32.0 GiB") != std::string::npos);
}

TEST_CASE("access control of PCIe bridges is read from their configuration space") {
  const MadeUp files("good.tree");
  const Host h = good_host(files);
  std::string space(4096, '\0');
  space[0x100] = 0x01; // error reporting, next at 0x148
  space[0x102] = 0x01;
  space[0x103] = 0x14;
  space[0x102] |= static_cast<char>(0x80); // low bits of the next pointer
  space[0x148] = 0x0d;                     // access control services, the last one
  files.write("/sys/bus/pci/devices/0000:00:01.0/class", "0x060400\n");
  files.write("/sys/bus/pci/devices/0000:00:01.0/config", space);
  Findings off;
  check_pci(h, kJob, off);
  CHECK(level(off, "pci.acs") == Level::ok);
  space[0x14e] = 0x1d;
  files.write("/sys/bus/pci/devices/0000:00:01.0/config", space);
  Findings on;
  check_pci(h, kJob, on);
  CHECK(level(on, "pci.acs") == Level::warning);
  CHECK(on.find("pci.acs")->seen.find("0000:00:01.0") != std::string::npos);
  files.write("/sys/bus/pci/devices/0000:00:01.0/config", space.substr(0, 64)); // as others than root see it
  Findings hidden;
  check_pci(h, kJob, hidden);
  CHECK(level(hidden, "pci.acs") == Level::ok);
}

TEST_CASE("an empty GID table, and a port whose link is down, are told by link layer") {
  const MadeUp files("good.tree");
  const Host h = good_host(files);
  files.remove("/sys/class/infiniband/mlx5_0/ports/1/gids");
  Findings empty;
  check_rdma(h, kJob, empty);
  CHECK(level(empty, "rdma.gids") == Level::error);
  files.write("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  Findings down;
  check_rdma(h, kJob, down);
  CHECK(level(down, "rdma.state") == Level::warning);
}

TEST_CASE("a host of which nothing can be read gives no error and does not crash") {
  const MadeUp files("");
  Host h;
  h.files = files.tree();
  h.config = config();
  h.interfaces = {interface("eth0", "10.0.0.1", 24)};
  const Findings f = check_host(h, kJob);
  CHECK(f.count(Level::error) == 0);
}

TEST_CASE("this host can be looked at") {
  const Host h = gather_host(config(), Deadline::in(std::chrono::seconds(20)));
  CHECK(h.usable_cpus > 0);
  CHECK_FALSE(h.names.own.empty());
  CHECK(h.calls.at("epoll_create1") == 0);
  CHECK_FALSE(check_host(h, Job{2, 2, 1}).all().empty());
}

TEST_CASE("findings go to JSON and back, and are shown with the worst topic first") {
  Findings f;
  f.add(Level::note, "a.one", "seen a", "because");
  f.add(Level::error, "z.two", "seen z", "because", "do this");
  f.ok("z.three", "fine");
  const Findings back = findings_from(nlohmann::json::parse(findings_json(f).dump()));
  REQUIRE(back.all().size() == 3);
  CHECK(back.all()[1].fix == "do this");
  CHECK(back.worst() == Level::error);
  const std::string text = findings_text(f, false);
  CHECK(text.find("z\n") < text.find("a\n"));
  CHECK(text.find("fine") == std::string::npos);
  CHECK(findings_text(f, true).find("fine") != std::string::npos);
  CHECK(findings_from(nlohmann::json::parse(R"([1, {"level": "bad", "id": "x"}, {"level": "ok"}])")).all().empty());
}
