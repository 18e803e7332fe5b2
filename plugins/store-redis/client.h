// plugins/store-redis/client.h: a store in a Redis server, with tries until the deadline.
#pragma once
#include "connection.h"
#include <chrono>
#include <optional>

namespace tutti::redis {

// What redis:// and redis+unix:// say, and who to be.
struct Settings {
  Target target;
  std::string user, password; // of Redis' access control; empty: none
  uint32_t database = 0;
  std::string shown; // for messages
};

class Client {
public:
  using Nanos = std::chrono::nanoseconds;
  Client(Settings settings, Nanos timeout); // connects
  void set(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout);
  bool add(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout);
  std::optional<std::string> get(const std::string &key, bool wait, Nanos timeout);
  void remove(const std::string &key, Nanos timeout);
  void cancel() { interrupt_.set(); }

private:
  using Words = std::vector<std::string_view>;
  // *again: an earlier try was sent and its answer lost.
  Reply command(const Words &words, const plugin::Limit &limit, bool *again = nullptr);
  Reply try_once(const Words &words, const plugin::Limit &limit, bool *sent);
  void log_in(const plugin::Limit &limit);
  [[noreturn]] void refused(std::string_view what, const std::string &said) const;
  [[noreturn]] void strange(std::string_view what, const Reply &reply) const;

  const Settings settings_;
  plugin::Interrupt interrupt_;
  std::unique_ptr<Connection> connection_;
};

} // namespace tutti::redis
