// Two contexts of one plugin with connected endpoints, driven by one thread.
#pragma once
#include "fake_host.h"
#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <functional>
#include <optional>

using Opt = FakeHost::Options;
using TestClock = std::chrono::steady_clock;

// Calls step until it returns true; false after the limit.
inline bool within(std::chrono::milliseconds limit, const std::function<bool()> &step) {
  const auto end = TestClock::now() + limit;
  do
    if (step()) return true;
  while (TestClock::now() < end);
  return false;
}
inline constexpr std::chrono::milliseconds patience{30000};

// Sockets answer nothing.
inline tutti_status connect_to(const tutti_net_v1 &net, tutti_net_ctx *ctx, const void *addr, uint32_t len, tutti_net_ep **ep) {
  uint8_t answer[TUTTI_NET_ADDR_BYTES];
  uint32_t bytes = sizeof answer;
  const tutti_status s = net.connect(ctx, addr, len, answer, &bytes, ep);
  if (s == TUTTI_OK) CHECK(bytes == 0);
  return s;
}

struct Ctx {
  const tutti_net_v1 &net;
  tutti_net_ctx *c = nullptr;
  std::map<uint64_t, std::vector<tutti_net_completion>> done;
  explicit Ctx(FakeHost &host, uint32_t dev = 0, int32_t traffic_class = -1) : net(host.net()) {
    const uint32_t flags = host.encrypts() ? uint32_t{TUTTI_NET_ENCRYPT} : 0u;
    const tutti_net_ctx_config config = {sizeof(config), traffic_class, 1, 0, 2, flags, 0};
    REQUIRE(net.ctx_create(host.plugin(), dev, &config, &c) == TUTTI_OK);
  }
  ~Ctx() { net.ctx_destroy(c); }
  int32_t drive(uint32_t cap = 16) {
    tutti_net_completion out[16];
    const int32_t n = net.progress(c, out, cap);
    for (int32_t i = 0; i < n; ++i) done[out[i].cookie].push_back(out[i]);
    return n;
  }
  bool has(uint64_t cookie) const { return done.count(cookie) > 0; }
  tutti_status status(uint64_t cookie) const { return done.at(cookie).at(0).status; }
};

struct Pair {
  FakeHost host;
  Ctx a, b; // a sends
  tutti_net_ep *tx = nullptr, *rx = nullptr;
  explicit Pair(Opt options = {{"interface", "lo"}, {"family", "AF_INET"}}) : host(std::move(options)), a(host), b(host) {
    connect(tx, rx);
  }
  ~Pair() {
    if (tx) host.net().ep_destroy(tx);
    if (rx) host.net().ep_destroy(rx);
  }
  void connect(tutti_net_ep *&out_tx, tutti_net_ep *&out_rx) { connect(a, b, out_tx, out_rx); }
  void connect(Ctx &from, Ctx &to, tutti_net_ep *&out_tx, tutti_net_ep *&out_rx) {
    const tutti_net_v1 &net = host.net();
    uint8_t addr[TUTTI_NET_ADDR_BYTES];
    uint32_t len = 0;
    tutti_net_listener *l = nullptr;
    REQUIRE(net.listen(to.c, addr, &len, &l) == TUTTI_OK);
    REQUIRE(connect_to(net, from.c, addr, len, &out_tx) == TUTTI_OK);
    const bool up = within(patience, [&] {
      a.drive(), b.drive();
      if (!out_rx && net.accept(l, nullptr, 0, &out_rx) != TUTTI_OK) out_rx = nullptr;
      return out_rx && net.ep_ready(out_rx) == TUTTI_OK && net.ep_ready(out_tx) == TUTTI_OK;
    });
    REQUIRE_MESSAGE(up, host.last_error());
    net.listener_destroy(l);
  }
  tutti_status send(const void *p, uint64_t n, uint64_t cookie) {
    const tutti_net_buf buf = {const_cast<void *>(p), n, nullptr, 0};
    return host.net().send(tx, &buf, 1, cookie);
  }
  tutti_status recv(void *p, uint64_t n, uint64_t cookie, uint64_t *got = nullptr) {
    const tutti_net_buf buf = {p, n, nullptr, 0};
    return host.net().recv(rx, &buf, 1, got, cookie);
  }
  bool drive_until(const std::function<bool()> &ready) {
    return within(patience, [&] { return a.drive(), b.drive(), ready(); });
  }
};

inline std::vector<uint8_t> pattern(size_t n, unsigned seed) {
  std::vector<uint8_t> v(n);
  uint32_t x = seed * 2654435761u + 1;
  for (auto &b : v) b = static_cast<uint8_t>((x = x * 1664525u + 1013904223u) >> 24);
  return v;
}
