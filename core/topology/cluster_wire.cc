// Clusters and machines as bytes. What is read is checked to the last index: it may come from a rank that has lost its mind.
#include "bootstrap/wire.h"
#include "topology/cluster.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti {
namespace {

using boot::Reader;
using boot::Writer;

constexpr uint32_t kMostRanks = 1u << 20, kMostChannels = 256, kMostNodes = 1024;

void put_double(Writer *w, double v) {
  w->u64(std::bit_cast<uint64_t>(v));
}
double get_double(Reader *r) { // what is no number of bandwidth or time is nought
  const double v = std::bit_cast<double>(r->u64());
  return std::isfinite(v) && v >= 0 ? v : 0;
}

void put_list(Writer *w, const std::vector<int32_t> &list) {
  w->u32(static_cast<uint32_t>(list.size()));
  for (int32_t v : list) w->i32(v);
}

class ClusterReader {
public:
  explicit ClusterReader(std::span<const std::byte> data) : in_(data) {}
  Result<Cluster> read() {
    out_.ring_gbps = get_double(&in_);
    out_.tree_gbps = get_double(&in_);
    out_.crossed = in_.u8() != 0;
    if (!list(&out_.new_rank, kMostRanks)) return wrong("new ranks");
    ranks_ = static_cast<int32_t>(out_.new_rank.size());
    if (ranks_ == 0 || !permutation(out_.new_rank, ranks_)) return wrong("new ranks");
    if (!hosts()) return wrong("hosts");
    for (uint32_t i = count(kMostChannels, 8); i > 0; i--)
      if (!channel()) return wrong("channels");
    for (uint32_t i = count(1024, 2); i > 0; i--) out_.why.push_back(in_.text());
    if (!fine_ || !in_.done() || out_.channels.empty()) return wrong("length");
    fill_children(&out_);
    return std::move(out_);
  }

private:
  static Status wrong(std::string_view what) {
    return fail(Code::remote, "channels sent by another rank cannot be read: {}", what);
  }
  // Elements announced, of at least so many bytes each; 0 once something is wrong.
  uint32_t count(uint32_t most, uint32_t bytes) {
    const uint32_t n = in_.u32();
    Reader rest = in_;
    if (in_.ok() && n <= most && rest.rest().size() / bytes >= n) return n;
    fine_ = false;
    return 0;
  }
  bool list(std::vector<int32_t> *out, uint32_t most) {
    for (uint32_t n = count(most, 4); n > 0; n--) out->push_back(in_.i32());
    return fine_ && in_.ok();
  }
  static bool permutation(const std::vector<int32_t> &list, int32_t n) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int32_t v : list) {
      if (v < 0 || v >= n || seen[static_cast<size_t>(v)]) return false;
      seen[static_cast<size_t>(v)] = true;
    }
    return list.size() == static_cast<size_t>(n);
  }
  bool hosts() {
    std::vector<int32_t> all;
    for (uint32_t i = count(kMostRanks, 10); i > 0; i--) {
      ClusterHost h;
      h.name = in_.text();
      if (!list(&h.ranks, kMostRanks) || h.ranks.empty()) return false;
      for (uint32_t p = count(kMostNodes, 30); p > 0; p--) {
        ClusterPort port;
        if (!list(&port.devs, kMostNodes)) return false;
        for (size_t d = 0; d < port.devs.size(); d++) port.dev_names.push_back(in_.text());
        port.name = in_.text();
        port.rail = in_.i32();
        port.gbps = get_double(&in_);
        port.latency_us = get_double(&in_);
        port.head = in_.i32();
        if (port.head < -1 || port.head >= ranks_) return false;
        h.ports.push_back(std::move(port));
      }
      all.insert(all.end(), h.ranks.begin(), h.ranks.end());
      out_.hosts.push_back(std::move(h));
    }
    return fine_ && permutation(all, ranks_) && list(&out_.host_order, kMostRanks) &&
           permutation(out_.host_order, static_cast<int32_t>(out_.hosts.size()));
  }
  bool channel() {
    ClusterChannel c;
    if (!list(&c.ring, kMostRanks) || !permutation(c.ring, ranks_) || !list(&c.parent, kMostRanks) || !is_tree(c.parent))
      return false;
    for (const ClusterHost &h : out_.hosts) {
      ClusterChannel::Use u;
      for (int32_t *port : {&u.port_in, &u.port_out, &u.port_tree}) {
        *port = in_.i32();
        if (*port < -1 || *port >= static_cast<int32_t>(h.ports.size())) return false;
      }
      u.head = in_.i32();
      u.rail = in_.i32();
      if (u.head < -1 || u.head >= ranks_) return false;
      c.hosts.push_back(u);
    }
    out_.channels.push_back(std::move(c));
    return in_.ok();
  }
  // One top, and no rank below itself: each step goes up to a rank that is known to end at the top.
  bool is_tree(const std::vector<int32_t> &parent) const {
    if (parent.size() != static_cast<size_t>(ranks_) || std::count(parent.begin(), parent.end(), -1) != 1) return false;
    enum : uint8_t { unknown, now, good };
    std::vector<uint8_t> state(parent.size(), unknown);
    for (size_t r = 0; r < parent.size(); r++) {
      std::vector<size_t> way;
      for (size_t at = r; state[at] == unknown; at = static_cast<size_t>(parent[at])) {
        way.push_back(at);
        state[at] = now;
        if (parent[at] < -1 || parent[at] >= ranks_) return false;
        if (parent[at] == -1 || state[static_cast<size_t>(parent[at])] == good) break;
        if (state[static_cast<size_t>(parent[at])] == now) return false;
      }
      for (size_t w : way) state[w] = good;
    }
    return true;
  }

  Reader in_;
  Cluster out_;
  int32_t ranks_ = 0;
  bool fine_ = true;
};

} // namespace

std::vector<std::byte> encode_cluster(const Cluster &cluster) {
  Writer w;
  put_double(&w, cluster.ring_gbps);
  put_double(&w, cluster.tree_gbps);
  w.u8(cluster.crossed);
  put_list(&w, cluster.new_rank);
  w.u32(static_cast<uint32_t>(cluster.hosts.size()));
  for (const ClusterHost &h : cluster.hosts) {
    w.text(h.name);
    put_list(&w, h.ranks);
    w.u32(static_cast<uint32_t>(h.ports.size()));
    for (const ClusterPort &p : h.ports) {
      put_list(&w, p.devs);
      for (size_t i = 0; i < p.devs.size(); i++) w.text(p.dev_names[i]);
      w.text(p.name);
      w.i32(p.rail);
      put_double(&w, p.gbps);
      put_double(&w, p.latency_us);
      w.i32(p.head);
    }
  }
  put_list(&w, cluster.host_order);
  w.u32(static_cast<uint32_t>(cluster.channels.size()));
  for (const ClusterChannel &c : cluster.channels) {
    put_list(&w, c.ring);
    put_list(&w, c.parent);
    for (const ClusterChannel::Use &u : c.hosts)
      for (int32_t v : {u.port_in, u.port_out, u.port_tree, u.head, u.rail}) w.i32(v);
  }
  w.u32(static_cast<uint32_t>(cluster.why.size()));
  for (const std::string &line : cluster.why) w.text(line);
  return w.take();
}

Result<Cluster> decode_cluster(std::span<const std::byte> data) {
  return ClusterReader(data).read();
}

std::vector<std::byte> encode_machine(const Machine &machine) {
  Writer w;
  w.u32(static_cast<uint32_t>(machine.nodes().size()));
  for (const MachineNode &n : machine.nodes()) {
    w.u8(static_cast<uint8_t>(n.kind));
    w.text(n.id);
    for (int v : {n.number, n.rank, n.parent, n.rail}) w.i32(v);
    w.text(n.affinity);
    w.u8(static_cast<uint8_t>(n.intel | n.by_class << 1));
    put_double(&w, n.latency_us);
  }
  w.u32(static_cast<uint32_t>(machine.links().size()));
  for (const MachineLink &l : machine.links()) {
    w.i32(l.from);
    w.i32(l.to);
    w.u8(static_cast<uint8_t>(l.kind));
    put_double(&w, l.gbps);
    w.u32(l.lanes);
  }
  return w.take();
}

Result<Machine> decode_machine(std::span<const std::byte> data) {
  const auto wrong = [](std::string_view what) {
    return fail(Code::remote, "a machine sent by another rank cannot be read: {}", what);
  };
  Reader in(data);
  Machine m;
  const uint32_t nodes = in.u32();
  if (nodes > kMostNodes) return wrong("nodes");
  for (uint32_t i = 0; i < nodes; i++) {
    MachineNode n;
    const uint8_t kind = in.u8();
    n.kind = static_cast<NodeKind>(kind);
    n.id = in.text();
    for (int *v : {&n.number, &n.rank, &n.parent, &n.rail}) *v = in.i32();
    n.affinity = in.text();
    const uint8_t flags = in.u8();
    n.intel = flags & 1;
    n.by_class = flags & 2;
    n.latency_us = get_double(&in);
    if (!in.ok() || kind > static_cast<uint8_t>(NodeKind::net) || n.parent < -1 || n.parent >= static_cast<int>(i))
      return wrong("a node");
    m.add(std::move(n));
  }
  for (uint32_t links = in.u32(); links > 0; links--) {
    const int from = in.i32(), to = in.i32();
    const uint8_t kind = in.u8();
    const double gbps = get_double(&in);
    const uint32_t lanes = in.u32();
    const int n = static_cast<int>(nodes);
    if (!in.ok() || from < 0 || to < 0 || from >= n || to >= n || from == to || kind > static_cast<uint8_t>(LinkKind::net) ||
        gbps <= 0)
      return wrong("a link");
    m.connect(from, to, static_cast<LinkKind>(kind), gbps, lanes);
  }
  if (!in.done()) return wrong("length");
  return m;
}

} // namespace tutti
