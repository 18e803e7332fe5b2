// `tutti topo`: the machine as a tree and a matrix, and the channels that the library would search on it.
#include "tools/topo.h"
#include "base/file.h"
#include "comm/machine.h"
#include "comm/startup.h"
#include "config/config.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "topology/detect.h"
#include "topology/net_devices.h"
#include <chrono>

namespace tutti::tools {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string format = "text", dump, graph, graph_dump;
  bool time = false, bandwidth = false, no_search = false, complete = false, json = false, latency = false, net = false;
  int hosts = 1, ranks_per_host = 0;
  ClusterRules rules;
  bool several() const { return files.size() > 1 || hosts > 1; }
};

int failed(const Status &status) {
  print_error("topo: " + status.error().line());
  return kFailed;
}

// What the command line leaves open, the configuration says.
Status complete(Options *o) {
  TUTTI_ASSIGN(config, Config::process());
  const auto set = [&](std::string *value, const char *key) {
    if (value->empty()) *value = config->text(key);
  };
  o->complete |= o->files.empty(); // the configured file is of this machine
  if (const std::string file = config->text("topology.file"); o->files.empty() && !file.empty()) o->files.push_back(file);
  set(&o->dump, "topology.dump_file");
  set(&o->graph, "topology.graph_file");
  set(&o->graph_dump, "topology.graph_dump_file");
  if (o->json) o->format = "json";
  o->rules = cluster_rules(*config);
  return {};
}

struct Stopwatch {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double ms() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(start, now)).count();
  }
};

// Rings and chains of a graph file in place of those searched.
Status take_graphs(const Options &o, const Machine &machine, Channels *channels) {
  TUTTI_ASSIGN(graphs, read_graphs(o.graph));
  for (const Graph &g : graphs) {
    if (g.id > 1) continue;
    TUTTI_ASSIGN(laid, lay_graph(g, machine, *channels, o.graph));
    if (laid.channels.empty()) continue;
    Packing &mine = g.id == 0 ? channels->rings : channels->chains;
    laid.bound = std::max(mine.bound, laid.total());
    mine = std::move(laid);
  }
  return {};
}

// Ports are what the network in use has.
Status take_net(MachineFile *file, std::vector<std::string> *notes) {
  TUTTI_ASSIGN(p, process());
  std::string why;
  TUTTI_ASSIGN(net, choose_net(*p.config, *p.registry, &why));
  if (!net) return fail(Code::invalid_usage, "--net: no network has a device: {}", why);
  NetSurvey survey(net);
  TUTTI_ASSIGN(devices, survey.devices());
  notes->push_back(fmt::format("NICs are the devices of network {}", net.table->name));
  const std::vector<std::string> merged = add_net_devices(file, devices);
  notes->insert(notes->end(), merged.begin(), merged.end());
  return {};
}

// Of a file given by --file nothing is known but what it says: it may be of another machine.
Result<MachineFile> load(const Options &o, const std::string &path, std::vector<std::string> *notes) {
  MachineFile file;
  if (!path.empty()) {
    TUTTI_ASSIGN(read, MachineFile::read(path));
    file = std::move(read);
  }
  if (o.complete) {
    TUTTI_ASSIGN(assumed, complete_machine(&file));
    *notes = std::move(assumed);
  }
  if (o.net) TUTTI_TRY(take_net(&file, notes));
  return file;
}

Status show(const Options &o) {
  Stopwatch watch;
  std::vector<std::string> notes;
  TUTTI_ASSIGN(file, load(o, o.files.empty() ? "" : o.files.front(), &notes));
  TUTTI_ASSIGN(machine, file.machine());
  const double read_ms = watch.ms();
  const Paths paths(machine);
  const double path_ms = watch.ms();
  Channels channels;
  if (!o.no_search) channels = search_channels(machine);
  const double search_ms = watch.ms();
  if (!o.graph.empty() && !o.no_search) TUTTI_TRY(take_graphs(o, machine, &channels));
  if (!o.dump.empty()) TUTTI_TRY(file.write(o.dump));
  if (!o.graph_dump.empty()) TUTTI_TRY(replace_file(o.graph_dump, graph_xml(graphs_of(machine, channels))));
  if (o.format == "json") {
    fmt::print("{}", machine_json(machine, paths, channels));
  } else if (o.format == "dot") {
    fmt::print("{}", machine_dot(machine));
  } else if (o.format == "xml") {
    fmt::print("{}", file.text());
  } else {
    fmt::print("{}\n{}\n{}", file.name(), machine_tree(machine), machine_matrix(machine, paths, Show::kind));
    if (o.bandwidth) fmt::print("\n{}", machine_matrix(machine, paths, Show::gbps));
    if (o.latency) fmt::print("\n{}", machine_matrix(machine, paths, Show::latency));
    fmt::print("\n{}", path_legend());
    if (!o.no_search) fmt::print("\n{}", channels_text(machine, channels));
    notes.insert(notes.end(), machine.notes().begin(), machine.notes().end());
    for (const std::string &note : notes) fmt::print("note: {}\n", note);
  }
  if (o.time) fmt::print(stderr, "time: read {:.1f} ms, paths {:.1f} ms, search {:.1f} ms\n", read_ms, path_ms, search_ms);
  return {};
}

// So many hosts for each file; ranks sit where their host's file has GPUs, processors or NICs for them.
Result<ClusterInput> cluster_input(const Options &o, std::vector<std::string> *notes) {
  ClusterInput input;
  const std::vector<std::string> files = o.files.empty() ? std::vector<std::string>{""} : o.files;
  for (const std::string &path : files) {
    TUTTI_ASSIGN(file, load(o, path, notes));
    TUTTI_ASSIGN(machine, file.machine());
    const int ranks = o.ranks_per_host > 0 ? o.ranks_per_host : static_cast<int>(machine.places().size());
    for (int i = 0; i < o.hosts; i++) {
      for (int r = 0; r < ranks; r++) input.ranks.push_back({.host = static_cast<int>(input.hosts.size())});
      input.hosts.push_back({.machine = static_cast<int>(input.machines.size())});
    }
    notes->insert(notes->end(), machine.notes().begin(), machine.notes().end());
    input.machines.push_back(std::move(machine));
  }
  return input;
}

Status show_several(const Options &o) {
  Stopwatch watch;
  std::vector<std::string> notes;
  TUTTI_ASSIGN(input, cluster_input(o, &notes));
  const double read_ms = watch.ms();
  TUTTI_ASSIGN(cluster, make_cluster(input, o.rules));
  const double search_ms = watch.ms();
  if (o.format == "json") {
    fmt::print("{}", cluster_json(cluster));
  } else {
    fmt::print("{}", cluster_text(cluster));
    for (const std::string &note : notes) fmt::print("note: {}\n", note);
  }
  if (o.time) fmt::print(stderr, "time: read {:.1f} ms, search {:.1f} ms\n", read_ms, search_ms);
  return {};
}

// What is of one host only.
Status check(const Options &o) {
  if (!o.several() && o.ranks_per_host == 0) return {};
  const bool one = o.no_search || o.bandwidth || o.latency || !o.dump.empty() || !o.graph.empty() || !o.graph_dump.empty();
  if (one || (o.format != "text" && o.format != "json"))
    return fail(Code::invalid_usage,
                "several hosts are shown as text or json, without --bandwidth, --latency, --no-search, --dump, "
                "--graph and --graph-dump");
  return {};
}

} // namespace

int topo_main(int argc, char **argv) {
  Options o;
  CLI::App app("Shows the machine: its tree, the paths between GPUs and NICs, and the channels found on it", "tutti topo");
  app.formatter(std::make_shared<HelpText>());
  app.add_option("--file", o.files, "topology file to show instead of this machine; several: a host each")->type_name("FILE");
  app.add_option("--hosts", o.hosts, "channels over so many hosts like this (of each file)")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--ranks-per-host", o.ranks_per_host, "ranks on each host (0 = one for each GPU, or NUMA node)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--complete", o.complete, "complete the file of --file by what this machine shows");
  app.add_flag("--net", o.net, "NICs are the devices of the network in use (net.name, else the one that would be chosen)");
  app.add_option("--format", o.format, "text, json, dot (links) or xml (the file, completed)")
      ->check(CLI::IsMember({"text", "json", "dot", "xml"}))
      ->capture_default_str();
  app.add_flag("--json", o.json, "the same as --format json");
  app.add_flag("--bandwidth", o.bandwidth, "a second matrix, of GB/s");
  app.add_flag("--latency", o.latency, "another matrix, of microseconds");
  app.add_flag("--no-search", o.no_search, "only the machine, no channels");
  app.add_option("--graph", o.graph, "graph file: show what its rings and chains reach, instead of searching")
      ->type_name("FILE");
  app.add_option("--dump", o.dump, "write the topology file to FILE")->type_name("FILE");
  app.add_option("--graph-dump", o.graph_dump, "write the channels to FILE, as a graph file")->type_name("FILE");
  app.add_flag("--time", o.time, "how long reading, paths and search took, on stderr");
  try {
    app.parse(argc, argv);
    if (Status s = complete(&o); !s.ok()) return failed(s);
    if (Status s = check(o); !s.ok()) return failed(s);
    const Status s = o.several() || o.ranks_per_host > 0 ? show_several(o) : show(o);
    return s.ok() ? kOk : failed(s);
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }
}

} // namespace tutti::tools
