// tutti/core/config/toml_source.h: a TOML text as a flat list of values with their lines.
#pragma once
#include "config/parse.h"

namespace tutti::config {

struct TomlEntry {
  std::string table; // "core", "plugin.net-socket"
  std::string key;   // "" = the table itself
  Raw raw;
};

// Tables one level deep, [plugin.NAME] two; values are switches, whole numbers, texts, and lists of texts. All else is an
// error.
Result<std::vector<TomlEntry>> read_toml(std::string_view text, const std::string &name);

} // namespace tutti::config
