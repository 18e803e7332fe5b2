// tutti/core/bootstrap/store.h: a store of keys and values, by the plugin whose scheme its URL has.
#pragma once
#include "base/status.h"
#include "base/time.h"
#include "bootstrap/bootstrap.h"
#include "plugin/registry.h"
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tutti::boot {

// One call at a time. Errors name the plugin and what the server said.
class Store {
public:
  static Result<std::unique_ptr<Store>> open(const Registry &registry, const std::string &url, Deadline deadline);
  ~Store();
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  Status set(const std::string &key, std::span<const std::byte> value, Nanos ttl, Deadline deadline);
  Result<bool> add(const std::string &key, std::span<const std::byte> value, Nanos ttl,
                   Deadline deadline); // true: was not there
  // wait: until there is one or the deadline comes, at which nullopt is the store's own answer.
  Result<std::optional<Bytes>> get(const std::string &key, bool wait, Deadline deadline);
  Status remove(const std::string &key, Deadline deadline);

private:
  Store(Iface<tutti_store_v1> by, tutti_store *store) : by_(by), store_(store) {}
  Status failed(tutti_status status, std::string_view doing) const;
  const Iface<tutti_store_v1> by_;
  tutti_store *const store_;
};

} // namespace tutti::boot
