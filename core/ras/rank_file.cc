#include "ras/rank_file.h"
#include "log/log.h"
#include <array>
#include <filesystem>

namespace tutti::ras {

std::string comm_id_text(uint64_t comm) {
  return fmt::format("{:016x}", comm);
}

std::string named_file(std::string_view pattern, uint64_t comm, int rank) {
  const std::array<std::pair<char, std::string>, 2> more{{{'c', comm_id_text(comm)}, {'r', std::to_string(rank)}}};
  return log::expand_file(pattern, more);
}

std::string rank_file(std::string_view pattern, std::string_view plain, uint64_t comm, int rank) {
  std::string path(pattern);
  std::error_code none;
  if (const auto what = std::filesystem::status(path, none); std::filesystem::exists(what) && std::filesystem::is_other(what))
    return path; // a pipe or a device such as /dev/null: all write to it
  if (path.ends_with('/')) path += plain;
  const auto has = [&](char letter) {
    for (size_t at = path.find('%'); at != std::string::npos && at + 1 < path.size(); at = path.find('%', at + 2))
      if (path[at + 1] == letter) return true;
    return false;
  };
  const std::string missing = fmt::format("{}{}", has('c') ? "" : ".%c", has('r') ? "" : ".%r");
  const size_t name = path.rfind('/') + 1, dot = path.rfind('.'); // without a slash: 0
  path.insert(dot != std::string::npos && dot > name ? dot : path.size(), missing);
  return named_file(path, comm, rank);
}

} // namespace tutti::ras
