// plugins/store-redis/connection.h: one connection to a Redis server; commands and answers with deadlines.
#pragma once
#include "tutti/plugin/cxx/store_client.hpp"
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

namespace tutti::redis {

// Where the server is: a host, or a socket in the file system.
struct Target {
  std::string host, socket;
  uint16_t port = 0;
  std::string text() const; // "10.0.0.1:6379", "/run/redis.sock"
};

// The connection is of no more use, and another one may be.
struct Lost {
  std::string why;
};

struct Reply {
  enum class Kind { nil, text, number, error };
  Kind kind = Kind::nil;
  std::string text;
  int64_t number = 0;
};

class Connection {
public:
  Connection(const Target &target, const plugin::Limit &limit); // throws Lost
  ~Connection();
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;
  // Throws Lost; Error where the other end speaks something else.
  Reply ask(const std::vector<std::string_view> &words, const plugin::Limit &limit);

private:
  void send(std::string_view bytes, const plugin::Limit &limit);
  Reply receive(const plugin::Limit &limit);

  int fd_ = -1;
  struct FreeReader {
    void operator()(redisReader *r) const;
  };
  std::unique_ptr<redisReader, FreeReader> reader_;
};

} // namespace tutti::redis
