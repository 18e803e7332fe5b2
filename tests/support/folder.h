// tests/support/folder.h: a folder of a test and of the processes that it runs.
#pragma once
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace support {

// Removed at the end by who made it. Processes of a run come through their test case again, and find the first one's.
class Folder {
public:
  Folder() {
    if (const char *given = std::getenv(kName)) {
      path = given;
      return;
    }
    std::string name = std::filesystem::temp_directory_path() / "tutti-test-XXXXXX";
    if (!::mkdtemp(name.data()))
      throw std::filesystem::filesystem_error("no folder", name, std::error_code(errno, std::generic_category()));
    path = name;
    own_ = true;
  }
  ~Folder() {
    std::error_code none;
    if (own_) std::filesystem::remove_all(path, none);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  bool own() const { return own_; } // made here
  std::string env() const { return std::string(kName) + "=" + path.string(); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto &f : std::filesystem::directory_iterator(path)) out.push_back(f.path());
    return out;
  }
  std::filesystem::path path;

private:
  static constexpr const char *kName = "TUTTI_TEST_FOLDER";
  bool own_ = false;
};

} // namespace support
