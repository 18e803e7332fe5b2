// tutti/core/topology/routes.h: the ways between the places of a host, and in and out of it by its ports.
#pragma once
#include "topology/paths.h"
#include <vector>

namespace tutti {

struct Route {
  std::vector<int> links; // of the machine
  double expansion = 1;   // bytes on its links per byte
  PathKind kind = PathKind::dis;
  int port = -1;                   // index of the port, of ways in and out
  std::vector<double> shares = {}; // of merged ports: the part of the bytes that each link carries; empty: all of them
  double bytes_on(size_t i) const { return expansion * (shares.empty() ? 1 : shares[i]); }
};

struct RouteRules {
  PathKind p2p_level = PathKind::sys; // GPUs farther apart go through host memory
  PathKind gdr_level = PathKind::sys; // so do GPU and port
  bool pxn = true;                    // out of a GPU over an NVLink to another that is close to the port
};

// Between two places: NVLink where they are joined by it, else both the way over another GPU and the way without NVLink.
// With ports, the last place, outside(), is all that is beyond them; a port is one node or several that share its bytes by
// their bandwidth.
class Routes {
public:
  using Ports = std::vector<std::vector<int>>; // nodes of each
  Routes(const Machine &machine, const std::vector<int> &places, const Ports &ports = {}, RouteRules rules = {});
  size_t size() const { return n_; } // places, and outside()
  int outside() const { return outside_ ? static_cast<int>(n_) - 1 : -1; }
  const std::vector<Route> &between(int a, int b) const { return all_[static_cast<size_t>(a) * n_ + static_cast<size_t>(b)]; }
  bool connected() const; // every place reaches every other, and all ports

private:
  std::vector<Route> &at(size_t a, size_t b) { return all_[a * n_ + b]; }
  bool outside_;
  size_t n_, ports_;
  std::vector<std::vector<Route>> all_;
};

} // namespace tutti
