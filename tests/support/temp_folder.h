// tests/support/temp_folder.h: a folder that goes away with its owner, whatever is in it.
#pragma once
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace support {

class TempFolder {
public:
  TempFolder() {
    std::string name = std::filesystem::temp_directory_path() / "tutti-test-XXXXXX";
    if (!::mkdtemp(name.data()))
      throw std::filesystem::filesystem_error("no folder", name, std::error_code(errno, std::generic_category()));
    path_ = std::filesystem::canonical(name);
  }
  ~TempFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TempFolder(const TempFolder &) = delete;
  TempFolder &operator=(const TempFolder &) = delete;
  const std::filesystem::path &path() const { return path_; }
  std::string file(const std::string &name) const { return path_ / name; }

private:
  std::filesystem::path path_;
};

} // namespace support
