// tutti/core/transport/net_route.h: by which devices of the network the links of each channel go, as one rank sees it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

class NetRoutes {
public:
  struct Channel {
    int32_t before = -1, after = -1; // in the ring
    std::vector<int32_t> tree;       // parent and children
    // Devices on this host, as indices into devices(), of the ring towards and from this rank, and of the tree; links of one
    // that has several are dealt. Empty: the device that the port takes by itself.
    std::vector<uint32_t> in, out, by_tree;
  };
  // Of each rank: its place among those of its host, and its host. For sends and receives, which belong to no channel.
  struct Spot {
    uint32_t place = 0, host = 0;
  };

  NetRoutes() = default;
  // devices: names, each once: a plugin's numbers change as devices come and go. Not told apart: no host has a second device,
  // so channels may share links as if there was no route.
  NetRoutes(std::vector<std::string> devices, std::vector<Channel> channels, std::vector<Spot> spots, bool told_apart)
      : devices_(std::move(devices)), channels_(std::move(channels)), spots_(std::move(spots)), told_apart_(told_apart) {}

  // What both ends of a link call its way; part of its geometry. Links of one channel between neighbours of its ring go the
  // ring's way, of others of its tree the tree's, all others the ring's.
  uint32_t route(uint32_t channel, int32_t peer, bool sending) const {
    if (!told_apart_ || channels_.empty()) return 0;
    const auto at = static_cast<uint32_t>(channel % channels_.size());
    const Channel &c = channels_[at];
    const bool in_ring = peer == (sending ? c.after : c.before);
    const bool in_tree = !in_ring && std::find(c.tree.begin(), c.tree.end(), peer) != c.tree.end();
    return 1 + 2 * at + (in_tree ? 1 : 0);
  }
  // Of sends and receives: ranks of a host that send to the same host take turns, and so do hosts that one rank sends to.
  uint32_t channel_of_pair(int32_t sender, int32_t receiver) const {
    if (spots_.empty()) return 0;
    return spots_[static_cast<size_t>(sender)].place + spots_[static_cast<size_t>(receiver)].host;
  }

  // Index of a link's device, of what route() said; -1: the one that the port takes by itself.
  int32_t device(uint32_t route, uint16_t conn, bool sending) const {
    if (channels_.empty()) return -1;
    const Channel &c = channels_[route == 0 ? 0 : (route - 1) / 2];
    const bool tree = route > 0 && (route - 1) % 2 == 1;
    const std::vector<uint32_t> &devices = tree ? c.by_tree : sending ? c.out : c.in;
    return devices.empty() ? -1 : static_cast<int32_t>(devices[conn % devices.size()]);
  }
  const std::vector<std::string> &devices() const { return devices_; }

private:
  std::vector<std::string> devices_;
  std::vector<Channel> channels_;
  std::vector<Spot> spots_;
  bool told_apart_ = false;
};

} // namespace tutti
