// Stand-ins for servers, on threads of the test: one that says what it is told to, and an etcd that keeps keys and leases.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace stores {

// Listens at a port of its own. Every connection gets a thread that runs serve(fd) and closes it.
class Listener {
public:
  explicit Listener(std::function<void(int fd)> serve);
  ~Listener();
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;
  uint16_t port() const { return port_; }
  int connections() const { return connections_; }

private:
  void run();
  const std::function<void(int)> serve_;
  int fd_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::mutex mutex_; // guards what follows
  std::vector<std::thread> threads_;
  std::vector<int> open_;
  bool closing_ = false;
  std::thread acceptor_;
};

// Reads whatever comes and answers each piece with `reply`; empty: nothing, until the other end goes.
std::function<void(int)> says(std::string reply);

// etcd's gateway as far as a store needs it. fault: asked before each request; what it returns is sent as it is in its place,
// "" closes the connection after the request has been carried out, and "-" before.
class FakeEtcd {
public:
  using Fault = std::function<std::optional<std::string>(const std::string &path, int request)>;
  explicit FakeEtcd(Fault fault = {}) : fault_(std::move(fault)), listener_([this](int fd) { serve(fd); }) {}
  std::string url(const std::string &user = "") const;
  uint16_t port() const { return listener_.port(); }
  void require_user(const std::string &name, const std::string &password);
  void forget_tokens(); // as after a restart
  int requests() const { return requests_; }
  std::map<std::string, std::string> contents(); // what has not expired
  static std::string http(int status, const std::string &body);

private:
  void serve(int fd);
  std::string answer(const std::string &path, const std::string &token, const std::string &body);
  struct Entry {
    std::string value; // in base64, as the key
    std::string lease;
  };
  bool alive(const Entry &e) const;

  const Fault fault_;
  std::atomic<int> requests_{0};
  std::mutex mutex_; // guards the rest
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::chrono::steady_clock::time_point> leases_;
  int64_t next_lease_ = 7587883263812345000;
  std::string user_, password_, token_;
  int tokens_ = 0;
  Listener listener_; // last: its threads use the rest
};

} // namespace stores
