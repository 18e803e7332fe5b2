// tutti/core/config/secret.h: settings that hold a password are shown without it.
#pragma once
#include <string>
#include <string_view>

namespace tutti {

// "redis://user:***@host:6379" of a URL with a password; any other text as it is. A password that should have been encoded,
// with
// '/' or '@' in it, is not shown either.
std::string without_password(std::string_view text);

} // namespace tutti
