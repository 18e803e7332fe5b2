// tutti/core/ras/http.h: serves one page over HTTP/1.1: GET alone, one request a connection, every size and time bounded.
#pragma once
#include "bootstrap/service.h"
#include "bootstrap/wire.h"
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::ras {

constexpr size_t kMostRequestBytes = 8192;

struct HttpRequest {
  enum class State { more, bad, ready } state = State::more; // more: its end has not come
  std::string method, path;                                  // path without what follows a '?'
};
HttpRequest parse_http(std::string_view received);
std::string http_answer(const HttpRequest &request, const std::function<std::string()> &page); // page: of /metrics

class HttpServer : public std::enable_shared_from_this<HttpServer> {
public:
  HttpServer(boot::Service &service, std::function<std::string()> page) : service_(service), page_(std::move(page)) {}
  void serve(boot::TrackedFd listener); // [service thread]

private:
  class Visit;
  void accept_all(int listener);
  void pause();

  static constexpr size_t kMostVisits = 32; // further ones close the oldest
  boot::Service &service_;
  const std::function<std::string()> page_;
  struct Listener {
    boot::TrackedFd fd;
    uint64_t token = 0;
  };
  std::vector<Listener> listeners_;
  bool paused_ = false;
  std::list<std::shared_ptr<Visit>> visits_; // oldest first
};

} // namespace tutti::ras
