// tutti/core/comm/map_path.h: the name of the file that comm.map_file stands for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// Files of different communicators and ranks never have one name: what tells them apart is added before the extension where the
// pattern lacks it. A pattern that ends in a slash is a folder.
std::string map_path(std::string_view pattern, uint64_t comm, int rank);

} // namespace tutti
