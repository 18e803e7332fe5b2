// Our own table format: an array of rules in TOML. The first problem ends it.
#include "names.h"
#include "table.h"
#include "toml_lib.h"
#include "tutti/plugin/cxx/host.hpp"
#include <cmath>

namespace tuner {
namespace {

using tutti::plugin::fail;
using tutti::plugin::text;

constexpr std::string_view kTopKeys[] = {"about", "rule"};
constexpr std::string_view kRuleKeys[] = {"coll", "min_bytes", "max_bytes", "ranks", "hosts", "ppn",    "cores", "links",
                                          "ways", "sizes",     "channels",  "slot",  "depth", "stores", "shared"};
constexpr std::string_view kWayKeys[] = {"algo", "proto", "channels", "slot", "depth", "stores", "shared", "time_us"};
constexpr std::string_view kStores[] = {"cached", "nt"};
constexpr size_t kMostWays = 500;

std::string shortened(std::string_view s) {
  std::string out(s.substr(0, 80));
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return s.size() > 80 ? out + "..." : out;
}

class Reader {
public:
  Reader(const std::string &source, Table &out) : source_(source), out_(out) {}

  void root(const toml::table &root) {
    check_keys(root, kTopKeys, "a table file");
    if (const toml::node *about = root.get("about"); about && !about->is_table())
      bad(*about, "about is no table; write [about] and below it what people should know of the file");
    const toml::node *rules = root.get("rule");
    if (!rules) return;
    const toml::array *list = rules->as_array();
    if (!list) bad(*rules, "rule is no list of tables; write [[rule]] in front of each rule");
    if (list->size() > kMostRules) bad(*rules, list->size(), " rules are more than ", kMostRules);
    for (const toml::node &node : *list) {
      if (!node.is_table()) bad(node, "a rule is a table: [[rule]], or { ... } in a list");
      out_.rules.push_back(rule(*node.as_table()));
    }
  }

private:
  std::string at(const toml::source_region &where) const {
    return text(source_, ":", where.begin.line, ":", where.begin.column);
  }
  template <class... Parts> [[noreturn]] void bad(const toml::node &node, const Parts &...parts) const {
    fail(TUTTI_ERR_INVALID, at(node.source()), ": ", parts...);
  }
  [[noreturn]] void bad_value(const toml::node &node, std::string_view key, std::string_view allowed) const {
    bad(node, key, " = ", value_text(node), " is not valid; allowed: ", allowed);
  }
  static std::string value_text(const toml::node &node) {
    if (const auto *s = node.as_string()) return "\"" + shortened(s->get()) + "\"";
    if (const auto *i = node.as_integer()) return std::to_string(i->get());
    if (const auto *f = node.as_floating_point()) return text(f->get());
    if (const auto *b = node.as_boolean()) return b->get() ? "true" : "false";
    return node.is_array() ? "[...]" : node.is_table() ? "{...}" : "a date or time";
  }

  void check_keys(const toml::table &t, Names known, std::string_view what) const {
    for (const auto &[key, node] : t)
      if (!position(known, key.str()))
        fail(TUTTI_ERR_INVALID, at(key.source()), ": unknown key \"", shortened(key.str()), "\" in ", what,
             did_you_mean(known, key.str()), "; known: ", joined(known));
  }

  // A text, or a list of at least one.
  template <class Fn> void each_text(const toml::node &node, std::string_view key, std::string_view allowed, Fn &&fn) const {
    if (const toml::array *list = node.as_array(); list && !list->empty()) {
      for (const toml::node &item : *list) {
        if (!item.is_string()) bad_value(item, key, allowed);
        fn(item, std::string_view(item.as_string()->get()));
      }
    } else if (node.is_string()) {
      fn(node, std::string_view(node.as_string()->get()));
    } else {
      bad_value(node, key, allowed);
    }
  }
  uint32_t set(const toml::table &t, std::string_view key, Names names) const {
    const toml::node *node = t.get(key);
    if (!node) return ~0u;
    uint32_t out = 0;
    const std::string allowed = "* for all, " + joined(names) + ", or a list of them";
    each_text(*node, key, allowed, [&](const toml::node &item, std::string_view name) {
      const auto at = position(names, name);
      if (!at && name != "*") bad_value(item, key, allowed + did_you_mean(names, name));
      out |= at ? 1u << *at : ~0u;
    });
    return out;
  }

  uint64_t bytes(const toml::node &node, std::string_view key, uint64_t min, uint64_t max) const {
    std::optional<uint64_t> value;
    if (const auto *s = node.as_string()) value = parse_bytes(s->get());
    if (const auto *i = node.as_integer(); i && i->get() >= 0) value = static_cast<uint64_t>(i->get());
    if (!value || *value < min || *value > max)
      bad_value(node, key,
                text("a size from ", min, max == UINT64_MAX ? std::string(" up") : text(" to ", max),
                     ", as a number or a text with K, M or G: \"64K\""));
    return *value;
  }
  int64_t integer(const toml::node &node, std::string_view key, int64_t min, int64_t max, std::string_view more = "") const {
    const auto *i = node.as_integer();
    if (!i || i->get() < min || i->get() > max) bad_value(node, key, text("a whole number from ", min, " to ", max, more));
    return i->get();
  }
  // 4, "4", "2..8", "..8", "2..".
  Range range(const toml::table &t, std::string_view key) const {
    const toml::node *node = t.get(key);
    if (!node) return {};
    constexpr std::string_view allowed = "a number from 1 up, or a range: \"2..8\", \"..8\", \"2..\"";
    if (const auto *i = node->as_integer(); i && i->get() >= 1) return {i->get(), i->get()};
    const auto *s = node->as_string();
    if (!s) bad_value(*node, key, allowed);
    const std::string_view whole = s->get();
    const size_t dots = whole.find("..");
    const auto edge = [&](std::string_view part, int64_t open) {
      const auto value = part.empty() ? std::optional(open) : parse_integer(part);
      if (!value || *value < (part.empty() ? 0 : 1)) bad_value(*node, key, allowed);
      return *value;
    };
    if (whole.empty()) bad_value(*node, key, allowed);
    if (dots == std::string_view::npos) return {edge(whole, 0), edge(whole, 0)};
    const Range out{edge(whole.substr(0, dots), 0), edge(whole.substr(dots + 2), INT64_MAX)};
    if (out.min > out.max) bad_value(*node, key, allowed);
    return out;
  }

  Geometry geometry(const toml::table &t) const {
    Geometry g;
    if (const auto *n = t.get("channels")) g.channels = static_cast<uint32_t>(integer(*n, "channels", 1, 64));
    if (const auto *n = t.get("slot")) g.slot_bytes = static_cast<uint32_t>(bytes(*n, "slot", 64, 1u << 26));
    if (const auto *n = t.get("depth")) {
      g.depth = static_cast<uint32_t>(integer(*n, "depth", 2, 1 << 12, ", a power of two"));
      if (*g.depth & (*g.depth - 1)) bad_value(*n, "depth", "a power of two from 2 to 4096");
    }
    if (const auto *n = t.get("stores")) {
      const auto *s = n->as_string();
      if (!s || !position(kStores, s->get())) bad_value(*n, "stores", "cached, nt (past the caches)");
      g.nontemporal = s->get() == "nt";
    }
    if (const auto *n = t.get("shared")) {
      if (!n->is_boolean()) bad_value(*n, "shared", "true, false");
      g.shared_only = n->as_boolean()->get();
    }
    return g;
  }

  void sizes(const toml::table &t, Rule &rule) const {
    const toml::node *node = t.get("sizes");
    if (!node) return;
    if (!node->is_array()) bad_value(*node, "sizes", "a list of the sizes that were measured, ascending");
    for (const toml::node &item : *node->as_array()) {
      rule.sizes.push_back(bytes(item, "sizes", 0, UINT64_MAX));
      if (rule.sizes.size() > 1 && rule.sizes.end()[-2] >= rule.sizes.back())
        bad_value(item, "sizes", "sizes that ascend: this one is not over the one before it");
    }
  }
  std::vector<double> times(const toml::node &node, const Rule &rule) const {
    std::vector<double> out;
    const auto one = [&](const toml::node &item) {
      const auto value = item.value<double>();
      if (!value || !std::isfinite(*value) || *value <= 0) bad_value(item, "time_us", "microseconds, over 0");
      out.push_back(*value);
    };
    if (const toml::array *list = node.as_array())
      for (const toml::node &item : *list) one(item);
    else
      one(node);
    if (rule.sizes.empty()) bad(node, "time_us without sizes; say which sizes of this rule were measured: sizes = [\"64K\"]");
    if (out.size() != rule.sizes.size())
      bad(node, "time_us has ", out.size(), " values and sizes of this rule has ", rule.sizes.size(), "; write one for each");
    return out;
  }

  // "ring/simple", "ring", or a table.
  Way way(const toml::node &node, const Rule &rule) {
    Way w;
    if (const auto *s = node.as_string()) {
      const std::string_view whole = s->get();
      const size_t slash = std::min(whole.find('/'), whole.size());
      w.algo = whole.substr(0, slash);
      w.proto = whole.substr(std::min(slash + 1, whole.size()));
      if (slash + 1 == whole.size()) w.algo.clear();
    } else if (const toml::table *t = node.as_table()) {
      check_keys(*t, kWayKeys, "a way");
      w.algo = name(*t, "algo");
      w.proto = name(*t, "proto");
      w.geometry = geometry(*t);
      if (const toml::node *time = t->get("time_us")) w.time_us = times(*time, rule);
    }
    if (w.algo.empty()) bad(node, "a way names its algorithm: \"ring\", \"ring/simple\", or { algo = \"ring\", ... }");
    suspect(node, "algorithm", w.algo, kAlgos);
    if (!w.proto.empty()) suspect(node, "protocol", w.proto, kProtos);
    return w;
  }
  std::string name(const toml::table &t, std::string_view key) const {
    const toml::node *node = t.get(key);
    if (!node) return "";
    if (!node->is_string() || node->as_string()->get().empty()) bad_value(*node, key, "a name");
    return node->as_string()->get();
  }
  // Anybody may load algorithms of other names, so this is no error.
  void suspect(const toml::node &node, std::string_view what, std::string_view name, Names known) {
    if (position(known, name) || nearest(known, name).empty()) return;
    out_.warnings.push_back(text(at(node.source()), ": ", what, " \"", shortened(name), "\" does not come with the library",
                                 did_you_mean(known, name)));
  }

  Rule rule(const toml::table &t) {
    check_keys(t, kRuleKeys, "a rule");
    Rule r;
    r.note = text(source_, ":", t.source().begin.line);
    r.colls = set(t, "coll", kColls);
    if (const auto *n = t.get("min_bytes")) r.min_bytes = bytes(*n, "min_bytes", 0, UINT64_MAX);
    if (const auto *n = t.get("max_bytes")) r.max_bytes = bytes(*n, "max_bytes", r.min_bytes, UINT64_MAX);
    r.ranks = range(t, "ranks");
    r.hosts = range(t, "hosts");
    r.ppn = range(t, "ppn");
    r.cores = range(t, "cores");
    r.links = set(t, "links", kLinks);
    sizes(t, r);
    const toml::node *ways = t.get("ways");
    if (!ways) fail(TUTTI_ERR_INVALID, at(t.source()), ": the rule has no ways; write ways = [\"ring\", ...], best first");
    const toml::array *list = ways->as_array();
    if (!list || list->empty() || list->size() > kMostWays)
      bad_value(*ways, "ways", "a list of 1 to 500 ways, best first: [\"direct/ll\", { algo = \"ring\", channels = 2 }]");
    const Geometry all = geometry(t);
    for (const toml::node &node : *list) {
      Way w = way(node, r);
      w.geometry.fill_from(all);
      r.ways.push_back(std::move(w));
    }
    return r;
  }

  const std::string &source_;
  Table &out_;
};

} // namespace

Table parse_toml(std::string_view file, const std::string &source) {
  Table out;
  try {
    const toml::table root = toml::parse(file, source);
    Reader(source, out).root(root);
  } catch (const toml::parse_error &e) {
    std::string what = shortened(e.description());
    if (!what.empty() && what[0] >= 'A' && what[0] <= 'Z') what[0] = static_cast<char>(what[0] - 'A' + 'a');
    fail(TUTTI_ERR_INVALID, source, ":", e.source().begin.line, ":", e.source().begin.column, ": not valid TOML: ", what);
  }
  return out;
}

} // namespace tuner
