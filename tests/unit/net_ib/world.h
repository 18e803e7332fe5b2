// Two processes with a context of net-ib each, on a fabric of doubles, driven by one thread under a clock of the test's.
#pragma once
#include "context.h"
#include "double.h"
#include "endpoint.h"
#include "listener.h"
#include <doctest/doctest.h>
#include <functional>

namespace tutti::net_ib::test {

inline std::vector<uint8_t> pattern(size_t n, uint64_t seed) {
  std::vector<uint8_t> v(n);
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (auto &b : v) b = static_cast<uint8_t>((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
  return v;
}

// What a plugin is given by the core: only diagnostics, kept for the test to read.
class Core {
public:
  Core();
  net_ib::Host host() const { return net_ib::Host(&host_); }
  std::string error, log; // the first reason since it was cleared, and all lines
  std::string last;       // the last one, which the core would take
private:
  tutti_host host_{};
};

struct Process {
  Process(Machine &home, Core &core, size_t rails, const Settings &settings, std::function<Time()> now);
  int32_t progress(uint32_t cap = 16);
  tutti_net_buf buf(void *p, uint64_t n); // registered for as long as the process lives
  DoubleDevice &device(size_t rail) { return home.devices[rail]; }
  bool has(uint64_t cookie) const { return done.count(cookie) > 0; }
  tutti_status status(uint64_t cookie) const { return done.at(cookie).at(0).status; }

  Machine &home;
  std::unique_ptr<Context> ctx;
  std::vector<std::unique_ptr<Mr>> mrs; // released before the context
  std::map<uint64_t, std::vector<tutti_net_completion>> done;
};

struct Options {
  size_t rails = 1, spares = 0;
  uint64_t seed = 1;
  std::function<void(Settings &)> settings = [](Settings &) {};
  std::function<void(Fabric &)> fabric = [](Fabric &) {}; // before contexts are made
};

std::vector<std::string> names(const std::string &prefix, size_t n);

class World {
public:
  explicit World(const Options &options = {});
  ~World();

  void connect(std::unique_ptr<Endpoint> &out_tx, std::unique_ptr<Endpoint> &out_rx); // until both are ready
  void connect() { connect(tx, rx); }
  void rebuild(std::optional<Process> &p, size_t rails, const Settings &with); // its first `rails` ports only
  void turn(int steps = 4);                                                    // some steps, progress of both, a millisecond
  bool until(const std::function<bool()> &ready, int turns = 20000);
  tutti_status send(void *p, uint64_t n, uint64_t cookie);
  tutti_status recv(void *p, uint64_t n, uint64_t cookie, uint64_t *got = nullptr);

  Time now{std::chrono::hours(1)};
  Fabric fabric;
  Core core;
  Settings settings;
  std::optional<Process> a, b; // a sends
  std::unique_ptr<Endpoint> tx, rx;
};

} // namespace tutti::net_ib::test
