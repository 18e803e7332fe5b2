// tutti/core/plugin/loader.h: fills a registry: searches directories, checks files, opens what passes, notes why the rest did
// not.
#pragma once
#include "plugin/registry.h"
#include "plugin/rules.h"

namespace tutti {

// plugins.path, then the default directories; no relative ones, and from the environment none in a privileged process.
std::vector<std::string> search_path(const Config &config);
// Whether a file could be what the user means by `name`: "socket" or "net-socket" for libtutti-net-socket.so.
bool file_may_be(const std::string &path, std::string_view name);

// Closes a plugin that was opened, and keeps the object: its host may be read as long as the file is mapped.
void retire_plugin(std::unique_ptr<Plugin> plugin, bool opened);

class Loader {
public:
  Loader(Registry *registry, std::shared_ptr<const Config> config) : r_(registry), config_(std::move(config)) {}
  Status run(std::span<const tutti_plugin_desc *const> linked_in, std::span<const std::string> directories);

private:
  Status search(const std::string &directory);
  Status load_file(const std::string &path);
  // Keeps the plugin or notes why not. An error is one of configuration.
  Status adopt(const tutti_plugin_desc *desc, const std::string &path, uint64_t fingerprint);
  Status read_settings(Plugin *plugin);
  tutti_status open(Plugin *plugin, std::string *why);
  std::string check_tables(Plugin *plugin); // "" or why not
  std::string name_conflict(const Plugin &plugin) const;
  Status load_named_paths();
  Status check_named(const char *key, const char *iface);
  struct Named {
    std::string entry, origin;
  };
  std::vector<Named> named(const char *key) const; // by configuration, of any communicator
  bool disabled(std::string_view name) const;
  void skip(const std::string &path, std::string reason, bool foreign = false, bool unsafe = false);
  void allow_unsafe(const std::string &path, StaticFindings *findings) const; // as plugins.allow_unsafe says
  bool seen(const std::string &real_path);

  Registry *r_;
  std::shared_ptr<const Config> config_;
  std::vector<std::string> files_; // real paths looked at
};

} // namespace tutti
