#include "plugin/loader.h"
#include "log/log.h"
#include "plugin/elf.h"
#include "plugin/guard.h"
#include "plugin/services.h"
#include <algorithm>
#include <cerrno>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/ranges.h>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string explain(const StaticFinding &f) {
  return f.todo.empty() ? fmt::format("{} ({})", f.text, f.rule) : fmt::format("{}; {} ({})", f.text, f.todo, f.rule);
}
bool is_path(std::string_view entry) {
  return entry.find('/') != std::string_view::npos;
}

std::string real_path(const std::string &path) {
  std::error_code ec;
  const fs::path real = fs::canonical(path, ec);
  return ec ? path : real.string();
}

// "net-socket" for ".../libtutti-net-socket.so"
std::string stem(const std::string &path) {
  std::string name = fs::path(path).filename().string();
  if (name.starts_with("libtutti-")) name.erase(0, 9);
  if (name.ends_with(".so")) name.resize(name.size() - 3);
  return name;
}

// What the dynamic linker says. A library that the plugin needs and that is not installed is the common case.
std::string cannot_load(const std::string &why) {
  const size_t library = why.find(": cannot open shared object file");
  const std::string todo = library == std::string::npos ? "" : fmt::format("; install what holds {}", why.substr(0, library));
  return fmt::format("cannot be loaded: {}{} (P-ENTRY-12)", why, todo);
}

} // namespace

bool file_may_be(const std::string &path, std::string_view name) {
  if (is_path(name)) return real_path(path) == real_path(std::string(name));
  const std::string base = stem(path);
  const size_t dash = base.find('-');
  return same_name(base, stem(std::string(name))) || (dash != std::string::npos && same_name(base.substr(dash + 1), name));
}

std::vector<std::string> search_path(const Config &config) {
  std::vector<std::string> out;
  const Setting &path = config.setting("plugins.path");
  for (const std::string &directory : path.list) {
    if (directory.empty()) continue;
    if (directory.front() == '/')
      out.push_back(directory);
    else
      log::warn(log::Subsys::plugin, "plugin directory \"{}\" of {} is ignored: it is not an absolute path", directory,
                path.origin);
  }
  for (std::string &directory : Registry::default_directories()) out.push_back(std::move(directory));
  return out;
}

void Loader::skip(const std::string &path, std::string reason, bool foreign, bool unsafe) {
  const auto level = foreign ? log::Level::debug : unsafe ? log::Level::warn : log::Level::info;
  if (log::enabled(level, log::Subsys::plugin))
    log::write(level, log::Subsys::plugin, fmt::format("plugin {} skipped: {}", path, reason));
  r_->skipped_.push_back({path, std::move(reason), foreign, unsafe});
}

void Loader::allow_unsafe(const std::string &path, StaticFindings *findings) const {
  if (config_->number("plugins.allow_unsafe") == 0) return;
  const auto unsafe = std::find_if(findings->begin(), findings->end(), is_unsafe);
  if (unsafe == findings->end()) return;
  log::warn(log::Subsys::plugin, "{}: {}; it is used all the same, as {} says", path, unsafe->text,
            config_->setting("plugins.allow_unsafe").origin);
  std::erase_if(*findings, is_unsafe);
}

bool Loader::seen(const std::string &path) {
  if (std::find(files_.begin(), files_.end(), path) != files_.end()) return true;
  files_.push_back(path);
  return false;
}

bool Loader::disabled(std::string_view name) const {
  for (const std::string &d : config_->list("plugins.disable"))
    if (same_name(d, name)) return true;
  return false;
}

std::vector<Loader::Named> Loader::named(const char *key) const {
  std::vector<Named> out;
  const auto add = [&](const Setting &s) {
    for (const std::string &entry : s.list.empty() ? std::vector<std::string>{s.text} : s.list)
      if (!entry.empty() && !same_name(entry, "none")) out.push_back({entry, s.origin});
  };
  if (!config_->is_default(key)) add(config_->setting(key));
  for (const auto &own : config_->communicator_settings())
    if (own.key == key) add(own.setting);
  return out;
}

Status Loader::run(std::span<const tutti_plugin_desc *const> linked_in, std::span<const std::string> directories) {
  for (const tutti_plugin_desc *desc : linked_in) {
    const std::string where = fmt::format("(linked in) {}", desc->name ? desc->name : "?");
    const StaticFindings findings = check_desc(desc);
    if (const StaticFinding *f = first_fatal(findings)) {
      skip(where, explain(*f));
      continue;
    }
    const std::string identity = fmt::format("{} {}", desc->name, desc->version);
    TUTTI_TRY(adopt(desc, "", hash_bytes(std::as_bytes(std::span(identity)))));
  }
  TUTTI_TRY(load_named_paths());
  std::vector<std::string> done;
  for (const std::string &directory : directories) {
    const std::string real = real_path(directory);
    if (std::find(done.begin(), done.end(), real) != done.end()) continue;
    done.push_back(real);
    r_->directories_.push_back(directory);
    TUTTI_TRY(search(directory));
  }
  std::vector<std::string> names;
  for (const auto &p : r_->plugins_) names.push_back(p->desc->name);
  for (const SkippedPlugin &s : r_->skipped_) // their tables are not mistakes, only unused
    if (!s.foreign) names.push_back(stem(s.path));
  TUTTI_TRY(config_->check_plugin_tables(names));
  TUTTI_TRY(check_named("plugins.net", TUTTI_NET));
  return check_named("plugins.tuner", TUTTI_TUNER);
}

Status Loader::search(const std::string &directory) {
  std::error_code ec;
  if (!fs::exists(directory, ec)) return {}; // most default directories do not exist
  StaticFindings findings = check_directory(directory);
  allow_unsafe(directory, &findings);
  if (const StaticFinding *f = first_fatal(findings)) {
    skip(directory, explain(*f), false, is_unsafe(*f));
    return {};
  }
  std::vector<std::string> files;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("libtutti-") && name.ends_with(".so")) files.push_back(it->path().string());
  }
  if (ec) skip(directory, fmt::format("cannot be listed: {}", ec.message()));
  std::sort(files.begin(), files.end()); // the same order on every rank
  for (const std::string &file : files) TUTTI_TRY(load_file(file));
  return {};
}

Status Loader::load_file(const std::string &path) {
  const std::string real = real_path(path);
  if (seen(real)) return {};
  if (disabled(stem(path))) {
    skip(path, "plugins.disable names it");
    return {};
  }
  std::vector<std::byte> bytes;
  StaticFindings findings = check_file(real, &bytes);
  // A link may point anywhere: the directory that holds the file itself counts as well.
  for (StaticFinding &f : check_directory(fs::path(real).parent_path().string())) findings.push_back(std::move(f));
  allow_unsafe(path, &findings);
  if (const StaticFinding *f = first_fatal(findings)) {
    skip(path, explain(*f), is_foreign(findings), is_unsafe(*f));
    return {};
  }
  void *handle = ::dlopen(real.c_str(), RTLD_NOW | RTLD_LOCAL); // never closed: its code may be on any stack
  if (!handle) {
    skip(path, cannot_load(::dlerror()));
    return {};
  }
  const auto *desc = static_cast<const tutti_plugin_desc *>(::dlsym(handle, "tutti_plugin_v1"));
  if (!desc) {
    skip(path, "tutti_plugin_v1 cannot be resolved (P-ENTRY-01)");
    return {};
  }
  findings = check_desc(desc);
  if (const StaticFinding *f = first_fatal(findings)) {
    skip(path, explain(*f));
    return {};
  }
  return adopt(desc, path, hash_bytes(bytes));
}

std::string Loader::name_conflict(const Plugin &plugin) const {
  for (const auto &other : r_->plugins_)
    if (same_name(other->desc->name, plugin.desc->name))
      return fmt::format("a plugin named \"{}\" is already loaded from {} (P-ENTRY-13)", plugin.desc->name,
                         other->path.empty() ? "the program itself" : other->path);
  return "";
}

Status Loader::read_settings(Plugin *plugin) {
  TUTTI_ASSIGN(settings, config_->plugin_settings(plugin->desc->name, plugin->desc->options));
  plugin->settings = std::move(settings);
  for (const tutti_option *o = plugin->desc->options; o && o->key; o++) {
    if (o->type != TUTTI_OPT_STRING_LIST) continue;
    Setting &s = plugin->settings[o->key];
    s.text = fmt::format("{}", fmt::join(s.list, ",")); // what get_string() gives
  }
  return {};
}

tutti_status Loader::open(Plugin *plugin, std::string *why) {
  give_host(plugin);
  clear_plugin_error();
  const tutti_status status = guarded(plugin, "open", plugin->desc->open, &plugin->host, &plugin->state);
  if (status != TUTTI_OK) *why = fmt::format("{} (P-OPEN-01)", plugin_error(*plugin, status, "open() failed").error().message);
  return status;
}

std::string Loader::check_tables(Plugin *plugin) {
  for (const char *const *id = plugin->desc->ifaces; *id; id++) {
    const void *table = plugin->desc->get_iface(plugin->state, *id);
    const StaticFindings findings = check_table(*plugin->desc, *id, table, plugin->state);
    if (const StaticFinding *f = first_fatal(findings)) return explain(*f);
  }
  return "";
}

Status Loader::adopt(const tutti_plugin_desc *desc, const std::string &path, uint64_t fingerprint) {
  auto plugin = std::make_unique<Plugin>();
  plugin->desc = desc;
  plugin->path = path;
  plugin->fingerprint = fingerprint;
  plugin->memory_cap = static_cast<uint64_t>(config_->number("memory.cap"));
  const std::string where = path.empty() ? fmt::format("(linked in) {}", desc->name) : path;
  if (disabled(desc->name)) {
    skip(where, "plugins.disable names it");
    return {};
  }
  if (std::string why = name_conflict(*plugin); !why.empty()) {
    skip(where, std::move(why));
    return {};
  }
  TUTTI_TRY(read_settings(plugin.get()));
  std::string why;
  if (const tutti_status status = open(plugin.get(), &why); status != TUTTI_OK) {
    const auto is_set = [](const auto &s) { return s.second.origin != "default"; };
    const bool asked = std::any_of(plugin->settings.begin(), plugin->settings.end(), is_set);
    // What the user has set and the plugin cannot use is an error; a plugin that has nothing to work with is one quiet line.
    Status refusal =
        status == TUTTI_ERR_INVALID && asked ? tutti::fail(Code::invalid_argument, "plugin {}: {}", where, why) : Status();
    skip(where, std::move(why));
    retire_plugin(std::move(plugin), false);
    return refusal;
  }
  if (why = check_tables(plugin.get()); !why.empty()) {
    skip(where, std::move(why));
    retire_plugin(std::move(plugin), true);
    return {};
  }
  log::info(log::Subsys::plugin, "plugin {} {} loaded from {}", desc->name, desc->version, path.empty() ? "the program" : path);
  r_->plugins_.push_back(std::move(plugin));
  return {};
}

Status Loader::load_named_paths() {
  for (const char *key : {"plugins.net", "plugins.tuner"})
    for (const auto &[entry, origin] : named(key))
      if (is_path(entry)) TUTTI_TRY(load_file(entry));
  return {};
}

// What configuration names must be there: an error with the reason, never a silent replacement.
Status Loader::check_named(const char *key, const char *iface) {
  for (const auto &[entry, origin] : named(key)) {
    bool found = false;
    for (const auto &f : r_->all<AnyTable>(iface))
      found |= same_name(f.table->name, entry) || same_name(f.plugin->desc->name, stem(entry)) ||
               (is_path(entry) && real_path(f.plugin->path) == real_path(entry));
    if (found) continue;
    Status status = r_->not_found(iface, entry);
    status.error().message = fmt::format("{} ({}): {}", key, origin, status.error().message);
    return status;
  }
  return {};
}

} // namespace tutti
