#include "plugin/registry.h"
#include "base/fork.h"
#include "plugin/loader.h"
#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/ranges.h>
#include <mutex>
#include <strings.h>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// The folder of the file that holds this function: libtutti.so, or the program that links it in.
std::string own_directory() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void *>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code ec;
  const fs::path file = fs::canonical(info.dli_fname, ec);
  return ec ? "" : file.parent_path().string();
}

struct StaticPlugins {
  std::mutex mutex; // guards list
  std::vector<const tutti_plugin_desc *> list;
};
StaticPlugins &statics() {
  static StaticPlugins *s = [] {
    auto *made = new StaticPlugins;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *s;
}

// Plugins of registries that are gone: a closed plugin's host stays readable, and nothing is reported as leaked.
struct Graveyard {
  std::mutex mutex; // guards list
  std::vector<std::unique_ptr<Plugin>> list;
};
Graveyard &graveyard() {
  static Graveyard *g = [] {
    auto *made = new Graveyard;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *g;
}

} // namespace

void retire_plugin(std::unique_ptr<Plugin> plugin, bool opened) {
  if (opened) plugin->desc->close(plugin->state);
  std::lock_guard lock(graveyard().mutex);
  graveyard().list.push_back(std::move(plugin));
}

const void *Plugin::iface(std::string_view id) const {
  for (const char *const *listed = desc->ifaces; *listed; listed++)
    if (id == *listed) return desc->get_iface(state, *listed);
  return nullptr;
}

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

Status Registry::not_found(std::string_view id, std::string_view name) const {
  std::vector<std::string> there;
  for (const auto &f : all<AnyTable>(id))
    if (f.table->name) there.push_back(f.table->name);
  std::string why;
  std::error_code ec;
  for (const SkippedPlugin &s : skipped_)
    if (file_may_be(s.path, name) || (s.unsafe && fs::is_directory(s.path, ec)))
      why += fmt::format("; {} was skipped: {}", s.path, s.reason);
  const std::string kind(id.substr(0, id.rfind('/')));
  return fail(Code::invalid_usage, "no plugin offers {} \"{}\"; there is: {}{}", kind, name,
              there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")), why)
      .phase("plugin")
      .hint(why.empty() ? fmt::format("looked in: {}", fmt::join(directories_, ", ")) : "");
}

std::vector<std::string> Registry::default_directories() {
  std::vector<std::string> out;
  std::error_code ec;
  const fs::path prefix = fs::canonical("/proc/self/exe", ec).parent_path().parent_path();
  if (!ec) out.push_back((prefix / "lib/tutti/plugins").string());
  if (!ec && TUTTI_LIBDIR != std::string_view("lib")) out.push_back((prefix / TUTTI_LIBDIR / "tutti/plugins").string());
  if (const std::string own = own_directory(); !own.empty()) out.push_back(own + "/tutti/plugins");
  return out;
}

void Registry::add_static(const tutti_plugin_desc *desc) {
  std::lock_guard lock(statics().mutex);
  statics().list.push_back(desc);
}

Result<std::unique_ptr<Registry>> Registry::load(std::shared_ptr<const Config> config,
                                                 std::span<const std::string> directories) {
  std::unique_ptr<Registry> registry(new Registry);
  Loader loader(registry.get(), std::move(config));
  std::vector<const tutti_plugin_desc *> linked_in;
  {
    std::lock_guard lock(statics().mutex);
    linked_in = statics().list;
  }
  TUTTI_TRY(loader.run(linked_in, directories));
  return registry;
}

Result<Registry *> Registry::process() {
  struct Process {
    Result<std::unique_ptr<Registry>> registry = Status();
    Process() {
      auto config = Config::process();
      if (!config.ok()) {
        registry = config.status();
        return;
      }
      registry = load(*config, search_path(**config));
    }
  };
  static Process *p = new Process; // never destroyed: plugins may still be in use when the process ends
  if (!p->registry.ok()) return p->registry.status();
  return p->registry.value().get();
}

Registry::~Registry() {
  for (auto it = plugins_.rbegin(); it != plugins_.rend(); ++it) retire_plugin(std::move(*it), true);
}

} // namespace tutti
