#include "config/secret.h"

namespace tutti {

std::string without_password(std::string_view text) {
  const size_t start = text.find("://"), at = text.rfind('@');
  if (start == std::string_view::npos || at == std::string_view::npos || at < start) return std::string(text);
  const size_t colon = text.find(':', start + 3);
  if (colon == std::string_view::npos || colon > at) return std::string(text);
  return std::string(text.substr(0, colon + 1)) + "***" + std::string(text.substr(at));
}

} // namespace tutti
