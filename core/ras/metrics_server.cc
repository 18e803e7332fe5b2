// Where metrics are served.
#include "base/ticks.h"
#include "bootstrap/hub.h"
#include "log/log.h"
#include "ras/desk.h"
#include "ras/http.h"
#include "ras/metrics.h"
#include "ras/own_report.h"
#include <cerrno>
#include <sys/socket.h>

namespace tutti::ras {

namespace {

Result<boot::TrackedFd> listen_at(boot::Endpoint e, uint16_t port) {
  e.set_port(port);
  boot::TrackedFd fd = boot::TrackedFd::socket(e.family(), SOCK_STREAM);
  if (!fd) return fail_errno(errno, "cannot open a socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (e.family() == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr *>(&e.storage), e.length()) != 0 || ::listen(fd.get(), 64) != 0)
    return fail_errno(errno, "cannot listen at " + e.text());
  return fd;
}

std::string bound_at(const boot::TrackedFd &fd) {
  boot::Endpoint e;
  socklen_t n = sizeof e.storage;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr *>(&e.storage), &n);
  return e.text();
}

// The first port that is free; where there are several addresses, at all of them that this host has.
Result<std::vector<boot::TrackedFd>> open_listeners(const MetricsAt &at) {
  Status last = fail(Code::system, "this host has none of the addresses");
  for (uint32_t port = at.low; port <= at.high; port++) {
    std::vector<boot::TrackedFd> out;
    bool taken = false;
    uint16_t here = static_cast<uint16_t>(port);
    for (const boot::Endpoint &e : at.addresses) {
      auto fd = listen_at(e, here);
      if (!fd.ok()) {
        const int err = fd.status().error().sys_errno;
        taken |= err == EADDRINUSE || at.addresses.size() == 1;
        last = std::move(fd.status());
        continue;
      }
      if (here == 0) { // both families at one
        boot::Endpoint got;
        socklen_t n = sizeof got.storage;
        ::getsockname(fd->get(), reinterpret_cast<sockaddr *>(&got.storage), &n);
        here = got.port();
      }
      out.push_back(std::move(*fd));
    }
    if (!taken && !out.empty()) return out;
  }
  return last;
}

} // namespace

void open_metrics(const Config &config, const boot::Contact &self) {
  const std::string &text = config.text("ras.metrics");
  if (text.empty()) return;
  const auto at = parse_metrics_at(text);
  auto fds = at.ok() ? open_listeners(*at) : Result<std::vector<boot::TrackedFd>>(at.status());
  if (!fds.ok())
    return log::warn(log::Subsys::init, "no metrics are served ({}): {}", config.setting("ras.metrics").origin,
                     fds.status().error().line());
  std::string where;
  for (const auto &fd : *fds) where += (where.empty() ? "" : ", ") + bound_at(fd);
  log::info(log::Subsys::init, "metrics of this process are served at http://{}/metrics", where);
  boot::Service &service = boot::Service::get();
  const int64_t started = ticks::Reader().now_ns();
  auto server = std::make_shared<HttpServer>(service, [self, started] { return metrics_text(own_report(self, started)); });
  auto held = std::make_shared<std::vector<boot::TrackedFd>>(std::move(*fds));
  service.post([server, held] {
    for (auto &fd : *held) server->serve(std::move(fd));
  });
}

} // namespace tutti::ras
