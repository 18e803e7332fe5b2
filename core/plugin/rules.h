// tutti/core/plugin/rules.h: the numbered rules that a plugin must keep before it is used. The loader refuses at the first
// fatal finding; `tutti check-plugin` prints all. docs/plugin-rules.md explains each.
#pragma once
#include "tutti/plugin/plugin.h"
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct StaticFinding {
  std::string rule; // "P-ENTRY-03"
  std::string text; // follows the path: "is built for plugin ABI 2.0, ..."
  std::string todo; // what to do
  bool fatal = true;
};
using StaticFindings = std::vector<StaticFinding>;

// The file as bytes: readable, whose it is, ELF, machine, exported symbols. Runs nothing. `bytes` receives the file.
StaticFindings check_file(const std::string &path, std::vector<std::byte> *bytes = nullptr);
bool is_foreign(const StaticFindings &findings);         // the only trouble is that it does not export tutti_plugin_v1
StaticFindings check_directory(const std::string &path); // may plugins be loaded from it; also the folders above it
bool is_unsafe(const StaticFinding &finding);            // somebody else could have put it there: plugins.allow_unsafe

// The constant that the file exports. Reads, calls nothing.
StaticFindings check_desc(const tutti_plugin_desc *desc);
// A table that get_iface(id) gave. Ids this core does not know are not looked into. Calls only proto->kernel for the two forms
// that every protocol must have; `plugin` is what open() made.
StaticFindings check_table(const tutti_plugin_desc &desc, const std::string &id, const void *table, void *plugin);

const StaticFinding *first_fatal(const StaticFindings &findings);
constexpr uint32_t kMaxOptions = 256, kMaxIfaces = 64;

} // namespace tutti
