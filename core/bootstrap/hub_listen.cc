// Listeners, and how others can reach them.
#include "bootstrap/hub.h"
#include "log/log.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace tutti::boot {
namespace {

constexpr int kBacklog = 4096;
constexpr Nanos kLeastPatience = std::chrono::seconds(5);
constexpr size_t kMaxAddresses = 8; // told to others, per process
// SO_NETNS_COOKIE of linux 5.14; older headers lack it.
constexpr int kNetnsCookie = 71;

int family_of(const Config &config) {
  const std::string &f = config.text("socket.family");
  return f == "AF_INET" ? AF_INET : f == "AF_INET6" ? AF_INET6 : 0;
}

std::string first_line(const char *path) {
  char buf[256] = "";
  if (FILE *f = std::fopen(path, "re")) {
    if (!std::fgets(buf, sizeof buf, f)) buf[0] = 0;
    std::fclose(f);
  }
  buf[std::strcspn(buf, "\n")] = 0;
  return buf;
}

// The network namespace decides whether unix-domain names and loopback reach the other process.
uint64_t network_namespace() {
  struct stat st {};
  if (stat("/proc/self/ns/net", &st) == 0) return st.st_ino;
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  uint64_t cookie = 0;
  socklen_t n = sizeof cookie;
  return fd && getsockopt(fd.get(), SOL_SOCKET, kNetnsCookie, &cookie, &n) == 0 ? cookie : 0;
}

} // namespace

std::pair<int, int> port_range(const Config &config) {
  int low = 0, high = 0;
  const std::string &text = config.text("socket.port_range");
  if (std::sscanf(text.c_str(), "%d-%d", &low, &high) == 1) high = low;
  return {low, high};
}

std::string host_name() {
  char buf[256] = "";
  if (gethostname(buf, sizeof buf - 1) != 0 || buf[0] == 0) return "unknown-host";
  return buf;
}

uint64_t host_id(const Config &config) {
  std::string what = config.text("core.host_id");
  if (what.empty()) what = first_line("/proc/sys/kernel/random/boot_id");
  if (what.empty()) what = host_name();
  return hash_u64("tutti host", fmt::format("{}/{}", what, network_namespace()));
}

namespace {

// reuse: a port that is given must be free again at once.
Result<TrackedFd> open_tcp(const Endpoint &at, bool reuse) {
  TrackedFd fd = TrackedFd::socket(at.family(), SOCK_STREAM);
  if (!fd) return fail_errno(errno, "cannot open a socket");
  const int on = 1;
  if (reuse) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at.family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (at.family() == AF_INET6 && !reuse) // an own address may still be checked for duplicates on the link
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&at.storage), at.length()) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return fail_errno(errno, "cannot listen at " + at.text());
  return fd;
}

Endpoint wildcard(int family, uint16_t port = 0) {
  Endpoint e;
  e.storage.ss_family = static_cast<sa_family_t>(family);
  e.set_port(port);
  return e;
}

// A host without this family, which nobody asked for.
bool absent(const Status &s, const Config &config) {
  if (s.ok() || family_of(config) != 0) return false;
  return s.error().sys_errno == EAFNOSUPPORT || s.error().sys_errno == EADDRNOTAVAIL;
}

std::string address_text(Endpoint e) {
  e.set_port(0);
  return e.family() == AF_INET6
             ? fmt::format("{}%{}", e.text(), reinterpret_cast<const sockaddr_in6 *>(&e.storage)->sin6_scope_id)
             : e.text();
}

uint16_t bound_port(int fd) {
  Endpoint e;
  socklen_t n = sizeof e.storage;
  getsockname(fd, reinterpret_cast<sockaddr *>(&e.storage), &n);
  return e.port();
}

} // namespace

Result<uint16_t> Hub::open_in_range(const Endpoint &at, const Config &config) {
  const auto [low, high] = port_range(config);
  const int count = low > 0 ? high - low + 1 : 1;
  const int start = low > 0 ? static_cast<int>(random_u64() % static_cast<uint64_t>(count)) : 0;
  Status last;
  for (int i = 0; i < count; i++) { // from a random place: many processes share the range
    Endpoint e = at;
    e.set_port(static_cast<uint16_t>(low > 0 ? low + (start + i) % count : 0));
    auto fd = open_tcp(e, false);
    if (fd.ok()) {
      const uint16_t port = bound_port(fd.value().get());
      serve(std::move(fd).value(), false);
      return port;
    }
    last = std::move(fd.status());
    if (last.error().sys_errno != EADDRINUSE && last.error().sys_errno != EACCES) return std::move(last).phase("bootstrap");
  }
  if (low == 0) return std::move(last).phase("bootstrap");
  return fail(Code::system, "all ports of {} are taken: {}", config.text("socket.port_range"), last.error().message)
      .phase("bootstrap")
      .hint("make socket.port_range (" + config.setting("socket.port_range").origin + ") wider");
}

Status Hub::open_wildcards(const Config &config) {
  for (int f : {AF_INET, AF_INET6}) {
    if (family_of(config) != 0 && f != family_of(config)) continue;
    const Endpoint any = wildcard(f);
    if (ports_.count(address_text(any))) continue;
    auto port = open_in_range(any, config);
    if (port.ok())
      ports_[address_text(any)] = port.value();
    else if (!absent(port.status(), config))
      return std::move(port.status());
  }
  return {};
}

// Of the listener that takes connections to this address; 0 = none does.
Result<uint16_t> Hub::port_at(const Endpoint &address, const Config &config) {
  for (const std::string &name : {address_text(wildcard(address.family())), address_text(address)})
    if (const auto it = ports_.find(name); it != ports_.end()) return it->second;
  if (config.text("socket.ifname").empty()) return uint16_t(0);
  auto port = open_in_range(address, config);
  if (!port.ok() && port.status().error().sys_errno == EADDRNOTAVAIL) return uint16_t(0); // gone meanwhile
  if (port.ok()) ports_[address_text(address)] = port.value();
  return port;
}

Status Hub::open_unix() {
  TrackedFd fd = TrackedFd::socket(AF_UNIX, SOCK_STREAM);
  if (!fd) return fail_errno(errno, "cannot open a unix-domain socket");
  sockaddr_un un{};
  un.sun_family = AF_UNIX; // an abstract name: there is no file to leave behind
  const std::string name = unix_listener_name(process_[0]);
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&un), length) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return fail_errno(errno, "cannot listen at unix:" + name);
  serve(std::move(fd), true);
  return {};
}

void Hub::serve(TrackedFd fd, bool is_unix) {
  auto l = std::make_shared<Listener>();
  l->fd = std::move(fd);
  l->is_unix = is_unix;
  listener_fds_++;
  service_.post([this, l] {
    listeners_.push_back(l);
    if (Status s = service_.add(
            l->fd.get(), EPOLLIN, [this, l](uint32_t) { accept_all(l); }, &l->token);
        !s.ok())
      log::error(log::Subsys::bootstrap, "{}", s.error().message);
  });
}

Result<Contact> Hub::contact(const Config &config) {
  std::lock_guard lock(listen_m_);
  if (!opened_unix_) TUTTI_TRY(open_unix());
  opened_unix_ = true;
  const Nanos limit = config.duration("socket.handshake_timeout");
  patience_ = (limit.count() > 0 ? limit : std::max<Nanos>(kLeastPatience, config.duration("core.init_timeout") / 4)).count();
  Contact c;
  c.process = process_;
  c.host = host_id(config);
  c.pid = getpid();
  c.hostname = host_name();
  const std::string &rule = config.text("socket.ifname");
  const auto selection = netif::select(rule, family_of(config));
  if (!selection.error.empty()) {
    if (!rule.empty())
      return fail(Code::invalid_usage, "{}", selection.error)
          .phase("bootstrap")
          .hint("set by " + config.setting("socket.ifname").origin);
    log::write_once(log::Level::info, log::Subsys::bootstrap, "no-address",
                    selection.error + "; only ranks of this host can join");
  }
  if (rule.empty()) TUTTI_TRY(open_wildcards(config));
  for (const auto &choice : selection.choices) {
    if (c.endpoints.size() == kMaxAddresses) break;
    Endpoint e;
    e.storage = choice.address.storage;
    TUTTI_ASSIGN(port, port_at(e, config));
    if (port == 0) continue;
    e.set_port(port);
    c.endpoints.push_back(e);
  }
  return c;
}

Status Hub::listen_at(const Endpoint &endpoint) {
  std::lock_guard lock(listen_m_);
  const std::string name = endpoint.text();
  if (extra_.count(name)) return {};
  auto fd = open_tcp(endpoint, true);
  if (!fd.ok() && fd.status().error().sys_errno == EADDRNOTAVAIL) // an address that is translated on its way here
    fd = open_tcp(wildcard(endpoint.family(), endpoint.port()), true);
  if (!fd.ok()) return std::move(fd.status());
  extra_.insert(name);
  serve(std::move(fd).value(), false);
  return {};
}

Status Hub::listen_at(uint16_t port, const Config &config) {
  const std::string &rule = config.text("socket.ifname");
  std::vector<Endpoint> where;
  if (rule.empty())
    where = {wildcard(AF_INET, port), wildcard(AF_INET6, port)};
  else
    for (const auto &choice : netif::select(rule, family_of(config)).choices) {
      where.emplace_back().storage = choice.address.storage;
      where.back().set_port(port);
    }
  Status none = fail(Code::system, "no address to listen at is known");
  bool any = false;
  for (const Endpoint &e : where) {
    if (family_of(config) != 0 && e.family() != family_of(config)) continue;
    Status s = listen_at(e);
    const int err = s.ok() ? 0 : s.error().sys_errno;
    if (err != 0 && err != EADDRNOTAVAIL && err != EAFNOSUPPORT) return s;
    any = any || s.ok();
    if (err != 0) none = std::move(s);
  }
  return any ? Status() : none;
}

namespace {
std::string local_peer(int fd) {
  ucred who{};
  socklen_t n = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0) return "a process of this host";
  return fmt::format("pid {} of user {} on this host", who.pid, who.uid);
}
} // namespace

void Hub::accept_all(const std::shared_ptr<Listener> &l) {
  for (int i = 0; i < 64; i++) {
    sockaddr_storage from{};
    TrackedFd fd = TrackedFd::accept(l->fd.get(), &from);
    if (!fd) {
      if (errno == EMFILE && more_fds()) return; // what waits wakes us again
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause(l);
      if (errno == ECONNABORTED || errno == EINTR) continue;
      return;
    }
    Endpoint e;
    e.storage = from;
    std::string from_text = l->is_unix ? local_peer(fd.get()) : e.text();
    greet(Conn::accepted(service_, std::move(fd), l->is_unix, std::move(from_text)));
  }
}

void Hub::pause(const std::shared_ptr<Listener> &l) {
  log::write_once(
      log::Level::warn, log::Subsys::bootstrap, "accept",
      fmt::format("cannot accept connections: too many open files; the limit is {}: raise it (ulimit -n), or use fewer "
                  "ranks per process",
                  fd_limit_text()));
  if (l->paused) return;
  l->paused = true;
  service_.modify(l->token, 0);
  service_.at(Clock::now() + std::chrono::milliseconds(100), [this, l] {
    l->paused = false;
    service_.modify(l->token, EPOLLIN);
  });
}

} // namespace tutti::boot
