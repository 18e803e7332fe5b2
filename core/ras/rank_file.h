// tutti/core/ras/rank_file.h: the name of the file that a pattern such as comm.map_file stands for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::ras {

// Files of different communicators and ranks never have one name: what tells them apart is added before the extension where the
// pattern lacks it. A pattern that ends in a slash is a folder, with files called `plain`.
std::string rank_file(std::string_view pattern, std::string_view plain, uint64_t comm, int rank);
// The same, but only what the pattern itself asks for.
std::string named_file(std::string_view pattern, uint64_t comm, int rank);
std::string comm_id_text(uint64_t comm);

} // namespace tutti::ras
