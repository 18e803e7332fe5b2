// Options of plugins: their tables, their names in the environment, and what is left over once all plugins are known.
#include "config/hints.h"
#include "config/impl.h"
#include "config/names.h"
#include "log/log.h"
#include <algorithm>

namespace tutti {

using namespace config;

namespace {

constexpr std::string_view kPluginEnv = "TUTTI_PLUGIN_";

std::string or_empty(const char *text) {
  return text ? text : "";
}

Option option_from(std::string_view plugin, const tutti_option &o) {
  Option out;
  out.key = o.key;
  out.type = o.type;
  out.default_value = or_empty(o.default_value);
  out.help = or_empty(o.help);
  out.env = plugin_prefix(plugin) + upper_name(o.key);
  out.aliases = split(or_empty(o.env_aliases), ',');
  out.choices = or_empty(o.choices);
  out.min = o.min;
  out.max = o.max;
  out.scope = Scope::plugin;
  return out;
}

Status unknown_plugin_key(std::string_view plugin, const std::string &where, const std::string &key,
                          const std::vector<std::string> &keys) {
  if (keys.empty()) return bad("{}: [plugin.{}] unknown key {}; the plugin has no options", where, plugin, quoted(key));
  return bad("{}: [plugin.{}] unknown key {}{} valid keys: {}", where, plugin, quoted(key), did_you_mean(key, keys),
             fmt::join(keys, ", "));
}

bool has(std::span<const std::string> all, std::string_view name) {
  return std::find(all.begin(), all.end(), name) != all.end();
}

Status check_tables(const Config::Impl &impl, std::span<const std::string> known, std::span<const std::string> disabled) {
  for (const auto &[name, table] : impl.plugin_tables) {
    if (has(known, name) || has(disabled, name)) continue;
    return bad("{}: [plugin.{}]: no plugin of that name is loaded{} loaded: {}", table.begin()->second.origin, name,
               did_you_mean(name, known), fmt::join(known, ", "));
  }
  return {};
}

// The plugin whose prefix the name has; the longest one, as both "net" and "net-socket" may be loaded.
std::string owner_of(const std::string &name, std::span<const std::string> plugins) {
  std::string owner;
  for (const auto &p : plugins)
    if (name.starts_with(plugin_prefix(p)) && p.size() > owner.size()) owner = p;
  return owner;
}

Status check_variables(const Config::Impl &impl, std::span<const std::string> known, std::span<const std::string> disabled) {
  const std::lock_guard lock(impl.claims->mutex);
  const auto &claimed = impl.claims->names;
  std::vector<std::string> all(known.begin(), known.end());
  all.insert(all.end(), disabled.begin(), disabled.end());
  for (const auto &[name, value] : impl.environment) {
    if (!name.starts_with(kPluginEnv) || impl.used.contains(name) || claimed.contains(name)) continue;
    const std::string owner = owner_of(name, all);
    if (has(disabled, owner)) continue; // their settings may stay where they are
    if (!owner.empty())
      return unknown_plugin_key(owner, name, lower(name.substr(plugin_prefix(owner).size())), impl.claims->keys[owner]);
    std::vector<std::string> candidates(claimed.begin(), claimed.end());
    for (const auto &o : core_options())
      if (o.env_name().starts_with(kPluginEnv)) candidates.push_back(o.env_name());
    return bad("{}: no loaded plugin has this option{} loaded: {}", name, did_you_mean(name, candidates),
               fmt::join(known, ", "));
  }
  return {};
}

} // namespace

std::string config::plugin_prefix(std::string_view plugin) {
  return std::string(kPluginEnv) + upper_name(plugin) + "_";
}

Result<std::map<std::string, Setting>> Config::plugin_settings(std::string_view plugin_name,
                                                               const tutti_option *options) const {
  static const std::map<std::string, Raw> no_table;
  const auto found = impl_->plugin_tables.find(std::string(plugin_name));
  const auto &table = found == impl_->plugin_tables.end() ? no_table : found->second;
  std::vector<std::string> keys, names;
  std::map<std::string, Setting> out;
  for (const tutti_option *row = options; row && row->key; row++) {
    const Option o = option_from(plugin_name, *row);
    keys.push_back(o.key);
    TUTTI_ASSIGN(
        value,
        parse_setting(
            o, {o.default_value, {}, false, "default", fmt::format("plugin {}: default of option {}", plugin_name, o.key)}));
    if (const auto it = table.find(o.key); it != table.end()) {
      TUTTI_ASSIGN(from_file, parse_setting(o, it->second));
      value = std::move(from_file);
    }
    std::vector<std::string> variables{o.env};
    variables.insert(variables.end(), o.aliases.begin(), o.aliases.end());
    names.insert(names.end(), variables.begin(), variables.end());
    for (const auto &v : variables) {
      const auto it = impl_->environment.find(v);
      if (it == impl_->environment.end() || it->second.empty()) continue;
      TUTTI_ASSIGN(from_environment, parse_setting(o, raw_from_environment(v, it->second)));
      value = std::move(from_environment);
      break;
    }
    out.emplace(o.key, std::move(value));
  }
  for (const auto &[key, raw] : table)
    if (!key.empty() && !out.contains(key)) return unknown_plugin_key(plugin_name, raw.origin, key, keys);
  const std::lock_guard lock(impl_->claims->mutex);
  impl_->claims->names.insert(names.begin(), names.end());
  impl_->claims->keys[std::string(plugin_name)] = std::move(keys);
  return out;
}

Status Config::check_plugin_tables(std::span<const std::string> known_plugins) const {
  TUTTI_TRY(check_tables(*impl_, known_plugins, list("plugins.disable")));
  TUTTI_TRY(check_variables(*impl_, known_plugins, list("plugins.disable")));
  for (const auto &f : foreign_names())
    log::write_once(f.known ? log::Level::info : log::Level::warn, log::Subsys::env, "foreign-name:" + f.name,
                    f.known ? answer_to(f.name) : f.name + " is set and unknown; it has no effect");
  return {};
}

std::vector<Config::ForeignName> Config::foreign_names() const {
  std::vector<ForeignName> out;
  const std::lock_guard lock(impl_->claims->mutex);
  const auto perf = perf_variables();
  for (const auto &[name, value] : impl_->environment) {
    const bool read = impl_->used.contains(name) || impl_->claims->names.contains(name) ||
                      std::find(perf.begin(), perf.end(), name) != perf.end();
    if (name.starts_with("NCCL_") && !read) out.push_back({name, is_known_nccl_name(name)});
  }
  return out;
}

} // namespace tutti
