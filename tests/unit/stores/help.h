// Stores as the core opens them, by the plugins of this build.
#pragma once
#include "bootstrap/store.h"
#include "config/config.h"
#include "plugin/registry.h"
#include <chrono>
#include <doctest/doctest.h>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace stores {

using namespace tutti;
using namespace std::chrono_literals;
using boot::Store;
using Environment = std::map<std::string, std::string>;

inline std::unique_ptr<Registry> registry(const Environment &environment = {}) {
  auto config = Config::from("", "t", environment);
  REQUIRE(config.ok());
  const std::string directory = std::string(TUTTI_BINARY_DIR) + "/lib/tutti/plugins";
  auto r = Registry::load(*config, std::span(&directory, 1));
  REQUIRE_MESSAGE(r.ok(), (r.ok() ? "" : r.status().error().line()));
  return std::move(r).value();
}

inline Bytes bytes(std::string_view s) {
  const auto v = std::as_bytes(std::span(s.data(), s.size()));
  return Bytes(v.begin(), v.end());
}
inline std::string text(const std::optional<Bytes> &b) {
  return b ? std::string(reinterpret_cast<const char *>(b->data()), b->size()) : "(none)";
}
inline bool has(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// What open() says; "" = it opens.
inline std::string open_error(const std::string &url, const Environment &environment = {}, Nanos limit = 5s,
                              Code *code = nullptr) {
  const auto plugins = registry(environment);
  const auto began = Clock::now();
  auto s = Store::open(*plugins, url, Deadline::in(limit));
  CHECK(Clock::now() - began < limit + 1s);
  if (s.ok()) return "";
  if (code) *code = s.status().code();
  return s.status().error().line();
}

// A store that opens.
struct Client {
  explicit Client(const std::string &url, const Environment &environment = {}) : plugins(registry(environment)) {
    auto s = Store::open(*plugins, url, Deadline::in(10s));
    REQUIRE_MESSAGE(s.ok(), (s.ok() ? "" : s.status().error().line()));
    store = std::move(s).value();
  }
  std::string set(const std::string &key, std::string_view value, Nanos limit = 5s, Code *code = nullptr) const {
    return told(store->set(key, bytes(value), 60s, Deadline::in(limit)), code);
  }
  std::string get(const std::string &key, bool wait = false, Nanos limit = 5s, Code *code = nullptr) const {
    auto r = store->get(key, wait, Deadline::in(limit));
    return r.ok() ? text(*r) : told(r.status(), code);
  }
  std::string add(const std::string &key, std::string_view value, Nanos limit = 5s) const {
    auto r = store->add(key, bytes(value), 60s, Deadline::in(limit));
    return r.ok() ? (*r ? "first" : "second") : told(r.status(), nullptr);
  }
  static std::string told(const Status &s, Code *code) {
    if (s.ok()) return "";
    if (code) *code = s.code();
    return s.error().line();
  }
  std::unique_ptr<Registry> plugins;
  std::unique_ptr<Store> store; // goes before the plugins
};

} // namespace stores
