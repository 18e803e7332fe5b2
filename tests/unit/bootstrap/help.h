// Helpers of the bootstrap tests: configurations, deadlines, ranks as threads.
#pragma once
#include "base/fd.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/service.h"
#include "bootstrap/wire.h"
#include <algorithm>
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace help {

using namespace tutti;
using namespace std::chrono_literals;
using Environment = std::map<std::string, std::string>;

inline std::shared_ptr<const Config> config(const Environment &environment = {}) {
  auto c = Config::from("", "test.toml", environment);
  REQUIRE_MESSAGE(c.ok(), (c.ok() ? "" : c.status().error().line()));
  return c.value();
}

inline Deadline soon() {
  return Deadline::in(20s);
}

inline Bytes bytes(std::string_view s) {
  const auto v = std::as_bytes(std::span(s.data(), s.size()));
  return Bytes(v.begin(), v.end());
}

inline std::string text(const Bytes &b) {
  return std::string(reinterpret_cast<const char *>(b.data()), b.size());
}
inline bool holds(const Bytes &data, const Bytes &what) {
  return std::search(data.begin(), data.end(), what.begin(), what.end()) != data.end();
}
inline std::string line(const Status &s) {
  return s.ok() ? "" : s.error().line();
}
template <class T> std::string line(const Result<T> &r) {
  return r.ok() ? "" : r.status().error().line();
}

// Of this host; connections reach its queue.
inline UniqueFd tcp_listener(boot::Endpoint *at) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto *in = reinterpret_cast<sockaddr_in *>(&at->storage);
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof *in;
  if (bind(fd.get(), reinterpret_cast<sockaddr *>(in), length) != 0 || listen(fd.get(), 8) != 0) fd.reset();
  getsockname(fd.get(), reinterpret_cast<sockaddr *>(in), &length);
  return fd;
}

inline void on_service(const std::function<void()> &fn) {
  std::promise<void> done;
  boot::Service::get().post([&] {
    fn();
    done.set_value();
  });
  done.get_future().wait();
}

// fn(rank) on one thread each.
inline void each(int n, const std::function<void(int)> &fn) {
  std::vector<std::thread> threads;
  for (int r = 0; r < n; r++) threads.emplace_back([&fn, r] { fn(r); });
  for (auto &t : threads) t.join();
}

// A communicator of n thread ranks.
inline std::vector<std::unique_ptr<Bootstrap>> world(int n, const std::shared_ptr<const Config> &c = config()) {
  auto id = Bootstrap::create_id(*c);
  REQUIRE(id.ok());
  std::vector<std::unique_ptr<Bootstrap>> out(static_cast<size_t>(n));
  std::vector<std::string> errors(static_cast<size_t>(n));
  each(n, [&](int r) {
    auto b = Bootstrap::join(id.value(), n, r, c, soon());
    if (b.ok())
      out[static_cast<size_t>(r)] = std::move(b).value();
    else
      errors[static_cast<size_t>(r)] = line(b.status());
  });
  for (const auto &e : errors) REQUIRE(e == "");
  return out;
}

inline void close(std::vector<std::unique_ptr<Bootstrap>> &world) {
  for (auto &b : world)
    if (b) b->expect_close();
  world.clear();
}

} // namespace help
