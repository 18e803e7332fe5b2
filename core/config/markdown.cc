#include "config/markdown.h"
#include "config/parse.h"
#include "log/log.h"

namespace tutti {

using namespace config;

namespace {

constexpr std::string_view kIntro = R"(# Configuration

<!-- Generated from core/config/options.cc by `./dev docs`; a test compares. Do not edit. -->

Nothing has to be configured. What is set comes from, weakest first:

1. the default in the tables below;
2. the system's file `/etc/tutti/tutti.toml`;
3. the user's file: the one that `TUTTI_CONFIG` names, else `./tutti.toml` (only when it belongs to you and nobody else may write
   it), else `~/.config/tutti/tutti.toml` (`$XDG_CONFIG_HOME` is respected);
4. what these files say for a communicator of that name (see Scopes);
5. what the program sets in `tuttiConfig_t`;
6. the environment: the `TUTTI_` name, else the first of the other names that is set. An empty variable counts as not set;
7. the command line of our own tools.

`tutti info config` shows every value and where it came from. A key or `TUTTI_` name that does not exist, a bad value and a value out
of range are errors that name the file and line, or the variable, and the nearest valid name. `NCCL_` names that have no meaning here
are reported once in the log (level info when the name is known, warn when it is not) and do no harm; where something else does
their work, the line says what ([the list](coming-from-nccl.md#names-that-are-answered)).

A process with more rights than its user (set-uid, file capabilities) takes only the system's file, what the program sets, and the
defaults: no other file, and nothing from the environment.

```toml
[core]
timeout = "5min"

[log]
level = "info"
subsys = ["INIT", "NET"]       # "^COLL,P2P" in the environment excludes

[plugins]
path = ["/opt/vendor/tutti"]
net = ["socket"]

[plugin.net-socket]            # options of one plugin; `tutti info plugins` lists them
sockets = 2
```

Values: `true`, `4`, `"text"`, `["a", "b"]` (in the environment `a,b`), sizes `65536`, `"64KiB"`, `"4MiB"`, `"1GiB"` (K, M and G mean
powers of 1024 with or without B), durations `"200us"`, `"100ms"`, `"30s"`, `"10min"`, `"2h"`. An option of a plugin is
`TUTTI_PLUGIN_<NAME>_<KEY>` in the environment, in capitals with `-` as `_`. Choices and names may be written in any case.

Ranks must agree on the options marked "all ranks"; they compare them when a communicator is made, and a difference is an error that
shows both values.

## Scopes

What is said more narrowly wins: a call, then an operation class, then a communicator, then the process. Within one scope the list
above holds.

```toml
[coll]                          # the process: every communicator
proto = "^ll128"

[communicator.eval]             # the one that the program calls "eval" (commName), and those split from it without a name
plugins.tuner = "other"
coll.max_channels = 2

[[coll.class]]                  # some operations: collectives and sizes
ops = "all_reduce,reduce_scatter"
max_bytes = "64KiB"
algo = "direct"

[[communicator.eval.coll.class]]
min_bytes = "16MiB"             # of every collective
depth = 16
```

**A communicator** by name (`tuttiConfig_t.commName`) takes the options that can differ from one to another; for those that hold for the
whole process the error says so.

**A class** takes the options marked "class". `ops` lists collectives (left out: all), `min_bytes` and `max_bytes` are powers of two:
sizes are decided by class, each up to twice the one below, and a class of sizes belongs to the limits that hold its largest size. An
alltoallv, of whose size no rank knows all, counts as an alltoall of 1 MiB. Where two classes fit, the later one wins, key by key, and
those for a communicator over those for all. In the environment the same is one line: `TUTTI_COLL_CLASS="ops=all_reduce max_bytes=64K
algo=direct; min_bytes=16M depth=16"`; it is stronger than the files' classes. A list of `coll.algo` or `coll.proto` that names a
collective (`all_reduce:ring`) counts as a class when it comes from the environment or the program.

**A call** is shaped by the program: `tuttiCallConfigBegin` ([selecting](selecting.md)).
)";

constexpr std::string_view kEnd = R"(
## Variables that are no options

| variable | meaning |
| --- | --- |
| `TUTTI_CONFIG` | the user's configuration file; it must exist |
| `TUTTI_RANK`, `TUTTI_NRANKS` | rank and number of ranks, set by `tutti run` or by you |
| `TUTTI_LOCAL_RANK`, `TUTTI_LOCAL_SIZE` | the same within this host |
| `TUTTI_TEST_*` | left to test suites; the library does not look at them |
)";

std::string_view type_name(const Option &o) {
  switch (o.type) {
  case TUTTI_OPT_BOOL:
    return "switch";
  case TUTTI_OPT_INT:
    return "number";
  case TUTTI_OPT_BYTES:
    return "size";
  case TUTTI_OPT_DURATION:
    return "duration";
  case TUTTI_OPT_STRING_LIST:
    return "list";
  default:
    return "text";
  }
}

std::string shown(tutti_option_type type, int64_t value) {
  return type == TUTTI_OPT_BYTES      ? format_bytes(value)
         : type == TUTTI_OPT_DURATION ? format_duration(value)
                                      : std::to_string(value);
}

std::string allowed(const Option &o) {
  if (!o.choices.empty()) return fmt::format("{}", fmt::join(split(o.choices, '|'), ", "));
  std::string out(type_name(o));
  if (o.max != 0) out += fmt::format(", {} to {}", shown(o.type, o.min), shown(o.type, o.max));
  return out;
}

std::string row(const Option &o) {
  const std::string key = o.key.substr(o.key.find('.') + 1);
  std::string names = "`" + o.env_name() + "`";
  for (const auto &a : o.aliases) names += " `" + a + "`";
  return fmt::format("| `{}` | {} | {} | {}{} | {} |\n", key, o.default_value.empty() ? "" : "`" + o.default_value + "`",
                     allowed(o), o.help,
                     o.agree && o.per_class ? " (all ranks, class)"
                     : o.agree              ? " (all ranks)"
                                            : "",
                     names);
}

} // namespace

std::string configuration_markdown() {
  std::string out(kIntro), table;
  for (const auto &o : core_options()) {
    if (const std::string t = o.key.substr(0, o.key.find('.')); t != table) {
      table = t;
      out += fmt::format(
          "\n## [{}]\n\n| key | default | value | meaning | in the environment |\n| --- | --- | --- | --- | --- |\n", t);
    }
    out += row(o);
  }
  out += fmt::format("\nSubsystems of `log.subsys`: {}.\n", log::subsys_names());
  out += kEnd;
  return out;
}

} // namespace tutti
