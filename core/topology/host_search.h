// tutti/core/topology/host_search.h: the part of a cluster's channels that lies on one host, or on all hosts like it.
#pragma once
#include "topology/cluster.h"
#include "topology/ports.h"

namespace tutti {

class HostSearch {
public:
  // `places`: nodes where ranks are.
  HostSearch(const Machine &machine, std::vector<int> places, const ClusterRules &rules, size_t hosts);

  const std::vector<int> &places() const { return places_; }
  const std::vector<Port> &ports() const { return ports_; } // by rail
  const std::vector<std::string> &notes() const { return notes_; }
  // In the order in which channels take them: close ones first, then fast ones.
  const std::vector<int> &deal() const { return deal_; }
  // The same rails as another host deals, where both have as many ports.
  void deal_as(const HostSearch &other);
  std::vector<int> neighbours() const; // indices of places, close ones next to each other

  struct Size {
    int least = 1, most = 1;
  };
  Size size() const; // how many channels may be asked for
  // gbps 0: nothing that is known limits it. Of `crossed` rings, each two are the same one in both directions; empty where they
  // cannot be had. `steps` bounds the search.
  Packing rings(bool crossed, Size size, int64_t steps) const;
  Packing trees(int channels, double attach, int64_t steps) const; // attach: see PackRules
  // Sets how often each channel's bytes pass its port, and the bandwidth that follows.
  void weigh(const std::vector<int> &passes, Packing *trees) const;
  // "port mlx5_0: 2 x 12 of 24 GB/s"
  std::string limit(const Packing &packing) const;

private:
  Packing best_crossed(PackRules rules) const;
  const Machine &machine_;
  std::vector<int> places_;
  ClusterRules rules_;
  size_t hosts_;
  std::vector<std::string> notes_;
  std::vector<Port> ports_;
  std::vector<int> deal_;
  Routes routes_;
};

} // namespace tutti
