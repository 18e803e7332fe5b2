// A folder made of a text file: a line "@ PATH" begins a file, "#" before the first one a remark. Removed at the end.
#pragma once
#include "../../support/temp_folder.h"
#include "tools/doctor/host.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace doctor_test {

inline std::string data(const std::string &name) {
  return std::string(TUTTI_SOURCE_DIR) + "/tests/data/doctor/" + name;
}

class MadeUp {
public:
  explicit MadeUp(const std::string &name) {
    if (!name.empty()) read(data(name));
  }
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::binary) << text;
  }
  void remove(const std::string &path) const { std::filesystem::remove_all(root_ + path); }
  tutti::doctor::Tree tree() const { return tutti::doctor::Tree(root_); }

private:
  void read(const std::string &file) const {
    std::ifstream in(file);
    REQUIRE(in);
    std::string path, text;
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("@ ")) {
        if (!path.empty()) text += line + "\n";
        continue;
      }
      if (!path.empty()) write(path, text);
      path = line.substr(2);
      text.clear();
    }
    if (!path.empty()) write(path, text);
  }
  support::TempFolder folder_;
  const std::string root_ = folder_.path();
};

} // namespace doctor_test
