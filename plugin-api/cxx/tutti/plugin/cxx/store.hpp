// tutti/plugin/cxx/store.hpp: the C table of a store, made from a class. Part of plugin.hpp; store_client.hpp helps with the
// rest.
//
// The plugin class P has `store_name`, `store_schemes` (const char *const[], ends with nullptr), a type Store, and
//   std::unique_ptr<Store> store_open(const std::string &url, std::chrono::nanoseconds timeout);
// Store:  void set(const std::string &key, std::string_view value, std::chrono::nanoseconds ttl, std::chrono::nanoseconds
// timeout);
//         bool add(the same);                                              true = it is there now, and was not
//         std::optional<std::string> get(const std::string &key, bool wait, std::chrono::nanoseconds timeout);
//         void remove(const std::string &key, std::chrono::nanoseconds timeout);
//         void cancel();             from another thread: the call that runs throws CANCELLED soon, and so do later ones
// Everything but cancel() may throw Error. Lengths are checked here, and the destructor runs when no call does.
#ifndef TUTTI_PLUGIN_CXX_STORE_HPP
#define TUTTI_PLUGIN_CXX_STORE_HPP
#include "tables.hpp"
#include "tutti/plugin/store.h"
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::plugin::detail {

template <class P, class = void> struct has_store : std::false_type {};
template <class P> struct has_store<P, std::void_t<decltype(P::store_name)>> : std::true_type {};

template <class P> struct StoreTable {
  using Store = typename P::Store;
  using Nanos = std::chrono::nanoseconds;

  // What the C side sees a pointer to.
  struct Holder {
    Holder(const Host &h, std::unique_ptr<Store> s) : host(h), store(std::move(s)) {}
    const Host &host;
    const std::unique_ptr<Store> store;
    std::mutex mutex; // guards running
    std::condition_variable quiet;
    bool running = false;
  };
  static Holder &real(tutti_store *s) { return *reinterpret_cast<Holder *>(s); }

  // close() waits for the end of it.
  class Running {
  public:
    explicit Running(Holder &holder) : holder_(holder) {
      const std::lock_guard<std::mutex> lock(holder_.mutex);
      holder_.running = true;
    }
    ~Running() {
      const std::lock_guard<std::mutex> lock(holder_.mutex);
      holder_.running = false;
      holder_.quiet.notify_all(); // with the lock: close() may free it right after
    }
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;

  private:
    Holder &holder_;
  };

  static Nanos span(uint64_t ns) {
    constexpr uint64_t longest = uint64_t(366) * 86400 * 1000000000; // what is longer overflows clocks
    return Nanos(static_cast<int64_t>(ns < longest ? ns : longest));
  }
  template <class Fn> static tutti_status call(tutti_store *store, const char *key, uint32_t bytes, Fn &&fn) noexcept {
    Holder &holder = real(store);
    const Running running(holder);
    return guarded(holder.host, [&] {
      const size_t length = ::strnlen(key, TUTTI_STORE_KEY_BYTES + 1);
      if (length == 0 || length > TUTTI_STORE_KEY_BYTES)
        fail(TUTTI_ERR_INVALID, "a key has 1 to ", static_cast<int>(TUTTI_STORE_KEY_BYTES), " bytes, this one ",
             length ? "more" : "none");
      if (bytes > TUTTI_STORE_VALUE_BYTES)
        fail(TUTTI_ERR_INVALID, "the value of key ", key, " has ", bytes, " bytes, at most ",
             static_cast<int>(TUTTI_STORE_VALUE_BYTES), " are possible");
      return fn(*holder.store);
    });
  }
  static std::string_view view(const void *data, uint32_t bytes) {
    return bytes ? std::string_view(static_cast<const char *>(data), bytes) : std::string_view();
  }

  static tutti_status open(void *plugin, const tutti_store_config *config, tutti_store **out) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      const tutti_store_config c = read_in(config);
      auto holder = std::make_unique<Holder>(o.host, o.self.store_open(c.url, span(c.timeout_ns)));
      *out = reinterpret_cast<tutti_store *>(holder.release());
    });
  }
  static tutti_status set(tutti_store *store, const char *key, const void *data, uint32_t bytes, uint64_t ttl_ns,
                          uint64_t timeout_ns) noexcept {
    return call(store, key, bytes, [&](Store &s) {
      s.set(key, view(data, bytes), span(ttl_ns), span(timeout_ns));
      return TUTTI_OK;
    });
  }
  static tutti_status add(tutti_store *store, const char *key, const void *data, uint32_t bytes, uint64_t ttl_ns,
                          uint64_t timeout_ns, uint32_t *first) noexcept {
    return call(store, key, bytes, [&](Store &s) {
      *first = s.add(key, view(data, bytes), span(ttl_ns), span(timeout_ns)) ? 1 : 0;
      return TUTTI_OK;
    });
  }
  static tutti_status get(tutti_store *store, const char *key, void *data, uint32_t *bytes, uint32_t flags,
                          uint64_t timeout_ns) noexcept {
    return call(store, key, 0, [&](Store &s) -> tutti_status {
      const std::optional<std::string> found = s.get(key, (flags & TUTTI_STORE_WAIT) != 0, span(timeout_ns));
      if (!found) return TUTTI_AGAIN;
      const uint32_t room = *bytes;
      *bytes = static_cast<uint32_t>(found->size());
      if (found->size() > room)
        fail(TUTTI_ERR_TRUNCATED, "key ", key, " has ", found->size(), " bytes, there is room for ", room);
      if (!found->empty()) std::memcpy(data, found->data(), found->size());
      return TUTTI_OK;
    });
  }
  static tutti_status remove(tutti_store *store, const char *key, uint64_t timeout_ns) noexcept {
    return call(store, key, 0, [&](Store &s) {
      s.remove(key, span(timeout_ns));
      return TUTTI_OK;
    });
  }
  static void close(tutti_store *store) noexcept {
    const std::unique_ptr<Holder> holder(&real(store));
    holder->store->cancel();
    std::unique_lock<std::mutex> lock(holder->mutex);
    holder->quiet.wait(lock, [&] { return !holder->running; });
  }
  static constexpr tutti_store_v1 value = {
      sizeof(tutti_store_v1), 0, P::store_name, P::store_schemes, open, set, add, get, remove, close};
};

} // namespace tutti::plugin::detail
#endif
