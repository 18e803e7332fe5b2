#include "base/utf8.h"
#include <nlohmann/json.hpp>

namespace tutti {

std::string valid_utf8(std::string_view text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

} // namespace tutti
