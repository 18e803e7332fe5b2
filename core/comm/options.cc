// tuttiConfig_t: what a program sets for one communicator, laid over the process's configuration.
#include "comm/communicator.h"
#include "comm/startup.h"
#include "log/log.h"
#include <cstddef>
#include <cstring>
#include <tuple>

namespace tutti {
namespace {

Result<tuttiConfig_t> copied(const tuttiConfig_t *given) {
  tuttiConfig_t c = TUTTI_CONFIG_INITIALIZER;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  constexpr size_t head = offsetof(tuttiConfig_t, blocking);
  if (size < head || size > 1 << 16)
    return fail(Code::invalid_argument, "config: size {} is not plausible", size)
        .hint("initialise it with TUTTI_CONFIG_INITIALIZER");
  std::memcpy(&c, given, std::min(size, sizeof c));
  if (c.magic != TUTTI_CONFIG_MAGIC)
    return fail(Code::invalid_argument, "config: magic {:#x} is not {:#x}", c.magic, TUTTI_CONFIG_MAGIC)
        .hint("initialise it with TUTTI_CONFIG_INITIALIZER");
  return c;
}

class Overrides {
public:
  void text(const char *field, const char *key, const char *value) {
    if (value) list_.push_back({key, value, std::string("tuttiConfig_t.") + field});
  }
  void number(const char *field, const char *key, int64_t value, const char *unit = "") {
    list_.push_back({key, std::to_string(value) + unit, std::string("tuttiConfig_t.") + field});
  }
  std::span<const Config::Override> list() const { return list_; }

private:
  std::vector<Config::Override> list_;
};

} // namespace

Result<InitOptions> process_options() {
  TUTTI_ASSIGN(p, process());
  InitOptions o;
  o.config = p.config;
  o.blocking = p.config->flag("core.blocking");
  return o;
}

Result<InitOptions> read_options(const tuttiConfig_t *given, const InitOptions &base) {
  if (!given) return base;
  TUTTI_ASSIGN(c, copied(given));
  Overrides o;
  const auto set = [](int v) { return v != TUTTI_CONFIG_UNDEF_INT; };
  if (set(c.blocking) && c.blocking != 0 && c.blocking != 1)
    return fail(Code::invalid_argument, "config: blocking {} is not 0 or 1", c.blocking);
  if (set(c.minCTAs) && set(c.maxCTAs) && c.minCTAs > c.maxCTAs)
    return fail(Code::invalid_argument, "config: minCTAs {} is over maxCTAs {}", c.minCTAs, c.maxCTAs);
  const std::tuple<const char *, const char *, int64_t> timeouts[] = {
      {"timeoutMs", "core.timeout", c.timeoutMs},
      {"initTimeoutMs", "core.init_timeout", c.initTimeoutMs},
      {"connectTimeoutMs", "core.connect_timeout", c.connectTimeoutMs},
      {"finalizeTimeoutMs", "core.finalize_timeout", c.finalizeTimeoutMs},
      {"shrinkTimeoutMs", "core.shrink_timeout", c.shrinkTimeoutMs},
  };
  for (const auto &[field, key, ms] : timeouts)
    if (ms < 0) return fail(Code::invalid_argument, "config: {} {} is below 0", field, ms);
  if (set(c.blocking)) o.text("blocking", "core.blocking", c.blocking ? "true" : "false");
  if (set(c.minCTAs)) o.number("minCTAs", "coll.min_channels", c.minCTAs);
  if (set(c.maxCTAs)) o.number("maxCTAs", "coll.max_channels", c.maxCTAs);
  o.text("netName", "net.name", c.netName);
  if (set(c.trafficClass)) o.number("trafficClass", "net.traffic_class", c.trafficClass);
  o.text("algo", "coll.algo", c.algo);
  o.text("proto", "coll.proto", c.proto);
  o.text("tuner", "plugins.tuner", c.tuner);
  for (const auto &[field, key, ms] : timeouts)
    if (ms) o.number(field, key, ms, "ms");
  if (c.memoryCapBytes) o.number("memoryCapBytes", "memory.cap", static_cast<int64_t>(c.memoryCapBytes));
  o.text("deterministic", "coll.deterministic", c.deterministic);
  InitOptions out = base;
  if (c.commName) out.name = c.commName;
  const auto own = out.name == base.name ? base.config : base.config->for_communicator(out.name);
  TUTTI_ASSIGN(config, own->with(o.list()));
  out.config = config;
  out.blocking = config->flag("core.blocking");
  for (const auto &want : o.list())
    if (config->setting(want.key).origin != want.origin)
      log::info(log::Subsys::env, "{} = \"{}\" is overruled by {}", want.origin, want.text, config->setting(want.key).origin);
  return out;
}

} // namespace tutti
