// tests/support/traffic.h: what a rank's links have carried, by tuttiCommTraffic.
#pragma once
#include "ranks.h"
#include <nlohmann/json.hpp>

namespace support {

inline nlohmann::json links_of(Rank &r) {
  size_t needed = 0;
  if (!EXPECT_OK(r, tuttiCommTraffic(r.comm, nullptr, 0, &needed))) return nlohmann::json::array();
  std::string text;
  tuttiResult_t e = tuttiInvalidArgument;
  while (e == tuttiInvalidArgument && needed > text.size()) { // it grows while operations run
    text.resize(needed);
    e = tuttiCommTraffic(r.comm, text.data(), text.size(), &needed);
  }
  if (!EXPECT_OK(r, e)) return nlohmann::json::array();
  return nlohmann::json::parse(text.c_str())["communicators"][0]["ranks"][0]["links"];
}

struct Moved {
  int64_t messages = 0, bytes = 0, wire = 0, lent = 0;
  bool operator==(const Moved &) const = default;
  Moved operator-(const Moved &o) const { return {messages - o.messages, bytes - o.bytes, wire - o.wire, lent - o.lent}; }
};
// Over links of one direction, "send" or "recv", to one peer or (-1) to all.
inline Moved sum_of(const nlohmann::json &links, const char *direction, int peer = -1) {
  Moved sum;
  for (const auto &l : links) {
    if (l["direction"] != direction || (peer >= 0 && l["peer"] != peer)) continue;
    sum.messages += l["messages"].get<int64_t>();
    sum.bytes += l["bytes"].get<int64_t>();
    sum.wire += l["wire_bytes"].get<int64_t>();
    sum.lent += l.value("lent_bytes", int64_t{0});
  }
  return sum;
}

struct Traffic {
  nlohmann::json before, after;
  Moved sent(int peer = -1) const { return sum_of(after, "send", peer) - sum_of(before, "send", peer); }
  Moved received(int peer = -1) const { return sum_of(after, "recv", peer) - sum_of(before, "recv", peer); }
};
// What `work` moves; it ends with its operations complete.
template <class Work> Traffic traffic_of(Rank &r, Work &&work) {
  Traffic t;
  t.before = links_of(r);
  work();
  t.after = links_of(r);
  return t;
}

} // namespace support
