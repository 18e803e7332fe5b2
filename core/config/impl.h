// tutti/core/config/impl.h: what a Config holds.
#pragma once
#include "config/files.h"
#include "config/parse.h"
#include "config/toml_source.h"
#include <mutex>
#include <set>

namespace tutti {

enum class Source { builtin, file, communicator, api, environment, tool }; // weakest first

// A class and where it was given.
struct SourcedClass {
  Source source;
  OpClass options;
};

// [communicator.NAME] of files.
struct CommunicatorTable {
  std::vector<std::pair<size_t, Setting>> settings; // of options, by index
  std::vector<OpClass> classes;
};

// What loaded plugins have said is theirs; shared by a configuration and those derived from it.
struct PluginClaims {
  std::mutex mutex;                                     // guards both
  std::set<std::string> names;                          // of the environment
  std::map<std::string, std::vector<std::string>> keys; // per plugin
};

struct Config::Impl {
  std::vector<Setting> settings;     // in the order of core_options()
  std::vector<Source> sources;       // of each
  std::vector<SourcedClass> classes; // weakest first
  std::map<std::string, CommunicatorTable, std::less<>> communicators;
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
  Status apply_entry(const config::TomlEntry &entry, std::span<const std::string> tables);
  Status set(size_t option, const config::Raw &raw, Source source);
  void add_classes(std::vector<OpClass> more, Source source);
  Status check_between(); // rules that span several options
};

namespace config {
constexpr std::string_view kClassKey = "coll.class";
// "ops=all_reduce max_bytes=64K algo=direct; ...": classes with a ';' between them.
Result<std::vector<OpClass>> parse_classes(const Raw &raw);
// One class of a file, whose keys are `entries`; the first stands for the class itself.
Result<OpClass> class_from(std::span<const TomlEntry> entries);
size_t option_index(std::string_view key);          // core_options().size() when there is none
std::string plugin_prefix(std::string_view plugin); // "TUTTI_PLUGIN_NET_SOCKET_"
// load() with other places to look at.
Result<std::shared_ptr<const Config>> load_from(const std::map<std::string, std::string> &environment,
                                                const SearchPaths &paths);
// For a process with more rights than its user: the system's file alone.
Result<std::shared_ptr<const Config>> load_privileged(const std::map<std::string, std::string> &environment, SearchPaths paths);
} // namespace config

} // namespace tutti
