#include "base/hash.h"
#include "config/impl.h"
#include "config/names.h"
#include "config/secret.h"
#include "config/toml_source.h"
#include "log/log.h"
#include "tutti/tutti.h"
#include <algorithm>
#include <cassert>
#include <sys/auxv.h>
#include <unistd.h>
#include <unordered_map>

namespace tutti {

using namespace config;

namespace {

const std::string kVersion = fmt::format("{}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
constexpr std::string_view kPluginEnv = "TUTTI_PLUGIN_", kPluginTable = "plugin.", kTestEnv = "TUTTI_TEST_";

std::vector<std::string> all_tables() {
  std::vector<std::string> out;
  for (const auto &o : core_options())
    if (const std::string t = o.key.substr(0, o.key.find('.')); std::find(out.begin(), out.end(), t) == out.end())
      out.push_back(t);
  return out;
}

std::vector<std::string> keys_of(std::string_view table) {
  std::vector<std::string> out;
  for (const auto &o : core_options())
    if (o.key.starts_with(std::string(table) + ".")) out.push_back(o.key.substr(table.size() + 1));
  return out;
}

std::string place_of(const TomlEntry &e) {
  return e.communicator.empty() ? "" : fmt::format("[communicator.{}] ", e.communicator.substr(0, 80));
}

Status unknown_table(const TomlEntry &e) {
  std::vector<std::string> tables = all_tables();
  tables.insert(tables.end(), {"plugin.NAME", "communicator.NAME"});
  if (!e.communicator.empty()) tables = all_tables();
  return bad("{}: {}unknown table {}{} valid tables: {}", e.raw.origin, place_of(e), quoted(e.table),
             did_you_mean(e.table, tables), fmt::join(tables, ", "));
}

// The nearest key of the table, else the same key in another one.
Status unknown_key(const TomlEntry &e) {
  const std::vector<std::string> keys = keys_of(e.table);
  std::string hint = did_you_mean(e.key, keys);
  if (hint == ";") {
    std::vector<std::string> everywhere;
    for (const auto &t : all_tables())
      for (const auto &k : keys_of(t))
        if (k == e.key) everywhere.push_back(t + "." + k);
    if (!everywhere.empty()) hint = fmt::format("; did you mean \"{}\"?", everywhere[0]);
  }
  return bad("{}: {}[{}] unknown key {}{} valid keys: {}", e.raw.origin, place_of(e), e.table, quoted(e.key), hint,
             fmt::join(keys, ", "));
}

std::vector<std::string> tutti_names() {
  std::vector<std::string> out(launch_variables().begin(), launch_variables().end());
  for (const auto &o : core_options()) out.push_back(o.env_name());
  return out;
}

Status unknown_variable(const std::string &name) {
  const std::string hint = did_you_mean(name, tutti_names());
  return bad("{}: no such variable{}", name.substr(0, 80), hint == ";" ? "; `tutti info config` lists all" : hint);
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> out;
  for (char **e = environ; e && *e; e++) {
    const std::string_view line(*e);
    if (const size_t eq = line.find('='); eq != std::string_view::npos) out.emplace(line.substr(0, eq), line.substr(eq + 1));
  }
  return out;
}

log::Settings log_settings(const Config &config) {
  log::Settings out;
  out.level = static_cast<log::Level>(config.number("log.level"));
  out.subsys = static_cast<uint32_t>(config.number("log.subsys"));
  out.file = config.text("log.file");
  out.timestamp = config.text("log.timestamp_format");
  return out;
}

void announce(const Config &config) {
  const auto &level = config.setting("log.level");
  const auto env = process_environment();
  const auto raw = env.find(level.origin);
  if (raw != env.end() && lower(raw->second) == "version") log::write(log::Level::info, log::Subsys::init, "tutti " + kVersion);
  log::info(log::Subsys::init, "tutti {}, configuration files: {}", kVersion,
            config.files().empty() ? "none" : fmt::format("{}", fmt::join(config.files(), ", ")));
  for (const auto &[option, setting] : config.all())
    if (setting->origin != "default")
      log::info(log::Subsys::env, "{} = {} ({})", option->key, quoted(without_password(setting->text)), setting->origin);
}

} // namespace

size_t config::option_index(std::string_view key) {
  static const auto *index = [] {
    auto *m = new std::unordered_map<std::string_view, size_t>;
    for (size_t i = 0; i < core_options().size(); i++) m->emplace(core_options()[i].key, i);
    return m;
  }();
  const auto it = index->find(key);
  return it == index->end() ? core_options().size() : it->second;
}

std::string_view source_of(const Setting &setting) {
  const std::string_view origin = setting.origin;
  if (origin == "default") return "default";
  if (origin.starts_with("tuttiConfig_t")) return "api";
  if (origin.starts_with("TUTTI_") || origin.starts_with("NCCL_")) return "environment";
  const size_t colon = origin.rfind(':');
  const bool line = colon != std::string_view::npos && colon + 1 < origin.size() &&
                    origin.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return line ? "file" : "tool";
}

Result<Setting> check_value(std::string_view key, const std::string &text, const std::string &origin) {
  const size_t i = option_index(key);
  assert(i < core_options().size() && "no such option");
  return parse_setting(core_options()[i], raw_from_api(std::string(key), text, origin));
}

Status Config::Impl::set(size_t option, const Raw &raw, Source source) {
  if (core_options()[option].key == kClassKey && source != Source::builtin) {
    TUTTI_ASSIGN(more, parse_classes(raw));
    add_classes(std::move(more), source);
    return {};
  }
  TUTTI_ASSIGN(value, parse_setting(core_options()[option], raw));
  settings[option] = std::move(value);
  sources[option] = source;
  return {};
}

Status Config::Impl::apply_defaults() {
  settings.resize(core_options().size());
  sources.resize(core_options().size(), Source::builtin);
  for (size_t i = 0; i < settings.size(); i++) {
    const Option &o = core_options()[i];
    TUTTI_TRY(set(i, {o.default_value, {}, false, "default", "default of " + o.key}, Source::builtin));
  }
  return {};
}

Status Config::Impl::apply_file(const TomlFile &file) {
  TUTTI_ASSIGN(entries, read_toml(file.text, file.name));
  files.push_back(file.name);
  const std::vector<std::string> tables = all_tables();
  for (size_t at = 0, end; at < entries.size(); at = end) {
    const TomlEntry &e = entries[at];
    end = at + 1;
    if (e.item < 0) {
      TUTTI_TRY(apply_entry(e, tables));
      continue;
    }
    if (e.table + "." + e.key != kClassKey)
      return bad("{}: {}[[{}.{}]]: only [[{}]] is a list of tables", e.raw.origin, place_of(e), e.table, e.key, kClassKey);
    while (end < entries.size() && entries[end].item == e.item && !entries[end].item_key.empty()) end++;
    TUTTI_ASSIGN(made, class_from({entries.data() + at, end - at}));
    if (e.communicator.empty())
      add_classes({std::move(made)}, Source::file);
    else
      communicators[e.communicator].classes.push_back(std::move(made));
  }
  return {};
}

Status Config::Impl::apply_entry(const TomlEntry &e, std::span<const std::string> tables) {
  if (e.communicator.empty() && e.table.starts_with(kPluginTable)) {
    plugin_tables[e.table.substr(kPluginTable.size())][e.key] = e.raw;
    return {};
  }
  if (std::find(tables.begin(), tables.end(), e.table) == tables.end()) return unknown_table(e);
  if (e.key.empty()) return {};
  const size_t i = option_index(e.table + "." + e.key);
  if (i == settings.size()) return unknown_key(e);
  if (e.communicator.empty()) return set(i, e.raw, Source::file);
  const Option &option = core_options()[i];
  if (option.scope != Scope::communicator)
    return bad("{}: {}{} holds for the whole process; put it under [{}]", e.raw.origin, place_of(e), option.key, e.table);
  CommunicatorTable &own = communicators[e.communicator];
  if (option.key == kClassKey) {
    TUTTI_ASSIGN(more, parse_classes(e.raw));
    own.classes.insert(own.classes.end(), more.begin(), more.end());
    return {};
  }
  TUTTI_ASSIGN(value, parse_setting(option, e.raw));
  std::erase_if(own.settings, [&](const auto &known) { return known.first == i; }); // of a weaker file
  own.settings.emplace_back(i, std::move(value));
  return {};
}

// An empty variable counts as not set, as it does for those who write job scripts.
Status Config::Impl::apply_environment() {
  for (size_t i = 0; i < settings.size(); i++) {
    const Option &o = core_options()[i];
    std::vector<std::string> names{o.env_name()};
    names.insert(names.end(), o.aliases.begin(), o.aliases.end());
    bool done = false;
    for (const auto &name : names) {
      const auto it = environment.find(name);
      if (it == environment.end()) continue;
      used.insert(name);
      if (done || it->second.empty()) continue;
      TUTTI_TRY(set(i, raw_from_environment(name, it->second), Source::environment));
      done = true;
    }
  }
  const auto launch = launch_variables();
  for (const auto &[name, value] : environment) {
    const bool ours = name.starts_with("TUTTI_") && !name.starts_with(kPluginEnv) && !name.starts_with(kTestEnv);
    if (ours && !used.contains(name) && std::find(launch.begin(), launch.end(), name) == launch.end())
      return unknown_variable(name);
  }
  return {};
}

Status Config::Impl::check_between() {
  const size_t lo = option_index("coll.min_channels"), hi = option_index("coll.max_channels");
  if (settings[lo].number > settings[hi].number)
    return bad("coll.min_channels = {} ({}) is more than coll.max_channels = {} ({})", settings[lo].number, settings[lo].origin,
               settings[hi].number, settings[hi].origin);
  return {};
}

Result<std::shared_ptr<Config::Impl>> Config::Impl::build(std::span<const TomlFile> files,
                                                          const std::map<std::string, std::string> &env) {
  auto impl = std::make_shared<Impl>();
  impl->environment = env;
  TUTTI_TRY(impl->apply_defaults());
  for (const auto &f : files) TUTTI_TRY(impl->apply_file(f));
  TUTTI_TRY(impl->apply_environment());
  TUTTI_TRY(impl->check_between());
  return impl;
}

Result<std::shared_ptr<const Config>> Config::from(std::string_view toml, std::string_view toml_name,
                                                   const std::map<std::string, std::string> &environment) {
  std::vector<TomlFile> files;
  if (!toml.empty()) files.push_back({std::string(toml_name), std::string(toml)});
  TUTTI_ASSIGN(impl, Impl::build(files, environment));
  return std::make_shared<const Config>(std::move(impl));
}

Result<std::shared_ptr<const Config>> config::load_from(const std::map<std::string, std::string> &environment,
                                                        const SearchPaths &paths) {
  TUTTI_ASSIGN(files, find_files(environment, paths));
  TUTTI_ASSIGN(impl, Config::Impl::build(files, environment));
  return std::make_shared<const Config>(std::move(impl));
}

// The user's variables, home and working directory could name plugins, keys and files to write with rights the user lacks.
Result<std::shared_ptr<const Config>> config::load_privileged(const std::map<std::string, std::string> &environment,
                                                              SearchPaths paths) {
  const auto set = std::find_if(environment.begin(), environment.end(), [](const auto &v) {
    return (v.first.starts_with("TUTTI_") || v.first.starts_with("NCCL_")) && !v.first.starts_with(kTestEnv);
  });
  const bool any = set != environment.end();
  log::write_once(any ? log::Level::warn : log::Level::info, log::Subsys::env, "privileged",
                  fmt::format("{}the environment is not read: the process has more rights than who started it",
                              any ? set->first + " is ignored: " : ""));
  paths.local.clear();
  return load_from({}, paths);
}

Result<std::shared_ptr<const Config>> Config::load() {
  return ::getauxval(AT_SECURE) != 0 ? load_privileged(process_environment(), {}) : load_from(process_environment(), {});
}

Result<std::shared_ptr<const Config>> Config::process() {
  static const auto *loaded = [] {
    auto *r = new Result<std::shared_ptr<const Config>>(load());
    if (r->ok()) {
      log::configure(log_settings(***r));
      announce(***r);
    }
    return r;
  }();
  return *loaded;
}

const Setting &Config::setting(std::string_view key) const {
  const size_t i = option_index(key);
  assert(i < impl_->settings.size() && "no such option");
  static const Setting *none = new Setting;
  return i < impl_->settings.size() ? impl_->settings[i] : *none;
}

int64_t Config::number(std::string_view key) const {
  return setting(key).number;
}
const std::string &Config::text(std::string_view key) const {
  return setting(key).text;
}
const std::vector<std::string> &Config::list(std::string_view key) const {
  return setting(key).list;
}
bool Config::is_default(std::string_view key) const {
  return setting(key).origin == "default";
}
const std::vector<std::string> &Config::files() const {
  return impl_->files;
}

Result<std::shared_ptr<const Config>> Config::with(std::span<const Override> overrides) const {
  auto impl = std::make_shared<Impl>(*impl_);
  for (const auto &o : overrides) {
    const bool api = o.origin.starts_with("tuttiConfig_t");
    const Raw raw = raw_from_api(o.key, o.text, o.origin);
    if (o.key.starts_with(kPluginTable)) {
      const size_t dot = o.key.rfind('.');
      if (dot < kPluginTable.size()) return bad("{} names no plugin's option; write plugin.NAME.KEY", raw.label);
      impl->plugin_tables[o.key.substr(kPluginTable.size(), dot - kPluginTable.size())][o.key.substr(dot + 1)] = raw;
      continue;
    }
    const size_t i = option_index(o.key);
    if (i == impl->settings.size()) {
      std::vector<std::string> keys;
      for (const auto &option : core_options()) keys.push_back(option.key);
      return bad("{}: no option {}{}", o.origin, quoted(o.key), did_you_mean(o.key, keys));
    }
    if (api && impl->sources[i] == Source::environment && o.key != kClassKey) continue;
    TUTTI_TRY(impl->set(i, raw, api ? Source::api : Source::tool));
  }
  TUTTI_TRY(impl->check_between());
  return std::make_shared<const Config>(std::move(impl));
}

std::vector<std::pair<const Option *, const Setting *>> Config::all() const {
  std::vector<std::pair<const Option *, const Setting *>> out;
  for (size_t i = 0; i < impl_->settings.size(); i++) out.emplace_back(&core_options()[i], &impl_->settings[i]);
  return out;
}

// Numbers by value ("4MiB" is 4194304), texts without case: ranks may write the same thing differently.
std::string Config::agreement_text() const {
  std::string out;
  for (const auto &[option, setting] : all()) {
    if (!option->agree) continue;
    const bool text = option->type == TUTTI_OPT_STRING || option->type == TUTTI_OPT_STRING_LIST;
    out += option->key + "=" + (text ? lower(setting->text) : std::to_string(setting->number)) + "\n";
  }
  return out;
}

uint64_t Config::agreement_hash() const {
  return fnv1a(agreement_text());
}

} // namespace tutti
