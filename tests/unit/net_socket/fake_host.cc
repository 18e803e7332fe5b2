#include "fake_host.h"
#include "bootstrap/tls.h"
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

static std::atomic<int> warnings{0};

struct Services {
  static FakeHost &self(const tutti_host *h) { return *static_cast<FakeHost *>(h->impl); }

  static int32_t log_enabled(const tutti_host *, tutti_log_level) noexcept { return 1; }
  static void log(const tutti_host *h, tutti_log_level level, const char *text) noexcept {
    if (level >= TUTTI_LOG_WARN) warnings++;
    const std::lock_guard lock(self(h).mutex_);
    self(h).log_ += std::string(text) + "\n";
  }
  static void set_error(const tutti_host *h, tutti_status, const char *text) noexcept {
    const std::lock_guard lock(self(h).mutex_);
    self(h).error_ = text;
  }

  static tutti_status get_int(const tutti_host *h, const char *key, int64_t *out) noexcept {
    static const std::map<std::string, int64_t> units = {{"", 1},      {"KiB", 1 << 10}, {"MiB", 1 << 20},
                                                         {"us", 1000}, {"ms", 1000000},  {"s", 1000000000}};
    const std::string text = self(h).value(key);
    if (text == "true" || text == "false") return *out = text == "true", TUTTI_OK;
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
    return self(h).options_.count(key) ? "test" : "default";
  }

  static const void *get_iface(const tutti_host *, const char *id) noexcept {
    static constexpr tutti_host_diag_v1 diag = {sizeof(tutti_host_diag_v1), 0, log_enabled, log, set_error};
    static constexpr tutti_host_config_v1 config = {sizeof(tutti_host_config_v1), 0, get_int, get_string, origin};
    if (std::strcmp(id, TUTTI_HOST_DIAG) == 0) return &diag;
    if (std::strcmp(id, TUTTI_HOST_CONFIG) == 0) return &config;
    if (std::strcmp(id, TUTTI_HOST_TLS) == 0) return tutti::host_tls_service();
    return nullptr;
  }
};

FakeHost::FakeHost(Options options) : options_(std::move(options)) {
  void *file = dlopen(NET_SOCKET_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (!file) throw std::runtime_error(dlerror());
  desc_ = static_cast<const tutti_plugin_desc *>(dlsym(file, "tutti_plugin_v1"));
  host_ = {sizeof(tutti_host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, this, Services::get_iface};
  status_ = desc_->open(&host_, &plugin_);
  if (status_ == TUTTI_OK) net_ = static_cast<const tutti_net_v1 *>(desc_->get_iface(plugin_, TUTTI_NET));
}

FakeHost::~FakeHost() {
  if (status_ == TUTTI_OK) desc_->close(plugin_);
}

std::string FakeHost::value(const char *key) const {
  if (const auto it = options_.find(key); it != options_.end()) return it->second;
  for (const tutti_option *o = desc_->options; o->key; ++o)
    if (std::strcmp(o->key, key) == 0) return o->default_value;
  throw std::out_of_range(key);
}

int FakeHost::warnings() {
  return ::warnings;
}
std::string FakeHost::last_error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}
std::string FakeHost::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}
