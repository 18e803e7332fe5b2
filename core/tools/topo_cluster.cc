#include "tools/topo.h"
#include <algorithm>

namespace tutti::tools {
namespace {

constexpr size_t kMostRanks = 64; // that are shown one by one

// "0 1 2 3 | 4 5 6 7": a bar where the host changes.
std::string ring_text(const Cluster &c, const std::vector<int32_t> &ring, const std::vector<size_t> &host_of) {
  std::string out;
  for (size_t i = 0; i < std::min(ring.size(), kMostRanks); i++) {
    const auto rank = static_cast<size_t>(ring[i]);
    if (i > 0 && host_of[rank] != host_of[static_cast<size_t>(ring[i - 1])]) out += " |";
    out += fmt::format(" {}", rank);
  }
  return out + (ring.size() > kMostRanks ? fmt::format(" ... ({} ranks on {} hosts)", ring.size(), c.hosts.size()) : "");
}

// "3>1 2, 1>0": ranks with their children.
std::string tree_text(const ClusterChannel &c) {
  std::string out;
  size_t shown = 0;
  const auto top = std::find(c.parent.begin(), c.parent.end(), -1) - c.parent.begin();
  std::vector<int32_t> queue{static_cast<int32_t>(top)};
  for (size_t i = 0; i < queue.size() && shown < kMostRanks; i++) {
    const std::vector<int32_t> &children = c.children[static_cast<size_t>(queue[i])];
    queue.insert(queue.end(), children.begin(), children.end());
    if (children.empty()) continue;
    shown++;
    out += fmt::format(" {}>{}", queue[i], fmt::join(children, ","));
  }
  return out.empty() ? fmt::format(" {}", top) : out + (shown == kMostRanks ? " ..." : "");
}

// NICs by which a channel enters and leaves hosts; hosts with the same ones once.
std::string ports_text(const Cluster &c, const ClusterChannel &channel) {
  std::vector<std::string> seen;
  for (size_t h = 0; h < c.hosts.size(); h++) {
    const ClusterChannel::Use &u = channel.hosts[h];
    if (u.port_in < 0) continue;
    const ClusterPort &in = c.hosts[h].ports[static_cast<size_t>(u.port_in)],
                      &out = c.hosts[h].ports[static_cast<size_t>(u.port_out)];
    std::string text = fmt::format("{} (rail {})", in.name, in.rail);
    if (u.port_in != u.port_out) text = fmt::format("in by {}, out by {} (rail {})", text, out.name, out.rail);
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(std::move(text));
  }
  return seen.empty() ? "" : fmt::format("      NIC  {}\n", fmt::join(seen, "; "));
}

std::string heads_text(const Cluster &c) {
  std::string out;
  for (size_t h = 0; h < std::min<size_t>(c.hosts.size(), 8); h++)
    for (const ClusterPort &p : c.hosts[h].ports)
      out += fmt::format("head of {} {}: rank {}  (rail {}, {:.4g} GB/s{})\n", c.hosts[h].name, p.name, p.head, p.rail, p.gbps,
                         p.latency_us > 0 ? fmt::format(", {:.3g} us", p.latency_us) : "");
  return out;
}

std::string new_ranks_text(const Cluster &c) {
  std::string out;
  size_t moved = 0;
  for (size_t r = 0; r < c.new_rank.size(); r++) {
    if (c.new_rank[r] == static_cast<int32_t>(r)) continue;
    if (moved++ < kMostRanks) out += fmt::format(" {}->{}", r, c.new_rank[r]);
  }
  if (moved == 0) return "ranks: neighbours are close as they are numbered\n";
  return fmt::format("ranks: old -> new that puts neighbours close, {} of {}:{}{}\n", moved, c.new_rank.size(), out,
                     moved > kMostRanks ? " ..." : "");
}

} // namespace

std::string cluster_text(const Cluster &c) {
  std::vector<size_t> host_of(c.new_rank.size());
  for (size_t h = 0; h < c.hosts.size(); h++)
    for (int32_t r : c.hosts[h].ranks) host_of[static_cast<size_t>(r)] = h;
  std::string out;
  for (const std::string &line : c.why) out += line + "\n";
  for (size_t i = 0; i < c.channels.size(); i++) {
    out += fmt::format("  {:2}: ring{}\n", i, ring_text(c, c.channels[i].ring, host_of));
    out += ports_text(c, c.channels[i]);
    out += fmt::format("      tree{}\n", tree_text(c.channels[i]));
  }
  return out + heads_text(c) + new_ranks_text(c);
}

} // namespace tutti::tools
