// tests/support/text.h: what a failed call said.
#pragma once
#include "ranks.h"
#include <initializer_list>

namespace support {

inline bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

// All parts are in the text; prints it otherwise.
inline bool says(Rank &r, const std::string &text, std::initializer_list<const char *> parts) {
  bool all = true;
  for (const char *part : parts) all = r.expect(has(text, part), part, text.c_str(), 0) && all;
  return all;
}

} // namespace support
