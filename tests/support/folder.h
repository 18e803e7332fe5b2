// tests/support/folder.h: a folder of a test and of the processes that it runs.
#pragma once
#include "temp_folder.h"
#include <optional>
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
    own_.emplace();
    path = own_->path();
  }
  bool own() const { return own_.has_value(); } // made here
  std::string env() const { return std::string(kName) + "=" + path.string(); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto &f : std::filesystem::directory_iterator(path)) out.push_back(f.path());
    return out;
  }
  std::filesystem::path path;

private:
  static constexpr const char *kName = "TUTTI_TEST_FOLDER";
  std::optional<TempFolder> own_;
};

} // namespace support
