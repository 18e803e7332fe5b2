// tutti/plugin-api/conformance/suite.h: behavioural cases that any plugin of an interface must pass. Each case is numbered,
// runs in a process of its own with a time limit, and states in its title what is promised.
#pragma once
#include "plugin/registry.h"
#include <chrono>
#include <fmt/format.h>
#include <span>
#include <string>
#include <string_view>

namespace tutti::conformance {

// Ends the case from any of its threads, and its process with it: what the plugin was given stays alive to the last, because a
// plugin that broke its word may still write there.
enum class Ending { failed, skipped };
[[noreturn]] void end_case(Ending ending, const std::string &text);

template <class... A> [[noreturn]] void broken(fmt::format_string<A...> f, A &&...a) {
  end_case(Ending::failed, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> void require(bool holds, fmt::format_string<A...> f, A &&...a) {
  if (!holds) end_case(Ending::failed, fmt::format(f, std::forward<A>(a)...));
}
[[noreturn]] inline void skip(const std::string &why) {
  end_case(Ending::skipped, why);
}

struct Case {
  const char *id;    // "N-31"
  const char *title; // the promise, as a sentence
  void (*run)(const Plugin &plugin, const void *table);
  std::chrono::seconds limit{20};
};

std::span<const Case> net_cases();
std::span<const Case> collnet_cases();
std::span<const Case> algo_cases();
std::span<const Case> proto_cases();
std::span<const Case> tuner_cases();
std::span<const Case> store_cases();
// Those of an interface id; empty when there is no suite for it.
std::span<const Case> cases_of(std::string_view iface);

std::string status_name(int32_t status);

// xorshift: the same numbers on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : s_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t next() {
    s_ ^= s_ << 13;
    s_ ^= s_ >> 7;
    return s_ ^= s_ << 17;
  }
  uint64_t below(uint64_t n) { return next() % n; }
  void fill(void *p, size_t n) {
    auto *b = static_cast<unsigned char *>(p);
    for (size_t i = 0; i < n; i++) b[i] = static_cast<unsigned char>(next() >> 32);
  }

private:
  uint64_t s_;
};

} // namespace tutti::conformance
