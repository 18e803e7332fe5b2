// plugins/store-etcd/client.h: a store in etcd, with tries at its servers in turn until the deadline.
#pragma once
#include "http.h"
#include <chrono>
#include <optional>
#include <vector>

namespace tutti::etcd {

// What etcd:// and etcds:// say, and who to be.
struct Settings {
  std::vector<std::string> servers; // "http://10.0.0.1:2379"
  std::string prefix;               // of keys, "/name/space/" or "/"
  std::string user, password;       // empty: none
  Certificates certificates;
  std::string shown; // for messages
};

class Client {
public:
  using Nanos = std::chrono::nanoseconds;
  Client(Settings settings, Nanos timeout); // asks for a key, so that all that can be wrong is found out
  void set(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout);
  bool add(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout);
  std::optional<std::string> get(const std::string &key, bool wait, Nanos timeout);
  void remove(const std::string &key, Nanos timeout);
  void cancel() { interrupt_.set(); }

private:
  struct Request {
    const char *path; // "kv/range"
    std::string body;
    bool once = false; // sent twice it would mislead
  };
  // The body of the answer. *again: an earlier try was sent and its answer lost.
  std::string ask(const Request &request, const plugin::Limit &limit, bool *again = nullptr);
  std::string try_once(const Request &request, const plugin::Limit &limit, bool *sent);
  std::string post(const Request &request, const plugin::Limit &limit);
  std::string lease(Nanos ttl, const plugin::Limit &limit);
  void next_server(const Request &request, const std::string &why, plugin::Pause *pause, const plugin::Limit &limit);

  const Settings settings_;
  plugin::Interrupt interrupt_;
  Http http_;
  size_t server_ = 0, tried_ = 0;  // now; since the last pause
  std::vector<std::string> wrong_; // with each server, the last time
  std::string token_;
};

} // namespace tutti::etcd
