// tutti/plugin/cxx/store_client.hpp: what clients of stores need whatever they speak: URLs, passwords in files, and waits that
// end at a deadline or when the store is closed. Header only, C++17; not part of plugin.hpp.
#ifndef TUTTI_PLUGIN_CXX_STORE_CLIENT_HPP
#define TUTTI_PLUGIN_CXX_STORE_CLIENT_HPP
#include "host.hpp"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tutti::plugin {

// ---- URLs: SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/PATH][?QUERY]; %41 stands for A but in hosts

struct StoreUrl {
  struct Host {
    std::string name;
    uint16_t port = 0;
    std::string text() const {
      const bool v6 = name.find(':') != std::string::npos;
      return plugin::text(v6 ? "[" : "", name, v6 ? "]" : "", ':', port);
    }
  };
  std::string scheme, user, password, path, query; // path without its first '/'
  bool has_password = false;
  std::vector<Host> hosts;
  std::string shown; // for messages: no password
};

namespace detail {
[[noreturn]] inline void bad_url(std::string_view shown, std::string_view why) {
  fail(TUTTI_ERR_INVALID, "\"", shown, "\" ", why);
}
inline int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
inline std::string url_decoded(std::string_view in, std::string_view shown) {
  std::string out;
  for (size_t i = 0; i < in.size(); i++) {
    if (in[i] != '%') {
      out += in[i];
      continue;
    }
    const int high = i + 2 < in.size() ? hex_digit(in[i + 1]) : -1, low = high >= 0 ? hex_digit(in[i + 2]) : -1;
    if (low < 0 || high * 16 + low == 0) bad_url(shown, "has a % without the two digits of a character, write %25 for it");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}
// Everything up to the last '@' is taken for what may hold a password: one that should have been encoded is not shown either.
inline std::string without_password(std::string_view url) {
  const size_t start = url.find("://"), at = url.rfind('@');
  if (start == std::string_view::npos || at == std::string_view::npos || at < start) return std::string(url);
  const size_t colon = url.find(':', start + 3);
  if (colon == std::string_view::npos || colon > at) return std::string(url);
  return text(url.substr(0, colon + 1), "***", url.substr(at));
}
inline StoreUrl::Host url_host(std::string_view in, uint16_t port, std::string_view shown) {
  StoreUrl::Host out;
  out.port = port;
  size_t colon = in.rfind(':');
  if (!in.empty() && in.front() == '[') {
    const size_t end = in.find(']');
    if (end == std::string_view::npos || end < 2) bad_url(shown, "has a [ without an IPv6 address and ]");
    out.name = in.substr(1, end - 1);
    if (end + 1 < in.size() && in[end + 1] != ':') bad_url(shown, "has something between ] and the port");
    colon = end + 1 < in.size() ? end + 1 : std::string_view::npos;
  } else {
    out.name = in.substr(0, std::min(colon, in.size()));
    if (out.name.find(':') != std::string::npos) bad_url(shown, "has an IPv6 address without [ and ]");
  }
  if (out.name.empty()) bad_url(shown, "names no host");
  for (const char c : out.name)
    if (static_cast<unsigned char>(c) <= ' ' || c == '@') bad_url(shown, "has a blank or @ in a host");
  if (colon == std::string_view::npos) return out;
  uint32_t n = 0;
  const std::string_view digits = in.substr(colon + 1);
  for (const char c : digits) n = c >= '0' && c <= '9' && n < 65536 ? n * 10 + static_cast<uint32_t>(c - '0') : 1u << 20;
  if (digits.empty() || n < 1 || n > 65535) bad_url(shown, "has a port that is not of 1 to 65535");
  out.port = static_cast<uint16_t>(n);
  return out;
}
} // namespace detail

// port: where the URL names none. hosts false: what follows the user is a path (sockets in the file system).
inline StoreUrl parse_store_url(const std::string &url, uint16_t port, bool hosts = true) {
  StoreUrl out;
  out.shown = detail::without_password(url);
  const size_t start = url.find("://");
  if (start == std::string::npos || start == 0) detail::bad_url(out.shown, "is no SCHEME://HOST");
  out.scheme = url.substr(0, start);
  std::string_view rest = std::string_view(url).substr(start + 3);
  if (const size_t mark = rest.find('?'); mark != std::string_view::npos) {
    out.query = rest.substr(mark + 1);
    rest = rest.substr(0, mark);
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  if (slash < rest.size()) out.path = detail::url_decoded(rest.substr(slash + 1), out.shown);
  if (const size_t at = authority.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = authority.substr(0, at);
    const size_t colon = std::min(who.find(':'), who.size());
    out.user = detail::url_decoded(who.substr(0, colon), out.shown);
    out.has_password = colon < who.size();
    if (out.has_password) out.password = detail::url_decoded(who.substr(colon + 1), out.shown);
    authority = authority.substr(at + 1);
  }
  if (!hosts && !authority.empty()) detail::bad_url(out.shown, "has a host where a path begins: three slashes");
  for (size_t at = 0; hosts && at <= authority.size();) {
    const size_t end = std::min(authority.find(',', at), authority.size());
    out.hosts.push_back(detail::url_host(authority.substr(at, end - at), port, out.shown));
    at = end + 1;
  }
  return out;
}

// The first line of a file that nobody but this user may be able to read.
inline std::string read_secret_file(const std::string &path, const std::string &origin) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not block
  if (fd < 0) fail_errno(errno, "password file ", path, " (", origin, ")");
  struct stat st {};
  const bool mine = ::fstat(fd, &st) == 0 && st.st_uid == ::geteuid() && (st.st_mode & 077) == 0 && S_ISREG(st.st_mode);
  char buffer[1024];
  const ssize_t n = mine ? ::read(fd, buffer, sizeof(buffer)) : -1;
  ::close(fd);
  if (!mine)
    fail(TUTTI_ERR_INVALID, "password file ", path, " (", origin,
         "): it must be a regular file of this user that nobody else may read, mode 0600");
  std::string out(buffer, n > 0 ? static_cast<size_t>(n) : 0);
  out.resize(std::min(out.find_first_of("\r\n"), out.size()));
  if (out.empty()) fail(TUTTI_ERR_INVALID, "password file ", path, " (", origin, "): its first line is empty");
  return out;
}

// ---- waits

// Once it is set, every wait that knows it ends.
class Interrupt {
public:
  Interrupt() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) fail_errno(errno, "eventfd");
  }
  ~Interrupt() { ::close(fd_); }
  Interrupt(const Interrupt &) = delete;
  Interrupt &operator=(const Interrupt &) = delete;
  void set() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof(one)); // full means set
  }
  bool is_set() const {
    pollfd p{fd_, POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }
  int fd() const { return fd_; }

private:
  const int fd_;
};

// The time that a call may take.
class Limit {
public:
  using Nanos = std::chrono::nanoseconds;
  Limit(Nanos span, const Interrupt &interrupt)
      : span_(span), at_(std::chrono::steady_clock::now() + span), interrupt_(interrupt) {}
  // The same deadline, but at most `most` from now.
  Limit within(Nanos most) const { return Limit(span_, std::min(at_, std::chrono::steady_clock::now() + most), interrupt_); }
  // For a question whose answer decides at the end: where little is left, a store that is well still gets to answer.
  Limit with_grace() const {
    return Limit(span_, std::max(at_, std::chrono::steady_clock::now() + std::chrono::milliseconds(250)), interrupt_);
  }

  Nanos left() const { return std::max<Nanos>(at_ - std::chrono::steady_clock::now(), Nanos(0)); }
  bool over() const { return left().count() == 0; }
  int left_ms() const { return static_cast<int>(std::min<int64_t>((left().count() + 999'999) / 1'000'000, 1 << 30)); }
  std::string span_text() const { // for messages
    const int64_t tenths = std::max<int64_t>(1, (span_.count() + 50'000'000) / 100'000'000);
    return tenths % 10 ? text(tenths / 10, '.', tenths % 10, " s") : text(tenths / 10, " s");
  }
  const Interrupt &interrupt() const { return interrupt_; }

  // Until fd is ready (true) or time is over. Throws CANCELLED. fd -1: just time.
  bool wait(int fd, short events) const {
    for (;;) {
      pollfd p[] = {{interrupt_.fd(), POLLIN, 0}, {fd, events, 0}};
      const int n = ::poll(p, fd < 0 ? 1 : 2, left_ms());
      if (n < 0 && errno != EINTR) fail_errno(errno, "poll");
      if (n > 0 && p[0].revents) cancelled();
      if (n > 0 && fd >= 0) return true;
      if (over()) return false;
    }
  }
  void sleep(Nanos most) const { (void)within(most).wait(-1, 0); }
  void check() const {
    if (interrupt_.is_set()) cancelled();
  }

private:
  Limit(Nanos span, std::chrono::steady_clock::time_point at, const Interrupt &interrupt)
      : span_(span), at_(at), interrupt_(interrupt) {}
  [[noreturn]] static void cancelled() { fail(TUTTI_ERR_CANCELLED, "the store was closed meanwhile"); }

  Nanos span_;
  std::chrono::steady_clock::time_point at_;
  const Interrupt &interrupt_;
};

// Pauses between tries that grow, so that many waiting ranks ask little.
class Pause {
public:
  explicit Pause(std::chrono::milliseconds first) : next_(first) {}
  void take(const Limit &limit) {
    limit.sleep(next_);
    next_ = std::min(next_ * 2, std::chrono::milliseconds(250));
  }

private:
  std::chrono::milliseconds next_;
};

} // namespace tutti::plugin
#endif
