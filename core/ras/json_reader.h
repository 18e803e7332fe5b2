// tutti/core/ras/json_reader.h: members of known types and range out of JSON that somebody else has written. The first that is
// wrong is the error; what follows reads as if it were empty.
#pragma once
#include "base/status.h"
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace tutti::ras {

class JsonReader {
public:
  using json = nlohmann::json;
  explicit JsonReader(const std::string &origin) : origin_(origin) {}

  const Status &error() const { return error_; }
  Status bad(const std::string &where, const std::string &what) {
    if (error_.ok()) error_ = fail(Code::invalid_argument, "{}: {} {}", origin_, where, what);
    return error_;
  }
  const json *member(const json &j, const char *key, const std::string &where) {
    if (const json *m = optional(j, key)) return m;
    (void)bad(where, fmt::format("has no \"{}\"", key));
    return nullptr;
  }
  const json *optional(const json &j, const char *key) const {
    if (!j.is_object()) return nullptr;
    const auto at = j.find(key);
    return at == j.end() ? nullptr : &*at;
  }
  std::string text(const json &j, const char *key, const std::string &where) {
    const json *m = member(j, key, where);
    if (m && m->is_string()) return m->get<std::string>();
    if (m) (void)bad(where, fmt::format("has a \"{}\" that is no text", key));
    return "";
  }
  std::string text_or(const json &j, const char *key, const std::string &where) {
    return optional(j, key) ? text(j, key, where) : "";
  }
  int64_t number(const json &j, const char *key, int64_t low, int64_t high, const std::string &where) {
    const json *m = member(j, key, where);
    if (!m) return low;
    const bool fits = m->is_number_unsigned() ? m->get<uint64_t>() <= INT64_MAX : m->is_number_integer();
    const int64_t v = fits ? m->get<int64_t>() : 0;
    if (fits && v >= low && v <= high) return v;
    (void)bad(where, fmt::format("has a \"{}\" of {}; a number from {} to {}", key, shown(*m), low, high));
    return low;
  }
  uint64_t count(const json &j, const char *key, const std::string &where) { // 0 where there is none
    return optional(j, key) ? static_cast<uint64_t>(number(j, key, 0, INT64_MAX, where)) : 0;
  }
  uint64_t hex(const json &j, const char *key, const std::string &where) {
    const std::string t = text(j, key, where);
    uint64_t v = 0;
    const auto [end, problem] = std::from_chars(t.data(), t.data() + t.size(), v, 16);
    if (t.empty() || problem != std::errc() || end != t.data() + t.size())
      (void)bad(where, fmt::format("has a \"{}\" that is no hexadecimal number", key));
    return v;
  }
  // Its elements; nothing where there is no such member.
  const json::array_t &list(const json &j, const char *key, const std::string &where) {
    static const json::array_t none;
    const json *m = optional(j, key);
    if (!m) return none;
    if (m->is_array()) return m->get_ref<const json::array_t &>();
    (void)bad(where, fmt::format("has \"{}\" that is no list", key));
    return none;
  }

private:
  // Lists in lists are parsed without recursion, and would be written with it.
  static std::string shown(const json &m) {
    if (m.is_structured()) return m.is_array() ? "a list" : "an object";
    return m.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40);
  }
  const std::string origin_;
  Status error_;
};

} // namespace tutti::ras
