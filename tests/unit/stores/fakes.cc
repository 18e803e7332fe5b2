#include "fakes.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace stores {
namespace {

using nlohmann::json;

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

struct Request {
  std::string path, token, body;
};
// The next request of a connection; what comes after it stays in *rest.
std::optional<Request> read_request(int fd, std::string *rest) {
  Request r;
  for (;;) {
    const size_t end = rest->find("\r\n\r\n");
    if (end != std::string::npos) {
      const std::string head = rest->substr(0, end);
      const auto header = [&](const std::string &name) {
        const size_t at = head.find("\r\n" + name + ": ");
        const size_t from = at + name.size() + 4;
        return at == std::string::npos ? std::string() : head.substr(from, head.find("\r\n", from) - from);
      };
      const auto length = static_cast<size_t>(std::atol(header("Content-Length").c_str()));
      if (rest->size() >= end + 4 + length) {
        const size_t path = head.find(' ') + 1;
        r.path = head.substr(path, head.find(' ', path) - path);
        r.token = header("Authorization");
        r.body = rest->substr(end + 4, length);
        rest->erase(0, end + 4 + length);
        return r;
      }
    }
    char buffer[4096];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return std::nullopt;
    rest->append(buffer, static_cast<size_t>(n));
  }
}

std::string refusal(int status, int code, const std::string &text) {
  return FakeEtcd::http(status, json({{"error", text}, {"code", code}, {"message", text}}).dump());
}

} // namespace

Listener::Listener(std::function<void(int)> serve) : serve_(std::move(serve)) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  if (::bind(fd_, reinterpret_cast<sockaddr *>(&a), n) != 0 || ::listen(fd_, 64) != 0 ||
      ::getsockname(fd_, reinterpret_cast<sockaddr *>(&a), &n) != 0)
    throw std::runtime_error("cannot listen");
  port_ = ntohs(a.sin_port);
  acceptor_ = std::thread([this] { run(); });
}

void Listener::run() {
  for (;;) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return; // shut down
    connections_++;
    const std::lock_guard lock(mutex_);
    if (closing_) {
      ::close(fd);
      return;
    }
    open_.push_back(fd);
    threads_.emplace_back([this, fd] {
      serve_(fd);
      const std::lock_guard done(mutex_);
      std::erase(open_, fd);
      ::close(fd);
    });
  }
}

Listener::~Listener() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  ::shutdown(fd_, SHUT_RDWR);
  acceptor_.join();
  for (auto &t : threads_) t.join();
  ::close(fd_);
}

std::function<void(int)> says(std::string reply) {
  return [reply = std::move(reply)](int fd) {
    char buffer[4096];
    while (::recv(fd, buffer, sizeof buffer, 0) > 0)
      if (!send_all(fd, reply)) return;
  };
}

std::string FakeEtcd::http(int status, const std::string &body) {
  return fmt::format("HTTP/1.1 {} Any\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status, body.size(),
                     body);
}
std::string FakeEtcd::url(const std::string &user) const {
  return fmt::format("etcd://{}127.0.0.1:{}/test", user.empty() ? "" : user + "@", port());
}
void FakeEtcd::require_user(const std::string &name, const std::string &password) {
  const std::lock_guard lock(mutex_);
  user_ = name, password_ = password;
}
void FakeEtcd::forget_tokens() {
  const std::lock_guard lock(mutex_);
  token_.clear();
}
bool FakeEtcd::alive(const Entry &e) const {
  if (e.lease.empty()) return true;
  const auto at = leases_.find(e.lease);
  return at != leases_.end() && std::chrono::steady_clock::now() < at->second;
}
std::map<std::string, std::string> FakeEtcd::contents() {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> out;
  for (const auto &[key, e] : entries_)
    if (alive(e)) out[key] = e.value;
  return out;
}

void FakeEtcd::serve(int fd) {
  std::string rest;
  while (const auto r = read_request(fd, &rest)) {
    const int number = ++requests_;
    const auto instead = fault_ ? fault_(r->path, number) : std::nullopt;
    if (instead && *instead == "-") return;
    if (instead && !instead->empty()) {
      if (!send_all(fd, *instead)) return;
      continue;
    }
    const std::string reply = answer(r->path, r->token, r->body);
    if (instead) return;
    if (!send_all(fd, reply)) return;
  }
}

std::string FakeEtcd::answer(const std::string &path, const std::string &token, const std::string &body) {
  const std::lock_guard lock(mutex_);
  const json in = json::parse(body, nullptr, false);
  if (!in.is_object()) return refusal(400, 3, "invalid character");
  json out = {{"header", {{"cluster_id", "14841639068965178418"}, {"revision", "5"}, {"raft_term", "2"}}}};
  if (path == "/v3/auth/authenticate") {
    if (user_.empty()) return refusal(400, 9, "etcdserver: authentication is not enabled");
    if (in.value("name", "") != user_ || in.value("password", "") != password_)
      return refusal(400, 3, "etcdserver: authentication failed, invalid user ID or password");
    out["token"] = token_ = fmt::format("token.{}", ++tokens_);
    return http(200, out.dump());
  }
  if (!user_.empty() && token.empty()) return refusal(400, 3, "etcdserver: user name is empty");
  if (!user_.empty() && token != token_) return refusal(401, 16, "etcdserver: invalid auth token");
  const auto put = [&](const json &p) {
    entries_[p.at("key").get<std::string>()] = {p.value("value", ""), p.value("lease", "")};
  };
  const auto found = [&](const std::string &key) {
    const auto at = entries_.find(key);
    return at != entries_.end() && alive(at->second) ? &at->second : nullptr;
  };
  if (path == "/v3/kv/range") {
    const std::string key = in.at("key");
    if (const Entry *e = found(key)) {
      json kv = {{"key", key}, {"create_revision", "4"}, {"mod_revision", "4"}, {"version", "1"}};
      if (!e->value.empty()) kv["value"] = e->value; // the gateway leaves out what is empty
      out["kvs"] = json::array({kv});
      out["count"] = "1";
    }
  } else if (path == "/v3/kv/put") {
    put(in);
  } else if (path == "/v3/kv/txn") {
    if (!found(in.at("compare").at(0).at("key"))) {
      put(in.at("success").at(0).at("request_put"));
      out["succeeded"] = true;
    }
  } else if (path == "/v3/kv/deleterange") {
    if (entries_.erase(in.at("key").get<std::string>())) out["deleted"] = "1";
  } else if (path == "/v3/lease/grant") {
    const std::string id = std::to_string(++next_lease_);
    leases_[id] = std::chrono::steady_clock::now() + std::chrono::seconds(std::atol(in.at("TTL").get<std::string>().c_str()));
    out["ID"] = id, out["TTL"] = in.at("TTL");
  } else {
    return "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nNot Found";
  }
  return http(200, out.dump());
}

} // namespace stores
