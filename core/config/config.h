// tutti/core/config/config.h: every setting, declared once, with its value and where the value came from.
// Sources, weakest first: default, system file, user file, API (tuttiConfig_t), environment, command line of our tools.
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
// Rules beyond the type, for options whose text has a grammar of its own.
enum class Grammar { plain, level, subsystems, timestamp, ports };

// One declared option. The table is core/config/options.cc; docs/configuration.md is generated from it.
struct Option {
  std::string key; // "core.timeout": table.key in TOML
  tutti_option_type type = TUTTI_OPT_STRING;
  std::string default_value = {}; // as text
  std::string help = {};
  std::string env = {}; // "TUTTI_TIMEOUT"; "" = TUTTI_ + upper-cased key
  // "NCCL_SOCKET_IFNAME", ...: honoured with the same grammar, first one set wins. Bare numbers under a name that ends in _MSEC
  // are milliseconds.
  std::vector<std::string> aliases = {};
  std::string choices = {};  // "a|b|c" or ""; any case is accepted, the spelling here is what text() gives
  std::string synonyms = {}; // "version=warn|none=off": further spellings of choices
  int64_t min = 0, max = 0;  // inclusive; both 0 = any >= 0
  Scope scope = Scope::process;
  bool agree = false; // all ranks must have the same value: part of agreement_hash()
  Grammar grammar = Grammar::plain;
  char separator = ',';   // between the items of a list in the environment
  bool per_class = false; // may be set for an operation class, too
  std::string env_name() const;
};
std::span<const Option> core_options();

struct Setting {
  std::string text;   // as written
  int64_t number = 0; // BOOL, INT, BYTES (bytes), DURATION (ns), STRING with choices (index), log.subsys (bits)
  std::vector<std::string> list;
  std::string origin; // "default", "/etc/tutti/tutti.toml:12", "TUTTI_TIMEOUT", "NCCL_DEBUG", "tuttiConfig_t.timeoutMs"
};

// Options of some collectives and sizes: [[coll.class]], TUTTI_COLL_CLASS.
struct OpClass {
  std::vector<tutti_coll> ops; // empty = every collective
  uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
  std::map<std::string, Setting> values; // by key of the option: "coll.depth"
  std::string origin;
  bool holds_for(tutti_coll coll, uint64_t bytes) const;
  std::string text() const; // "ops=all_reduce max_bytes=64KiB depth=8", values as all ranks would write them
};

// "default", "file", "environment", "api" (the program) or "tool" (a command line of ours).
std::string_view source_of(const Setting &setting);

// What an option makes of a text from a program; as for a value of its own, `origin` names it in errors.
Result<Setting> check_value(std::string_view key, const std::string &text, const std::string &origin);

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
  // What holds for a collective of a size class, whose largest size is `bytes`: the strongest class that fits and sets the key,
  // else setting(key). Where coll.algo or coll.proto of a program or the environment name the collective, they are as strong
  // as a class from there.
  const Setting &setting_for(std::string_view key, tutti_coll coll, uint64_t bytes) const;
  std::vector<const Setting *> settings_of(std::string_view key) const; // setting() and those of all classes
  std::vector<const OpClass *> classes() const;                         // weakest first
  bool is_default(std::string_view key) const;

  // Values of a plugin's own options: [plugin.NAME] and TUTTI_PLUGIN_NAME_KEY, checked against its table; called by the loader.
  Result<std::map<std::string, Setting>> plugin_settings(std::string_view plugin_name, const tutti_option *options) const;
  // After plugin_settings() of every loaded plugin: [plugin.X] tables and TUTTI_PLUGIN_* names that none of them claimed are an
  // error listing the known ones; NCCL_* names that nobody reads are logged once (known ones info, unknown ones warn).
  Status check_plugin_tables(std::span<const std::string> known_plugins) const;

  // A derived configuration; key ("coll.algo", "plugin.net-socket.sockets"), text, origin. Bad values are errors. Where the
  // origin starts with "tuttiConfig_t", a value from the environment stays: job scripts win over what programs hard-code.
  struct Override {
    std::string key, text, origin;
  };
  Result<std::shared_ptr<const Config>> with(std::span<const Override> overrides) const;
  // What [communicator.NAME] of files says laid over files, below what programs and the environment set. No table: this.
  std::shared_ptr<const Config> for_communicator(std::string_view name) const;
  // (name, key, value) of all those tables, for `tutti info config`; classes as "coll.class".
  struct CommunicatorSetting {
    std::string name, key;
    Setting setting;
  };
  std::vector<CommunicatorSetting> communicator_settings() const;

  // NCCL_* names in the environment that nothing has claimed so far.
  struct ForeignName {
    std::string name;
    bool known;
  };
  std::vector<ForeignName> foreign_names() const;
  const std::vector<std::string> &files() const; // read, weakest first

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
