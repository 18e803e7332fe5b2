// tutti/plugin/cxx/host.hpp: the core's services as a C++17 object, and exceptions that become statuses.
// Use: include tutti/plugin/cxx/plugin.hpp, which brings everything. Nothing here is part of the ABI: it is compiled into
// the plugin, so it may change between versions without breaking built plugins.
#ifndef TUTTI_PLUGIN_CXX_HOST_HPP
#define TUTTI_PLUGIN_CXX_HOST_HPP
#include "tutti/plugin/host.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::plugin {

namespace detail {
inline void append(std::string &out, std::string_view s) {
  out.append(s);
}
inline void append(std::string &out, const char *s) {
  out.append(s ? s : "(null)");
}
inline void append(std::string &out, const std::string &s) {
  out.append(s);
}
inline void append(std::string &out, char c) {
  out.push_back(c);
}
inline void append(std::string &out, bool b) {
  out.append(b ? "true" : "false");
}
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> void append(std::string &out, T n) {
  out.append(std::to_string(n));
}
} // namespace detail

// The parts one after the other: text("port ", 4711, " is taken"). No format strings, so none can be wrong.
template <class... Parts> std::string text(const Parts &...parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

// Thrown inside a plugin; turned into the status and the reason at the boundary. An empty text means that the reason was
// already attached by whoever found the error.
class Error : public std::exception {
public:
  Error(tutti_status code, std::string what) : code_(code), text_(std::move(what)) {}
  tutti_status code() const noexcept { return code_; }
  const char *what() const noexcept override { return text_.c_str(); }

private:
  tutti_status code_;
  std::string text_;
};

template <class... Parts> [[noreturn]] void fail(tutti_status code, const Parts &...parts) {
  throw Error(code, text(parts...));
}
template <class... Parts> [[noreturn]] void unsupported(const Parts &...parts) {
  throw Error(TUTTI_ERR_UNSUPPORTED, text(parts...));
}
// "bind 10.0.0.1:0: Address already in use".
template <class... Parts> [[noreturn]] void fail_errno(int err, const Parts &...parts) {
  throw Error(TUTTI_ERR_SYSTEM, text(parts..., ": ", std::generic_category().message(err)));
}

// What open() was given. Cheap to copy; valid until the plugin's object has been destroyed.
class Host {
public:
  Host() = default;
  explicit Host(const tutti_host *host)
      : host_(host), diag_(service<tutti_host_diag_v1>(TUTTI_HOST_DIAG)),
        config_(service<tutti_host_config_v1>(TUTTI_HOST_CONFIG)) {}

  const tutti_host *c() const { return host_; }
  // A service's table, or nullptr when this core lacks it: host.service<tutti_host_reduce_v1>(TUTTI_HOST_REDUCE).
  template <class Table> const Table *service(const char *id) const {
    return host_ && host_->get_iface ? static_cast<const Table *>(host_->get_iface(host_, id)) : nullptr;
  }
  // The same, or UNSUPPORTED.
  template <class Table> const Table &need(const char *id) const {
    if (const auto *table = service<Table>(id)) return *table;
    unsupported("this core does not offer ", id, "; a newer core does");
  }

  bool logs(tutti_log_level level) const { return diag_ && diag_->log_enabled(host_, level) != 0; }
  template <class... Parts> void log(tutti_log_level level, const Parts &...parts) const {
    if (logs(level)) diag_->log(host_, level, text(parts...).c_str());
  }
  template <class... Parts> void debug(const Parts &...parts) const { log(TUTTI_LOG_DEBUG, parts...); }
  template <class... Parts> void info(const Parts &...parts) const { log(TUTTI_LOG_INFO, parts...); }
  template <class... Parts> void warn(const Parts &...parts) const { log(TUTTI_LOG_WARN, parts...); }
  void set_error(tutti_status code, const char *reason) const noexcept {
    if (diag_) diag_->set_error(host_, code, reason);
  }

  // The plugin's own options. Asking for a key or a type that the option table does not have is a bug and throws.
  int64_t get_int(const char *key) const {
    int64_t value = 0;
    if (const tutti_status s = config().get_int(host_, key, &value); s != TUTTI_OK) fail(s, "no number option \"", key, "\"");
    return value;
  }
  bool get_bool(const char *key) const { return get_int(key) != 0; }
  uint64_t get_bytes(const char *key) const { return static_cast<uint64_t>(get_int(key)); }
  std::chrono::nanoseconds get_duration(const char *key) const { return std::chrono::nanoseconds(get_int(key)); }
  std::string get_string(const char *key) const {
    const char *value = nullptr;
    if (const tutti_status s = config().get_string(host_, key, &value); s != TUTTI_OK) fail(s, "no text option \"", key, "\"");
    return value ? value : "";
  }
  std::vector<std::string> get_list(const char *key) const {
    std::vector<std::string> out;
    const std::string joined = get_string(key);
    for (size_t at = 0; at < joined.size();) {
      const size_t end = std::min(joined.find(',', at), joined.size());
      if (end > at) out.push_back(joined.substr(at, end - at));
      at = end + 1;
    }
    return out;
  }
  // "tutti.toml:12": where the value came from, for messages about it.
  std::string origin(const char *key) const { return config().origin(host_, key); }

private:
  const tutti_host_config_v1 &config() const {
    if (!config_) unsupported("this core does not offer ", TUTTI_HOST_CONFIG);
    return *config_;
  }
  const tutti_host *host_ = nullptr;
  const tutti_host_diag_v1 *diag_ = nullptr;
  const tutti_host_config_v1 *config_ = nullptr;
};

// Runs fn at the C boundary: its status (void = TUTTI_OK) or the status of what it threw, with the reason attached.
template <class Fn> tutti_status guarded(const Host &host, Fn &&fn) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Fn>>) {
      fn();
      return TUTTI_OK;
    } else {
      return fn();
    }
  } catch (const Error &e) {
    if (*e.what()) host.set_error(e.code(), e.what());
    return e.code();
  } catch (const std::bad_alloc &) {
    host.set_error(TUTTI_ERR_NO_MEMORY, "out of memory");
    return TUTTI_ERR_NO_MEMORY;
  } catch (const std::system_error &e) {
    host.set_error(TUTTI_ERR_SYSTEM, e.what());
    return TUTTI_ERR_SYSTEM;
  } catch (const std::exception &e) {
    host.set_error(TUTTI_ERR_INTERNAL, e.what());
    return TUTTI_ERR_INTERNAL;
  } catch (...) {
    host.set_error(TUTTI_ERR_INTERNAL, "unknown exception");
    return TUTTI_ERR_INTERNAL;
  }
}

// An in-struct as the callee may read it: what the caller's version lacks is 0.
template <class Struct> Struct read_in(const Struct *in) {
  Struct out{};
  std::memcpy(&out, in, in->struct_size < sizeof(Struct) ? in->struct_size : sizeof(Struct));
  return out;
}
// Writes an out-struct no further than the caller's bytes, and leaves its struct_size alone.
template <class Struct> void write_out(Struct *out, Struct value) {
  const uint32_t room = out->struct_size;
  value.struct_size = room;
  std::memcpy(out, &value, room < sizeof(Struct) ? room : sizeof(Struct));
}

} // namespace tutti::plugin
#endif
