// tutti/core/base/status.h: results of internal calls. No exceptions cross a folder's boundary.
#pragma once
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace tutti {

// The values of tuttiResult_t.
enum class Code : int32_t {
  ok = 0,
  device = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote = 6,
  in_progress = 7,
  timeout = 8,
};

// One error, in parts. `message` is one line: lower case, no full stop, ids in a fixed order (style guide).
struct Error {
  Code code = Code::internal;
  int rank = -1;     // who reports it; -1 = not known yet
  int peer = -1;     // whom it is about; -1 = nobody
  int sys_errno = 0; // 0 = none
  std::string phase; // "bootstrap", "connect", "operation", "config", "plugin"
  std::string operation;
  std::string endpoint;
  std::string hint; // what to do; appended to the line as "; hint"
  std::string message;
  bool survived = false;    // of one operation alone: the communicator goes on
  std::string line() const; // "rank 3: <message>; <hint>" as shown to people
};

// Success costs one null pointer; an error is allocated.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
  Status(const Status &other) : error_(other.error_ ? std::make_unique<Error>(*other.error_) : nullptr) {}
  Status(Status &&) noexcept = default;
  Status &operator=(const Status &other) { return *this = Status(other); }
  Status &operator=(Status &&) noexcept = default;

  bool ok() const { return !error_; }
  Code code() const { return error_ ? error_->code : Code::ok; }
  const Error &error() const { return *error_; }
  Error &error() { return *error_; }

  // Builders, for `return fail(...).peer(3).hint("...")`.
  Status &&peer(int rank) && {
    error_->peer = rank;
    return std::move(*this);
  }
  Status &&phase(std::string text) && {
    error_->phase = std::move(text);
    return std::move(*this);
  }
  Status &&hint(std::string text) && {
    error_->hint = std::move(text);
    return std::move(*this);
  }
  Status &&endpoint(std::string text) && {
    error_->endpoint = std::move(text);
    return std::move(*this);
  }
  Status &&sys(int err) &&; // keeps errno, and appends ": <strerror>" to the message
  // Keeps errno of what the message tells in its own words.
  Status &&because(int err) && {
    error_->sys_errno = err;
    return std::move(*this);
  }

private:
  std::unique_ptr<Error> error_;
};

template <class... Args> Status fail(Code code, fmt::format_string<Args...> text, Args &&...args) {
  Error e;
  e.code = code;
  e.message = fmt::format(text, std::forward<Args>(args)...);
  return Status(std::move(e));
}

// The same as fail(Code::system, ...).sys(err).
Status fail_errno(int err, std::string what);

template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : v_(std::in_place_index<1>, std::move(status)) {}
  bool ok() const { return v_.index() == 0; }
  T &value() & { return std::get<0>(v_); }
  const T &value() const & { return std::get<0>(v_); }
  T &&value() && { return std::get<0>(std::move(v_)); }
  T &operator*() & { return value(); }
  const T &operator*() const & { return value(); }
  T *operator->() { return &value(); }
  const T *operator->() const { return &value(); }
  Status &status() { return std::get<1>(v_); } // only when !ok()
  const Status &status() const { return std::get<1>(v_); }

private:
  std::variant<T, Status> v_;
};

} // namespace tutti

#define TUTTI_CONCAT_(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_(a, b)
// Returns the error of a Status expression to the caller.
#define TUTTI_TRY(expr)                                                                                                        \
  do {                                                                                                                         \
    if (::tutti::Status s_ = (expr); !s_.ok()) return s_;                                                                      \
  } while (0)
// auto NAME = value of a Result expression, or return its error.
#define TUTTI_ASSIGN(name, expr)                                                                                               \
  auto TUTTI_CONCAT(r_, __LINE__) = (expr);                                                                                    \
  if (!TUTTI_CONCAT(r_, __LINE__).ok()) return std::move(TUTTI_CONCAT(r_, __LINE__).status());                                 \
  auto name = std::move(TUTTI_CONCAT(r_, __LINE__)).value()
