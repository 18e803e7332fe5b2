// tests/unit/config/helper.h: short forms for configurations from texts.
#pragma once
#include "config/config.h"
#include <doctest/doctest.h>

using Env = std::map<std::string, std::string>;

inline std::shared_ptr<const tutti::Config> good(std::string_view toml, const Env &env = {}) {
  auto r = tutti::Config::from(toml, "t.toml", env);
  if (!r.ok()) FAIL(r.status().error().line());
  return *r;
}

// The message of the error.
inline std::string wrong(std::string_view toml, const Env &env = {}) {
  const auto r = tutti::Config::from(toml, "t.toml", env);
  if (r.ok()) return "no error";
  CHECK(r.status().error().phase == "config");
  return r.status().error().line();
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
