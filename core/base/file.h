// tutti/core/base/file.h: files that are written whole.
#pragma once
#include "base/status.h"
#include <string>
#include <string_view>

namespace tutti {

// The file holds all of `text` afterwards, or is what it was before: written beside it and renamed. What is no regular file
// (a pipe, /dev/stdout) is written to as it is.
Status replace_file(const std::string &path, std::string_view text);

} // namespace tutti
