// Scopes below the process: operation classes, and tables of files for communicators by name.
#include "base/types.h"
#include "config/impl.h"
#include <algorithm>
#include <bit>

namespace tutti {

using namespace config;

namespace {

std::string short_key(std::string_view key) {
  return std::string(key.substr(key.find('.') + 1));
}

std::vector<std::string> class_keys() {
  std::vector<std::string> out{"ops", "min_bytes", "max_bytes"};
  for (const auto &o : core_options())
    if (o.per_class) out.push_back(short_key(o.key));
  return out;
}

bool lists_names(std::string_view key) {
  return key == "coll.algo" || key == "coll.proto";
}

Status take_ops(const Raw &raw, OpClass *to) {
  std::vector<std::string> names;
  for (tutti_coll c = 0; c < TUTTI_COLL_COUNT; c++)
    if (c != TUTTI_COLL_SEND_RECV) names.emplace_back(coll_name(c));
  for (const auto &name : raw.is_list ? raw.items : split(raw.text, ',')) {
    const auto coll = coll_from(name);
    if (coll == TUTTI_COLL_SEND_RECV)
      return bad("{} names sendrecv, which has no classes: its links are shaped by p2p.slot_bytes and p2p.depth", raw.label);
    if (!coll)
      return bad("{} names no collective with {}{} allowed: {}", raw.label, quoted(name), did_you_mean(name, names),
                 fmt::join(names, ", "));
    if (std::find(to->ops.begin(), to->ops.end(), *coll) == to->ops.end()) to->ops.push_back(*coll);
  }
  if (to->ops.empty()) return bad("{} lists no collective; leave it out to mean all", raw.label);
  std::sort(to->ops.begin(), to->ops.end()); // the same text on ranks that write it in another order
  return {};
}

// Sizes are decided by size class, so a limit between two powers of two would lie.
Status take_limit(const Raw &raw, uint64_t *to) {
  if (raw.is_list) return bad("{} is a list; a limit is one size", raw.label);
  auto bytes = parse_bytes(raw.text);
  if (!bytes.ok()) return bad("{} {}", raw.label, bytes.status().error().message);
  if (*bytes < 0 || (*bytes > 0 && !std::has_single_bit(static_cast<uint64_t>(*bytes))))
    return bad("{} is no power of two, by which sizes are classed; write {} or {}", raw.label,
               format_bytes(*bytes < 1 ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(*bytes)))),
               format_bytes(*bytes < 1 ? 1 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(*bytes)))));
  *to = static_cast<uint64_t>(*bytes);
  return {};
}

Status take_value(const std::string &key, const Raw &raw, OpClass *to) {
  if (key == "ops") return take_ops(raw, to);
  if (key == "min_bytes") return take_limit(raw, &to->min_bytes);
  if (key == "max_bytes") return take_limit(raw, &to->max_bytes);
  const size_t i = option_index("coll." + key);
  if (i == core_options().size() || !core_options()[i].per_class) {
    const auto keys = class_keys();
    return bad("{}: [[{}]] unknown key {}{} valid keys: {}", raw.origin, kClassKey, quoted(key), did_you_mean(key, keys),
               fmt::join(keys, ", "));
  }
  const Option &option = core_options()[i];
  TUTTI_ASSIGN(value, parse_setting(option, raw));
  if (lists_names(option.key) && value.text.find_first_of(":;") != std::string::npos)
    return bad("{} names collectives; those of a class stand in its ops", raw.label);
  to->values[option.key] = std::move(value);
  return {};
}

// What can only be said of the whole class.
Status finish(OpClass *c) {
  if (c->values.empty()) return bad("{}: a class that sets nothing; settable are {}", c->origin, fmt::join(class_keys(), ", "));
  if (c->min_bytes > c->max_bytes)
    return bad("{}: min_bytes {} is more than max_bytes {}", c->origin, c->min_bytes, c->max_bytes);
  const auto number = [&](const char *key) {
    const auto it = c->values.find(key);
    return it == c->values.end() ? int64_t(-1) : it->second.number;
  };
  if (number("coll.max_channels") >= 0 && number("coll.min_channels") > number("coll.max_channels"))
    return bad("{}: min_channels {} is more than max_channels {}", c->origin, number("coll.min_channels"),
               number("coll.max_channels"));
  const bool sized = c->min_bytes > 0 || c->max_bytes != UINT64_MAX;
  if (const auto it = c->values.find("coll.deterministic"); sized && it != c->values.end())
    return bad("{}: deterministic is a promise for all sizes of a collective; leave out min_bytes and max_bytes",
               it->second.origin);
  for (auto &[key, value] : c->values) { // in the grammar of the option, where naming the collective means it
    if (!lists_names(key) || c->ops.empty() || value.text.empty()) continue;
    std::string text;
    for (const tutti_coll coll : c->ops) text += fmt::format("{}{}:{}", text.empty() ? "" : ";", coll_name(coll), value.text);
    value.text = std::move(text);
  }
  return {};
}

bool names_collective(std::string_view text, tutti_coll coll) {
  for (const auto &part : split(text, ';'))
    if (const size_t colon = part.find(':'); colon != std::string::npos) {
      const auto names = split(std::string_view(part).substr(0, colon), ' ');
      if (!names.empty() && coll_from(names[0]) == coll) return true;
    }
  return false;
}

} // namespace

bool OpClass::holds_for(tutti_coll coll, uint64_t bytes) const {
  return bytes >= min_bytes && bytes <= max_bytes && (ops.empty() || std::find(ops.begin(), ops.end(), coll) != ops.end());
}

std::string OpClass::text() const {
  std::vector<std::string> parts;
  if (!ops.empty()) {
    std::vector<std::string_view> names;
    for (const tutti_coll c : ops) names.push_back(coll_name(c));
    parts.push_back(fmt::format("ops={}", fmt::join(names, ",")));
  }
  if (min_bytes) parts.push_back("min_bytes=" + format_bytes(static_cast<int64_t>(min_bytes)));
  if (max_bytes != UINT64_MAX) parts.push_back("max_bytes=" + format_bytes(static_cast<int64_t>(max_bytes)));
  for (const auto &[key, value] : values) {
    const Option &option = core_options()[option_index(key)];
    std::string shown = option.type == TUTTI_OPT_BYTES     ? format_bytes(value.number)
                        : option.type == TUTTI_OPT_INT     ? std::to_string(value.number)
                        : lists_names(key) && !ops.empty() ? value.text.substr(value.text.find(':') + 1)
                                                           : value.text;
    if (lists_names(key)) shown = shown.substr(0, shown.find(';')); // the same for each of ops
    parts.push_back(short_key(key) + "=" + shown);
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

Result<OpClass> config::class_from(std::span<const TomlEntry> entries) {
  OpClass c;
  c.origin = entries[0].raw.origin;
  for (const auto &e : entries.subspan(1)) TUTTI_TRY(take_value(e.item_key, e.raw, &c));
  TUTTI_TRY(finish(&c));
  return c;
}

Result<std::vector<OpClass>> config::parse_classes(const Raw &raw) {
  if (raw.is_list) return bad("{}: write [[{}]] for a list of classes", raw.origin, kClassKey);
  std::vector<OpClass> out;
  for (const auto &part : split(raw.text, ';')) {
    OpClass c;
    c.origin = raw.origin;
    std::vector<std::string> seen;
    for (const auto &word : split(part, ' ')) {
      const size_t eq = word.find('=');
      if (eq == std::string::npos)
        return bad(
            "{}: {} is not KEY=VALUE; a class reads ops=all_reduce,reduce max_bytes=64K algo=direct, and ; stands between "
            "two",
            raw.origin, quoted(word));
      const std::string key = word.substr(0, eq), value = word.substr(eq + 1);
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        return bad("{}: {} stands twice in {}", raw.origin, quoted(key), quoted(part));
      seen.push_back(key);
      TUTTI_TRY(take_value(key, {value, {}, false, raw.origin, fmt::format("{}: {}={}", raw.origin, key, quoted(value))}, &c));
    }
    TUTTI_TRY(finish(&c));
    out.push_back(std::move(c));
  }
  return out;
}

void Config::Impl::add_classes(std::vector<OpClass> more, Source source) {
  if (more.empty()) return;
  Setting &shown = settings[option_index(kClassKey)];
  sources[option_index(kClassKey)] = std::max(source, sources[option_index(kClassKey)]);
  for (auto &c : more) classes.push_back({source, std::move(c)});
  std::stable_sort(classes.begin(), classes.end(), [](const auto &a, const auto &b) { return a.source < b.source; });
  std::vector<std::string> texts, origins;
  for (const auto &c : classes) {
    texts.push_back(c.options.text());
    if (std::find(origins.begin(), origins.end(), c.options.origin) == origins.end()) origins.push_back(c.options.origin);
  }
  shown.text = fmt::format("{}", fmt::join(texts, "; "));
  shown.origin = fmt::format("{}", fmt::join(origins, ", "));
}

const Setting &Config::setting_for(std::string_view key, tutti_coll coll, uint64_t bytes) const {
  const size_t option = option_index(key);
  const Setting &base = setting(key);
  const Source source = impl_->sources[option];
  const bool own = lists_names(key) && source >= Source::api && names_collective(base.text, coll);
  for (auto c = impl_->classes.rbegin(); c != impl_->classes.rend(); ++c) {
    if (own && c->source < source) break;
    if (!c->options.holds_for(coll, bytes)) continue;
    if (const auto it = c->options.values.find(std::string(key)); it != c->options.values.end()) return it->second;
  }
  return base;
}

std::vector<const Setting *> Config::settings_of(std::string_view key) const {
  std::vector<const Setting *> out{&setting(key)};
  for (const auto &c : impl_->classes)
    if (const auto it = c.options.values.find(std::string(key)); it != c.options.values.end()) out.push_back(&it->second);
  return out;
}

std::vector<const OpClass *> Config::classes() const {
  std::vector<const OpClass *> out;
  for (const auto &c : impl_->classes) out.push_back(&c.options);
  return out;
}

std::shared_ptr<const Config> Config::for_communicator(std::string_view name) const {
  auto impl = std::make_shared<Impl>(*impl_);
  if (const auto own = impl_->communicators.find(name); own != impl_->communicators.end()) {
    for (const auto &[option, value] : own->second.settings) {
      if (impl->sources[option] > Source::communicator) continue;
      impl->settings[option] = value;
      impl->sources[option] = Source::communicator;
    }
    impl->add_classes(own->second.classes, Source::communicator);
  }
  return std::make_shared<const Config>(std::move(impl));
}

std::vector<Config::CommunicatorSetting> Config::communicator_settings() const {
  std::vector<CommunicatorSetting> out;
  for (const auto &[name, table] : impl_->communicators) {
    for (const auto &[option, value] : table.settings) out.push_back({name, core_options()[option].key, value});
    for (const auto &c : table.classes) out.push_back({name, std::string(kClassKey), {c.text(), 0, {}, c.origin}});
  }
  return out;
}

} // namespace tutti
