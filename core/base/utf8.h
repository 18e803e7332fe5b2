// tutti/core/base/utf8.h: names that others have given, for formats that take UTF-8 alone.
#pragma once
#include <string>
#include <string_view>

namespace tutti {

std::string valid_utf8(std::string_view text); // what is none becomes U+FFFD

} // namespace tutti
