// tutti/core/base/file.h: files that are written whole.
#pragma once
#include "base/status.h"
#include <string>
#include <string_view>

namespace tutti {

// The file holds all of `text` afterwards, or is what it was before: written beside it and renamed. What is no regular file
// (a pipe, /dev/stdout) is written to as it is; a reader that leaves is an error, and so is one that does not read for 5 s, or
// takes more than 30 s in all.
Status replace_file(const std::string &path, std::string_view text);

// What is left in a descriptor, appended. 0 or errno; EFBIG: more than `most` bytes; ETIMEDOUT: one that does not block brings
// nothing for some seconds, or no end for 30.
int read_rest(int fd, size_t most, std::string *text);

// All of a file. Ends in bounded time and memory whatever it is: an error for a folder, for what is longer than `most` bytes,
// and for a pipe that nobody writes to for some seconds.
Result<std::string> read_file(const std::string &path, size_t most);

} // namespace tutti
