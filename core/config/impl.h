// tutti/core/config/impl.h: what a Config holds.
#pragma once
#include "config/files.h"
#include "config/parse.h"
#include <mutex>
#include <set>

namespace tutti {

enum class Source { builtin, file, api, environment, tool };

// What loaded plugins have said is theirs; shared by a configuration and those derived from it.
struct PluginClaims {
  std::mutex mutex;                                     // guards both
  std::set<std::string> names;                          // of the environment
  std::map<std::string, std::vector<std::string>> keys; // per plugin
};

struct Config::Impl {
  std::vector<Setting> settings;                                           // in the order of core_options()
  std::vector<Source> sources;                                             // of each
  std::map<std::string, std::map<std::string, config::Raw>> plugin_tables; // name -> key -> value; key "" = the table itself
  std::map<std::string, std::string> environment;
  std::set<std::string> used; // names of the environment that options took or that a stronger one of the same option hides
  std::vector<std::string> files;
  std::shared_ptr<PluginClaims> claims = std::make_shared<PluginClaims>();

  static Result<std::shared_ptr<Impl>> build(std::span<const config::TomlFile> files,
                                             const std::map<std::string, std::string> &env);
  Status apply_defaults();
  Status apply_file(const config::TomlFile &file);
  Status apply_environment();
  Status set(size_t option, const config::Raw &raw, Source source);
  Status check_between(); // rules that span several options
};

namespace config {
size_t option_index(std::string_view key);          // core_options().size() when there is none
std::string plugin_prefix(std::string_view plugin); // "TUTTI_PLUGIN_NET_SOCKET_"
// load() with other places to look at.
Result<std::shared_ptr<const Config>> load_from(const std::map<std::string, std::string> &environment,
                                                const SearchPaths &paths);
// For a process with more rights than its user: the system's file alone.
Result<std::shared_ptr<const Config>> load_privileged(const std::map<std::string, std::string> &environment, SearchPaths paths);
} // namespace config

} // namespace tutti
