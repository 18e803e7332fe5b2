// tutti/core/tools/doctor/tree.h: files of /proc and /sys below a root, "" for the real ones. Everything may be missing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::doctor {

class Tree {
public:
  explicit Tree(std::string root = {}) : root_(std::move(root)) {}

  bool exists(const std::string &path) const;
  std::string all(const std::string &path, size_t most = 1 << 20) const;     // "" when it cannot be read
  std::string line(const std::string &path) const;                           // the first, without blanks around it
  std::vector<std::string> lines(const std::string &path) const;             // those that are not empty
  std::optional<int64_t> number(const std::string &path) const;              // the first word of the file, if it is one
  std::vector<std::string> list(const std::string &folder) const;            // names, sorted
  std::string target(const std::string &path) const;                         // last component of a symbolic link, "" = none
  std::string value(const std::string &path, std::string_view key) const;    // of lines "key: value" or "key value"
  std::string path(const std::string &below) const { return root_ + below; } // for what is no plain reading
  bool real() const { return root_.empty(); }                                // not made up by a test

private:
  std::string root_;
};

std::string trimmed(std::string_view text);
std::vector<std::string> words(std::string_view text);                  // separated by blanks
std::optional<int64_t> to_number(std::string_view text, int base = 10); // all of it
std::optional<int64_t> cpus_in(std::string_view list);                  // "0-3,8": 5

} // namespace tutti::doctor
