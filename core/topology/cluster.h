// tutti/core/topology/cluster.h: channels over several hosts: a ring, a tree and a head each, by which NICs they go, and why.
#pragma once
#include "base/status.h"
#include "config/config.h"
#include "topology/channels.h"
#include "topology/topology.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Where a rank is on its host, as far as that is known.
struct Seat {
  enum class Kind : uint8_t {
    unknown, // dealt over Machine::places(), in blocks
    gpu,     // number: dev
    numa,    // number: NUMA node
    cpus     // the NUMA node that holds most of them; dealt as unknown where several hold the most
  };
  Kind kind = Kind::unknown;
  int number = -1;
  CpuSet cpus = CpuSet::from_words({});
};

// What is gathered from all ranks. Hosts that share an entry of `machines` are searched once.
struct ClusterInput {
  struct Host {
    int machine = 0;        // index into machines
    std::string name = {};  // for messages; empty: its number
    std::string where = {}; // switch or rack, hosts of one are put next to each other; empty: not known
  };
  struct Rank {
    int host = 0; // index into hosts
    Seat seat = {};
  };
  std::vector<Machine> machines;
  std::vector<Host> hosts;
  std::vector<Rank> ranks; // ranks[r] is rank r's; at least one, and at least one on each host
};

struct ClusterRules {
  int min_channels = 1, max_channels = 16;
  // 0: a ring enters and leaves each host by the same NIC, that of one rail. 1: it may leave by another. 2: as 0, unless 1 is
  // better.
  int cross_nic = 2;
  PathKind merge = PathKind::loc;     // ports as close as this count as one (loc: none, pix, ...); see merge_port
  bool merge_port = false;            // ports of one card count as one
  PathKind p2p_level = PathKind::sys; // GPUs farther apart go through host memory
  PathKind gdr_level = PathKind::sys; // so do GPU and NIC
  bool pxn = true;                    // a GPU may reach a NIC over an NVLink to one that is close to it
};

// One or several (merged) ports of a host.
struct ClusterPort {
  std::vector<int32_t> devs; // numbers of the network plugin (<net dev>); -1: the file names a NIC without ports
  // Their names, which hold while devices come and go. Numbers are those of the rank that described the host.
  std::vector<std::string> dev_names;
  std::string name; // "mlx5_0", "mlx5_0+mlx5_1"
  int32_t rail = 0;
  double gbps = 0;       // one direction, of all devs; 0: not known
  double latency_us = 0; // one way; 0: not known
  int32_t head = -1;     // rank that speaks to in-network reduction by this port
};

struct ClusterHost {
  std::string name;
  std::vector<int32_t> ranks;     // in the order that keeps neighbours close
  std::vector<ClusterPort> ports; // those that channels use, by rail; empty: one host, or no NIC is known
};

struct ClusterChannel {
  std::vector<int32_t> ring;                  // each rank once, those of a host next to each other
  std::vector<int32_t> parent;                // of each rank in this channel's tree; -1: the top
  std::vector<std::vector<int32_t>> children; // of each rank: those on other hosts, whose way is longer, first
  struct Use {
    int32_t port_in = -1, port_out = -1; // of the ring: indices into ClusterHost::ports; -1: none
    int32_t port_tree = -1;              // of the tree
    int32_t head = -1;                   // rank that speaks to in-network reduction on this channel; -1: none
    int32_t rail = -1;                   // of port_in; -1: none
  };
  std::vector<Use> hosts; // of each host
};

// Channels alternate between two complementary trees: who is an inner host of one is a leaf of the other. Each NIC gets both,
// as far as it has several channels.
struct Cluster {
  std::vector<ClusterHost> hosts;       // as in the input
  std::vector<int32_t> host_order;      // hosts as rings visit them
  std::vector<ClusterChannel> channels; // at least one, also where nothing is known
  double ring_gbps = 0;                 // of one channel, all in use at once; 0: not known (all ranks share one memory)
  double tree_gbps = 0;                 // of one channel: bytes per second up the tree, while as many come down
  bool crossed = false;                 // rings leave hosts by other NICs than they enter by
  std::vector<int32_t> new_rank;        // of each rank, were they numbered so that neighbours are close
  std::vector<std::string> why;         // what was chosen and what limits it, one line each
};

// What the configuration says: coll.min_channels and, of up to 16 or that many, coll.max_channels; net.cross_nic,
// net.merge_level, topology.p2p_level, topology.gdr_level, topology.pxn_disable.
ClusterRules cluster_rules(const Config &config);

// Pure and deterministic, but for the last bits of floating point in another C library: let one rank search and send encode().
// Errors: a host without ranks, a seat that its machine does not have.
Result<Cluster> make_cluster(const ClusterInput &input, const ClusterRules &rules = {});

// On the wire; decode() takes any bytes.
std::vector<std::byte> encode_cluster(const Cluster &cluster);
Result<Cluster> decode_cluster(std::span<const std::byte> data);
std::vector<std::byte> encode_machine(const Machine &machine); // equal machines, equal bytes
Result<Machine> decode_machine(std::span<const std::byte> data);

void fill_children(Cluster *cluster); // from the parents

std::string cluster_json(const Cluster &cluster);

} // namespace tutti
