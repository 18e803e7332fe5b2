// tutti/core/config/config.h: every setting, declared once, with its value and where the value came from.
// Sources, weakest first: default, system file, user file, environment, API (tuttiConfig_t; the environment wins over the API
// only for what NCCL users expect: see option.h).
#pragma once
#include "base/status.h"
#include "base/time.h"
#include "tutti/plugin/entry.h"
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class Scope { process, communicator, plugin };

// One declared option. The table is core/config/options.cc; docs/configuration.md is generated from it.
struct Option {
  std::string key;           // "core.timeout": table.key in TOML
  tutti_option_type type;
  std::string default_value; // as text
  std::string help;
  std::string env;           // "TUTTI_TIMEOUT"; "" = TUTTI_ + upper-cased key
  std::vector<std::string> aliases; // "NCCL_SOCKET_IFNAME", ...: honoured with the same grammar
  std::string choices;       // "a|b|c" or ""
  int64_t min = 0, max = 0;  // inclusive; both 0 = any >= 0
  Scope scope = Scope::process;
};
std::span<const Option> core_options();

struct Setting {
  std::string text;   // as written
  int64_t number = 0; // BOOL, INT, BYTES (bytes), DURATION (ns)
  std::vector<std::string> list;
  std::string origin; // "default", "/etc/tutti/tutti.toml:12", "TUTTI_TIMEOUT", "NCCL_DEBUG", "tuttiConfig_t.timeoutMs"
};

// An immutable set of values. Copies are cheap to derive with overrides.
class Config {
public:
  // Reads files and the environment. Errors name file:line or variable, the value, what is allowed, and the nearest name.
  static Result<std::shared_ptr<const Config>> load();
  // The same from given texts (tests, tools): toml with a name for messages, environment as a map.
  static Result<std::shared_ptr<const Config>> from(std::string_view toml, std::string_view toml_name,
                                                    const std::map<std::string, std::string> &environment);
  // The process's configuration: loaded at first use; a load error is returned every time.
  static Result<std::shared_ptr<const Config>> process();

  // Unknown keys are a programming error (assert).
  int64_t number(std::string_view key) const;
  bool flag(std::string_view key) const { return number(key) != 0; }
  Nanos duration(std::string_view key) const { return Nanos(number(key)); }
  const std::string &text(std::string_view key) const;
  const std::vector<std::string> &list(std::string_view key) const;
  const Setting &setting(std::string_view key) const;
  bool is_default(std::string_view key) const;

  // Values of a plugin's own options: [plugin.NAME] and TUTTI_PLUGIN_NAME_KEY, checked against its table; called by the loader.
  Result<std::map<std::string, Setting>> plugin_settings(std::string_view plugin_name,
                                                         const tutti_option *options) const;
  // [plugin.X] tables that no loaded plugin claimed: an error listing the known ones.
  Status check_plugin_tables(std::span<const std::string> known_plugins) const;

  // A derived configuration; key, text, origin. Bad values are errors.
  struct Override { std::string key, text, origin; };
  Result<std::shared_ptr<const Config>> with(std::span<const Override> overrides) const;

  // All settings in table order, for `tutti info config` and the start-up log.
  std::vector<std::pair<const Option *, const Setting *>> all() const;
  // Hash of every value that must agree between ranks, and a text of those ("key=value\n"...), for the init comparison.
  uint64_t agreement_hash() const;
  std::string agreement_text() const;

  struct Impl;
  explicit Config(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

private:
  std::shared_ptr<const Impl> impl_;
};

} // namespace tutti
