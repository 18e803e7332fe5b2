#include "ras/http.h"
#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>

namespace tutti::ras {
namespace {

constexpr auto kVisit = std::chrono::seconds(5); // from connecting to having read the answer

bool token_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

} // namespace

HttpRequest parse_http(std::string_view in) {
  using State = HttpRequest::State;
  HttpRequest r;
  size_t end = in.find("\r\n\r\n");
  if (const size_t bare = in.find("\n\n"); bare < end) end = bare;
  const std::string_view line = in.substr(0, in.find_first_of("\r\n"));
  // What is no request is not waited for.
  const size_t method = static_cast<size_t>(std::find_if_not(line.begin(), line.end(), token_char) - line.begin());
  if (method > 16 || (method < line.size() && (method == 0 || line[method] != ' '))) {
    r.state = State::bad;
    return r;
  }
  if (end == std::string_view::npos) {
    if (in.size() >= kMostRequestBytes) r.state = State::bad;
    return r;
  }
  r.state = State::bad;
  if (method == line.size()) return r;
  const std::string_view rest = line.substr(method + 1);
  const size_t space = rest.find(' ');
  if (space == std::string_view::npos || rest.empty() || rest.front() != '/' || !rest.substr(space + 1).starts_with("HTTP/1."))
    return r;
  r.method = line.substr(0, method);
  r.path = rest.substr(0, std::min(space, rest.find('?')));
  r.state = State::ready;
  return r;
}

std::string http_answer(const HttpRequest &request, const std::function<std::string()> &page) {
  std::string status = "200 OK", body, type = "text/plain; version=0.0.4; charset=utf-8", more;
  if (request.state != HttpRequest::State::ready) {
    status = "400 Bad Request";
    body = "this is no request\n";
  } else if (request.method != "GET") {
    status = "405 Method Not Allowed";
    more = "Allow: GET\r\n";
    body = "GET alone\n";
  } else if (request.path != "/metrics" && request.path != "/") {
    status = "404 Not Found";
    body = "not here; try /metrics\n";
  } else
    body = page();
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}", status, type,
                     body.size(), more, body);
}

// One connection: a request is read, its answer written, and what comes then is thrown away until the other end closes.
class HttpServer::Visit : public std::enable_shared_from_this<Visit> {
public:
  Visit(std::shared_ptr<HttpServer> server, boot::TrackedFd fd) : server_(std::move(server)), fd_(std::move(fd)) {}

  void open() {
    std::weak_ptr<Visit> weak = weak_from_this();
    const Status s = server_->service_.add(
        fd_.get(), EPOLLIN,
        [weak](uint32_t) {
          if (const auto v = weak.lock()) v->go_on();
        },
        &token_);
    timer_ = server_->service_.at(Clock::now() + kVisit, [weak] {
      if (const auto v = weak.lock()) v->timer_ = 0, v->close();
    });
    if (!s.ok()) close();
  }
  void close() {
    if (!fd_) return;
    const auto self = shared_from_this();
    server_->service_.cancel(std::exchange(timer_, 0));
    server_->service_.remove(token_);
    fd_.reset();
    server_->visits_.remove(self);
  }

private:
  void go_on() {
    const auto self = shared_from_this();
    if (!read_some()) return close();
    if (answer_.empty()) return;
    while (sent_ < answer_.size()) {
      const ssize_t n = ::send(fd_.get(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return server_->service_.modify(token_, EPOLLIN | EPOLLOUT);
      if (n <= 0) return close();
      sent_ += static_cast<size_t>(n);
    }
    if (!std::exchange(ended_, true)) {
      ::shutdown(fd_.get(), SHUT_WR); // closing at once could throw away what has not been read
      server_->service_.modify(token_, EPOLLIN);
    }
  }
  bool read_some() { // false: the other end has closed
    char part[2048];
    for (int i = 0; i < 16; i++) {
      const ssize_t n = ::recv(fd_.get(), part, sizeof part, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (n <= 0) return false;
      if (!answer_.empty()) continue;
      asked_.append(part, static_cast<size_t>(n));
      const HttpRequest request = parse_http(asked_);
      if (request.state != HttpRequest::State::more) answer_ = http_answer(request, server_->page_);
    }
    return true;
  }

  std::shared_ptr<HttpServer> server_;
  boot::TrackedFd fd_;
  uint64_t token_ = 0, timer_ = 0;
  std::string asked_, answer_;
  size_t sent_ = 0;
  bool ended_ = false;
};

void HttpServer::serve(boot::TrackedFd listener) {
  const int fd = listener.get();
  Listener &l = listeners_.emplace_back();
  l.fd = std::move(listener);
  (void)service_.add(
      fd, EPOLLIN, [self = shared_from_this(), fd](uint32_t) { self->accept_all(fd); }, &l.token);
}

void HttpServer::accept_all(int listener) {
  for (int i = 0; i < 16; i++) {
    sockaddr_storage from{};
    boot::TrackedFd fd = boot::TrackedFd::accept(listener, &from);
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause();
      return;
    }
    if (visits_.size() >= kMostVisits) {
      const auto oldest = visits_.front();
      oldest->close();
    }
    visits_.push_back(std::make_shared<Visit>(shared_from_this(), std::move(fd)));
    const auto visit = visits_.back();
    visit->open();
  }
}

// No descriptors: the application has them, and comes first.
void HttpServer::pause() {
  if (std::exchange(paused_, true)) return;
  for (const Listener &l : listeners_) service_.modify(l.token, 0);
  service_.at(Clock::now() + std::chrono::seconds(1), [self = shared_from_this()] {
    self->paused_ = false;
    for (const Listener &l : self->listeners_) self->service_.modify(l.token, EPOLLIN);
  });
}

} // namespace tutti::ras
