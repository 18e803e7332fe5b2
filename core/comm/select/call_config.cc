#include "comm/select/call_config.h"
#include "base/fork.h"
#include "config/config.h"
#include "tutti/plugin/algo.h"
#include "tutti/plugin/proto.h"
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

namespace tutti {
namespace {

constexpr size_t kMostTagBytes = 63;
constexpr int64_t kLongestTimeoutMs = 30ll * 86'400'000; // as of core.timeout
constexpr size_t kMostContents = 65536;                  // each costs every communicator that uses it a little memory

Result<tuttiCallConfig_t> copied(const tuttiCallConfig_t *given) {
  tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
  if (!given) return fail(Code::invalid_argument, "call config: config is NULL");
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < offsetof(tuttiCallConfig_t, algo) || size > 1 << 16)
    return fail(Code::invalid_argument, "call config: size {} is not plausible", size)
        .hint("initialise it with TUTTI_CALL_CONFIG_INITIALIZER");
  std::memcpy(&c, given, std::min(size, sizeof c));
  if (c.magic != TUTTI_CALL_CONFIG_MAGIC)
    return fail(Code::invalid_argument, "call config: magic {:#x} is not {:#x}", c.magic, TUTTI_CALL_CONFIG_MAGIC)
        .hint("initialise it with TUTTI_CALL_CONFIG_INITIALIZER");
  return c;
}

// A number within the limits of the option that it stands for.
template <class T> Status take_number(const char *field, const char *key, int64_t value, T *to) {
  TUTTI_ASSIGN(setting, check_value(key, std::to_string(value), std::string("tuttiCallConfig_t.") + field));
  *to = static_cast<T>(setting.number);
  return {};
}

template <class Table>
Status take_names(const char *field, const char *what, const char *id, const char *value, const Registry &registry,
                  std::string *text, NameFilter *to) {
  if (!value || !*value) return {};
  std::vector<std::string> known;
  for (const auto &i : registry.all<Table>(id)) known.emplace_back(i.table->name);
  TUTTI_ASSIGN(filter, NameFilter::parse(value, std::string("tuttiCallConfig_t.") + field, what, known));
  *to = std::move(filter);
  *text = value;
  return {};
}

Status take_tag(const char *tag, std::string *to) {
  if (!tag) return {};
  const size_t n = strnlen(tag, kMostTagBytes + 1);
  if (n > kMostTagBytes)
    return fail(Code::invalid_argument, "tuttiCallConfig_t.tag: \"{}...\" is longer than {} bytes",
                std::string_view(tag, kMostTagBytes), kMostTagBytes);
  for (const char *c = tag; *c; c++)
    if (static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f)
      return fail(Code::invalid_argument, "tuttiCallConfig_t.tag: byte {} is a control character; tags stand in log lines",
                  c - tag);
  to->assign(tag, n);
  return {};
}

Status number_contents(CallConfig *c) {
  static auto &mutex = *new ChildFreeMutex; // guards ids
  static auto *ids = new std::map<std::string, uint32_t>;
  const std::string content =
      fmt::format("{}\n{}\n{} {} {} {} {} {}", c->algo, c->proto, c->min_channels, c->max_channels, c->slot_bytes, c->depth,
                  c->buffer, c->preferred ? static_cast<int>(*c->preferred) : -1);
  c->id = 0;
  if (c->algo.empty() && c->proto.empty() && !c->shapes_links()) return {}; // `preferred` alone asks for nothing
  std::lock_guard lock(mutex);
  if (ids->size() >= kMostContents && !ids->contains(content))
    return fail(Code::invalid_usage, "call config: {} different ones are known to this process, which is the most",
                kMostContents);
  c->id = ids->try_emplace(content, static_cast<uint32_t>(ids->size() + 1)).first->second;
  return {};
}

} // namespace

std::string CallConfig::asked(tutti_coll coll) const {
  std::string out;
  const auto add = [&](const char *field, const NameFilter &names, const std::string &text) {
    if (names.speaks_of(coll)) out += fmt::format("{}tuttiCallConfig_t.{} \"{}\"", out.empty() ? "" : ", ", field, text);
  };
  add("algo", algos, algo);
  add("proto", protos, proto);
  return out;
}

Result<std::shared_ptr<const CallConfig>> read_call_config(const tuttiCallConfig_t *given, const CallConfig *outer,
                                                           const Registry &registry) {
  TUTTI_ASSIGN(c, copied(given));
  auto out = outer ? std::make_shared<CallConfig>(*outer) : std::make_shared<CallConfig>();
  const auto set = [](int v) { return v != TUTTI_CONFIG_UNDEF_INT; };
  TUTTI_TRY(take_names<tutti_algo_v1>("algo", "algorithm", TUTTI_ALGO, c.algo, registry, &out->algo, &out->algos));
  TUTTI_TRY(take_names<tutti_proto_v1>("proto", "protocol", TUTTI_PROTO, c.proto, registry, &out->proto, &out->protos));
  if (set(c.minCTAs)) TUTTI_TRY(take_number("minCTAs", "coll.min_channels", c.minCTAs, &out->min_channels));
  if (set(c.maxCTAs)) TUTTI_TRY(take_number("maxCTAs", "coll.max_channels", c.maxCTAs, &out->max_channels));
  if (out->max_channels && out->min_channels > out->max_channels)
    return fail(Code::invalid_argument, "call config: minCTAs {} is over maxCTAs {}", out->min_channels, out->max_channels);
  if (c.slotBytes)
    TUTTI_TRY(take_number("slotBytes", "coll.slot_bytes", static_cast<int64_t>(std::min<uint64_t>(c.slotBytes, INT64_MAX)),
                          &out->slot_bytes));
  if (c.bufferBytes)
    TUTTI_TRY(take_number("bufferBytes", "coll.buffer", static_cast<int64_t>(std::min<uint64_t>(c.bufferBytes, INT64_MAX)),
                          &out->buffer));
  if (c.depth) TUTTI_TRY(take_number("depth", "coll.depth", c.depth, &out->depth));
  if (set(c.preferred) && c.preferred != 0 && c.preferred != 1)
    return fail(Code::invalid_argument, "call config: preferred {} is not 0 or 1", c.preferred);
  if (set(c.preferred)) out->preferred = c.preferred == 1;
  TUTTI_TRY(take_tag(c.tag, &out->tag));
  if (c.timeoutMs < 0 || c.timeoutMs > kLongestTimeoutMs)
    return fail(Code::invalid_argument, "tuttiCallConfig_t.timeoutMs: {} is not in 0 (undefined) to {}", c.timeoutMs,
                kLongestTimeoutMs);
  if (c.timeoutMs) out->timeout_ms = static_cast<uint32_t>(c.timeoutMs);
  TUTTI_TRY(number_contents(out.get()));
  return std::shared_ptr<const CallConfig>(std::move(out));
}

} // namespace tutti
