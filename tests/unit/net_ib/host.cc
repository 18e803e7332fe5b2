#include "host.h"
#include <cstdlib>
#include <poll.h>
#include <stdexcept>

struct TestServices {
  static TestHost &self(const tutti_host *h) { return *static_cast<TestHost *>(h->impl); }
  static int32_t log_enabled(const tutti_host *, tutti_log_level) noexcept { return 1; }
  static void log(const tutti_host *h, tutti_log_level, const char *text) noexcept {
    const std::lock_guard lock(self(h).mutex_);
    self(h).log_ += std::string(text) + "\n";
  }
  static void set_error(const tutti_host *, tutti_status, const char *) noexcept {}
  static tutti_status get_int(const tutti_host *h, const char *key, int64_t *out) noexcept {
    static const std::map<std::string, int64_t> units = {{"", 1},      {"KiB", 1 << 10}, {"MiB", 1 << 20},
                                                         {"us", 1000}, {"ms", 1000000},  {"s", 1000000000}};
    const std::string text = self(h).value(key);
    if (text == "true" || text == "false") {
      *out = text == "true";
      return TUTTI_OK;
    }
    char *end = nullptr;
    *out = std::strtoll(text.c_str(), &end, 0) * units.at(end);
    return TUTTI_OK;
  }
  static tutti_status get_string(const tutti_host *h, const char *key, const char **out) noexcept {
    static thread_local std::string keep[8];
    static thread_local unsigned turn = 0;
    *out = (keep[turn++ % 8] = self(h).value(key)).c_str();
    return TUTTI_OK;
  }
  static const char *origin(const tutti_host *h, const char *key) noexcept {
    return self(h).options_.count(key) ? "test.toml:7" : "default";
  }
  static tutti_status watch(const tutti_host *h, int32_t fd, uint32_t, void (*fn)(void *, uint32_t), void *arg) noexcept {
    return self(h).watches_.emplace(fd, TestHost::Watch{fn, arg}).second ? TUTTI_OK : TUTTI_ERR_INVALID;
  }
  static void unwatch(const tutti_host *h, int32_t fd) noexcept { self(h).watches_.erase(fd); }

  static const void *get_iface(const tutti_host *h, const char *id) noexcept {
    static constexpr tutti_host_diag_v1 diag = {sizeof(tutti_host_diag_v1), 0, log_enabled, log, set_error};
    static constexpr tutti_host_config_v1 config = {sizeof(tutti_host_config_v1), 0, get_int, get_string, origin};
    static constexpr tutti_host_watch_v1 watches = {sizeof(tutti_host_watch_v1), 0, watch, unwatch};
    const std::string_view want(id);
    if (want == TUTTI_HOST_DIAG) return &diag;
    if (want == TUTTI_HOST_CONFIG) return &config;
    return want == TUTTI_HOST_WATCH && self(h).has_watch_ ? &watches : nullptr;
  }
};

TestHost::TestHost(Options options, bool watches) : options_(std::move(options)), has_watch_(watches) {
  host_ = {sizeof(tutti_host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, this, TestServices::get_iface};
}

std::string TestHost::value(const std::string &key) const {
  if (const auto it = options_.find(key); it != options_.end()) return it->second;
  for (const tutti_option *o = tutti::net_ib::option_table.data(); o->key; ++o)
    if (key == o->key) return o->default_value;
  throw std::out_of_range(key);
}

std::string TestHost::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

void TestHost::serve() {
  const auto watches = watches_;
  for (const auto &[fd, w] : watches) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, 0) == 1) w.fn(w.arg, TUTTI_WATCH_READ);
  }
}

std::string TestHost::settings_error() {
  try {
    tutti::net_ib::read_settings(host());
    return "";
  } catch (const tutti::plugin::Error &e) {
    return e.what();
  }
}

tutti::net_ib::Settings settings_with(TestHost::Options options) {
  TestHost host(std::move(options));
  return tutti::net_ib::read_settings(host.host());
}
