#include "bootstrap/store.h"
#include "config/secret.h"
#include <algorithm>
#include <strings.h>

namespace tutti::boot {
namespace {

uint64_t timeout_of(const Deadline &deadline) {
  return static_cast<uint64_t>(std::max<int64_t>(deadline.left().count(), 1'000'000));
}
uint32_t size_of(std::span<const std::byte> value) {
  return static_cast<uint32_t>(std::min<size_t>(value.size(), UINT32_MAX));
}

bool has_scheme(const tutti_store_v1 &table, std::string_view scheme) {
  for (const char *const *s = table.schemes; *s; s++)
    if (scheme.size() == std::string_view(*s).size() && ::strncasecmp(scheme.data(), *s, scheme.size()) == 0) return true;
  return false;
}

Status nobody_serves(const Registry &registry, const std::string &url) {
  std::string there, skipped;
  for (const auto &s : registry.all<tutti_store_v1>(TUTTI_STORE))
    for (const char *const *i = s.table->schemes; *i; i++) there += fmt::format("{}{}://", there.empty() ? "" : ", ", *i);
  for (const SkippedPlugin &s : registry.skipped())
    if (s.path.find("libtutti-store-") != std::string::npos) skipped += fmt::format("; {} was skipped: {}", s.path, s.reason);
  return fail(Code::invalid_usage, "core.rendezvous: no plugin knows the store \"{}\"; there is: {}{}", without_password(url),
              there.empty() ? "none" : there, skipped)
      .phase("bootstrap");
}

Status explained(const Plugin &plugin, tutti_status status, std::string_view doing) {
  Status s = plugin_error(plugin, status, doing);
  if (status == TUTTI_ERR_INVALID || status == TUTTI_ERR_DENIED) s.error().code = Code::invalid_usage;
  s.error().phase = "bootstrap";
  return s;
}

} // namespace

Result<std::unique_ptr<Store>> Store::open(const Registry &registry, const std::string &url, Deadline deadline) {
  const std::string_view scheme = std::string_view(url).substr(0, std::min(url.find("://"), url.size()));
  for (const auto &by : registry.all<tutti_store_v1>(TUTTI_STORE)) {
    if (!has_scheme(*by.table, scheme)) continue;
    tutti_store_config config{};
    config.struct_size = sizeof config;
    config.url = url.c_str();
    config.timeout_ns = timeout_of(deadline);
    tutti_store *store = nullptr;
    const tutti_status status = by.table->open(by.plugin->state, &config, &store);
    if (status != TUTTI_OK) return explained(*by.plugin, status, "opening the store");
    return std::unique_ptr<Store>(new Store(by, store));
  }
  return nobody_serves(registry, url);
}

Store::~Store() {
  by_.table->close(store_);
}

Status Store::failed(tutti_status status, std::string_view doing) const {
  return explained(*by_.plugin, status, doing);
}

Status Store::set(const std::string &key, std::span<const std::byte> value, Nanos ttl, Deadline deadline) {
  const tutti_status s = by_.table->set(store_, key.c_str(), value.data(), size_of(value), static_cast<uint64_t>(ttl.count()),
                                        timeout_of(deadline));
  return s == TUTTI_OK ? Status() : failed(s, "putting " + key);
}

Result<bool> Store::add(const std::string &key, std::span<const std::byte> value, Nanos ttl, Deadline deadline) {
  uint32_t first = 0;
  const tutti_status s = by_.table->add(store_, key.c_str(), value.data(), size_of(value), static_cast<uint64_t>(ttl.count()),
                                        timeout_of(deadline), &first);
  if (s != TUTTI_OK) return failed(s, "adding " + key);
  return first != 0;
}

Result<std::optional<Bytes>> Store::get(const std::string &key, bool wait, Deadline deadline) {
  Bytes value(TUTTI_STORE_VALUE_BYTES);
  auto n = static_cast<uint32_t>(value.size());
  const tutti_status s =
      by_.table->get(store_, key.c_str(), value.data(), &n, wait ? uint32_t{TUTTI_STORE_WAIT} : 0u, timeout_of(deadline));
  if (s == TUTTI_AGAIN) return std::optional<Bytes>();
  if (s != TUTTI_OK) return failed(s, "getting " + key);
  value.resize(std::min<size_t>(n, value.size()));
  return std::optional<Bytes>(std::move(value));
}

Status Store::remove(const std::string &key, Deadline deadline) {
  const tutti_status s = by_.table->remove(store_, key.c_str(), timeout_of(deadline));
  return s == TUTTI_OK ? Status() : failed(s, "removing " + key);
}

} // namespace tutti::boot
