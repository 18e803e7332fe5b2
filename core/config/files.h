// tutti/core/config/files.h: which configuration files are read, and which are not trusted.
#pragma once
#include "base/status.h"
#include <map>
#include <string>
#include <vector>

namespace tutti::config {

struct SearchPaths {
  std::string system = "/etc/tutti/tutti.toml";
  std::string local = "./tutti.toml";
};

struct TomlFile {
  std::string name; // as shown in messages
  std::string text;
};

// Weakest first: the system's file, then the user's: TUTTI_CONFIG (must exist), else ./tutti.toml (only when it belongs to this
// user and nobody else may write it), else $XDG_CONFIG_HOME/tutti/tutti.toml or ~/.config/tutti/tutti.toml.
Result<std::vector<TomlFile>> find_files(const std::map<std::string, std::string> &environment, const SearchPaths &paths);

} // namespace tutti::config
