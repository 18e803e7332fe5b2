// tests/collnet/work.h: what members do until their group fails, and what they then have heard.
#pragma once
#include "members.h"
#include <cstdio>
#include <stdexcept>

namespace collnet {

// A row of the fault table, that of the test that runs (table.cc).
void happened();
void known_after(int64_t ms); // since the member last got a result

inline void check(bool holds, const std::string &what) {
  if (!holds) throw std::runtime_error(what);
}
inline Member::Options options_for(const Folder &folder, const std::vector<std::string> &servers) {
  return {{"servers", joined(servers)}, {"key_file", "\"" + folder.key() + "\""}};
}

// What a member learned: "<reason> <member> <milliseconds since it last got a result> <text>".
struct Heard {
  uint32_t reason = 0;
  int member = -1;
  int64_t ms = 0;
  std::string text;
};
inline Heard heard(const End &end) {
  Heard h;
  char text[900] = "";
  std::sscanf(end.said.c_str(), "%u %d %ld %899[^\n]", &h.reason, &h.member, &h.ms, text);
  h.text = text;
  return h;
}

// Works until the group fails, and says why.
inline void work(Member &m, size_t bytes = 256 << 10) {
  std::vector<float> in(bytes / 4, 1.0f), out(bytes / 4);
  auto last = Clock::now();
  for (const auto end = last + std::chrono::seconds(30); Clock::now() < end; last = Clock::now()) {
    const tutti_status s = m.run(Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), bytes));
    if (s == TUTTI_OK) continue;
    const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - last).count();
    m.note(std::to_string(m.why.reason) + " " + std::to_string(m.why.member) + " " + std::to_string(ms) + " " + m.text);
    return;
  }
  throw std::runtime_error("nothing happened");
}

inline bool empty_again(const Daemon &daemon, milliseconds limit = milliseconds(10'000)) {
  return daemon.becomes([](const auto &s) { return s["groups"].empty() && s["memory"]["reserved"] == 0; }, limit);
}

} // namespace collnet
