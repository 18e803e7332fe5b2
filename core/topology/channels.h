// tutti/core/topology/channels.h: the channels of one host: a ring and a chain each, and who stands at the NICs.
#pragma once
#include "base/status.h"
#include "topology/packing.h"
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Of in-network reduction: the place that speaks to a port for all of the host.
struct Head {
  int port = 0;  // node: NET, or a NIC whose ports are not known
  int place = 0; // index
};

struct Channels {
  std::vector<int> places; // nodes, see Machine::places()
  Packing rings, chains;   // a chain is the tree of one host: its first place leads to other hosts
  std::vector<Head> heads;
  double optimum = 0; // see optimum.h
};

// Deterministic: the same for the same machine, whatever the load. Of two rings (chains) that serve alike the one with fewer
// channels.
Channels search_channels(const Machine &machine, const PackRules &rules = {});

// The graph file of the field: what was searched, to be read instead of searching again.
struct Graph {
  static constexpr int kTree = 1, kRing = 4, kCollnet = 6; // of `pattern`
  int id = 0, pattern = kRing;
  double gbps = 0;
  PathKind worst = PathKind::loc; // of its hops
  struct Channel {
    std::vector<int> gpus; // dev, in order
    std::vector<int> nets; // dev
  };
  std::vector<Channel> channels;
};
std::vector<Graph> graphs_of(const Machine &machine, const Channels &channels);
std::string graph_xml(const std::vector<Graph> &graphs);
Result<std::vector<Graph>> parse_graphs(std::string_view text, const std::string &name);
Result<std::vector<Graph>> read_graphs(const std::string &path);
// Rings or chains as a file has them, laid over this machine; errors when they do not visit each place once.
Result<Packing> lay_graph(const Graph &graph, const Machine &machine, const Channels &channels, const std::string &name);

// For people and programs.
std::string machine_json(const Machine &machine, const Paths &paths, const Channels &channels);
std::string machine_dot(const Machine &machine);

} // namespace tutti
