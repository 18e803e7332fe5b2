// tutti/core/config/toml_source.h: a TOML text as a flat list of values with their lines.
#pragma once
#include "config/parse.h"

namespace tutti::config {

struct TomlEntry {
  std::string table; // "core", "plugin.net-socket"
  std::string key;   // "" = the table itself
  Raw raw;
  std::string communicator = {}; // in [communicator.NAME]: the name
  int item = -1;                 // of a list of tables: which; `item_key` "" = that table itself
  std::string item_key = {};
};

// Tables one level deep, [plugin.NAME] two, [communicator.NAME.TABLE] three; values are switches, whole numbers, texts, lists
// of texts, and lists of tables of such values. All else is an error.
Result<std::vector<TomlEntry>> read_toml(std::string_view text, const std::string &name);

} // namespace tutti::config
