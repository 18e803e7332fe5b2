// tutti/core/config/markdown.h: the reference page of all options.
#pragma once
#include <string>

namespace tutti {

std::string configuration_markdown(); // docs/configuration.md is this, byte for byte

} // namespace tutti
