// tutti/core/plugin/registry.h: finds, loads and keeps plugins, and says why the rest was not loaded.
#pragma once
#include "base/fork.h"
#include "base/status.h"
#include "config/config.h"
#include "tutti/plugin/plugin.h"
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Lines that a plugin may still write in this second. A race may let a few more through, never lose the notice of a drop.
class LogBudget {
public:
  static constexpr uint32_t kLinesPerSecond = 100;
  enum class Answer { write, write_last, drop };
  Answer take();

private:
  std::atomic<int64_t> second_{0}; // of the steady clock
  std::atomic<uint32_t> taken_{0};
};

// One loaded plugin. Lives until the process ends; its file is never unmapped. Open until its registry is gone.
struct Plugin {
  const tutti_plugin_desc *desc = nullptr;
  void *state = nullptr;    // from desc->open()
  std::string path;         // "" = linked in
  uint64_t fingerprint = 0; // hash of the file's bytes (of name and version when linked in): compared between ranks
  std::map<std::string, Setting> settings;
  tutti_host host{};                            // what the plugin was given; host.impl = this
  uint64_t memory_cap = 0;                      // of tutti.host.memory/1, bytes; 0 = none
  const void *iface(std::string_view id) const; // NULL when it has none
  mutable LogBudget log_budget;
  mutable ChildFreeMutex setup; // held over [setup] functions, see plugin_setup()
};
// Forgets what this thread's last set_error() said, so that an old reason is not taken for that of a later failure.
void clear_plugin_error();
// To be held while [setup] functions of a plugin are called, once communicators of several threads may call them.
inline std::unique_lock<ChildFreeMutex> plugin_setup(const Plugin *plugin) {
  if (!plugin) return {};
  clear_plugin_error(); // what has been told, or was no failure
  return std::unique_lock(plugin->setup);
}

// A file that was looked at and not kept.
struct SkippedPlugin {
  std::string path;
  std::string reason;   // one line
  bool foreign = false; // has no tutti_plugin_v1: not ours, quiet
  bool unsafe = false;  // others could have put it there
};

// An interface of a plugin, ready to call: table->fn(plugin->state, ...).
template <class Table> struct Iface {
  const Plugin *plugin = nullptr;
  const Table *table = nullptr;
  explicit operator bool() const { return table != nullptr; }
};

// Names of plugins and tables, in any case.
bool same_name(std::string_view a, std::string_view b);

// How every table but proto's begins; proto has `signal` in the second place.
struct AnyTable {
  uint32_t struct_size, second;
  const char *name;
};

class Registry {
public:
  // The process's plugins: directories from configuration are read once, on first use. An error when a plugin that
  // configuration names cannot be used.
  static Result<Registry *> process();
  // A registry of its own, for tests and tools.
  static Result<std::unique_ptr<Registry>> load(std::shared_ptr<const Config> config, std::span<const std::string> directories);
  // Before process() is first used: plugins linked into the program.
  static void add_static(const tutti_plugin_desc *desc);
  // Where a process looks by default, after plugins.path: beside the program, then beside the library. [any]
  static std::vector<std::string> default_directories();

  ~Registry(); // closes its plugins; their files stay mapped

  std::span<const std::unique_ptr<Plugin>> plugins() const { return plugins_; }
  std::span<const SkippedPlugin> skipped() const { return skipped_; }
  std::span<const std::string> directories() const { return directories_; }

  // Every loaded plugin's table of one interface, in load order.
  template <class Table> std::vector<Iface<Table>> all(std::string_view id) const {
    std::vector<Iface<Table>> out;
    for (const auto &p : plugins_)
      if (const void *t = p->iface(id)) out.push_back({p.get(), static_cast<const Table *>(t)});
    return out;
  }
  // The one whose table (algo, proto, net, tuner) or plugin has this name, case-insensitive. Error: what there is, and why a
  // file of that name was skipped.
  template <class Table> Result<Iface<Table>> named(std::string_view id, std::string_view name) const {
    for (const auto &f : all<Table>(id))
      if (same_name(f.table->name, name) || same_name(f.plugin->desc->name, name)) return f;
    return not_found(id, name);
  }

private:
  friend class Loader;
  Registry() = default;
  Status not_found(std::string_view id, std::string_view name) const;
  std::vector<std::unique_ptr<Plugin>> plugins_;
  std::vector<SkippedPlugin> skipped_;
  std::vector<std::string> directories_;
};

// The reason that a plugin attached to the status it just returned on this thread (set_error), turned into an Error.
Status plugin_error(const Plugin &plugin, tutti_status status, std::string_view doing);

// Host services by id, for the loader: folders above register what they implement ("tutti.host.reduce/1", "tutti.host.plan/1",
// "tutti.host.watch/1"); the plugin folder itself provides diag, config and memory.
void provide_host_service(std::string_view id, const void *table);

} // namespace tutti
