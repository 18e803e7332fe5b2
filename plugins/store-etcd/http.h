// plugins/store-etcd/http.h: one POST at a time, by libcurl, which is opened when the first store is.
#pragma once
#include "tutti/plugin/cxx/store_client.hpp"
#include <memory>
#include <string>

namespace tutti::etcd {

// The server has not answered, and another one may.
struct Lost {
  std::string why;
};

struct Answer {
  long status = 0; // of HTTP
  std::string body;
};

// Of etcds://; empty: the system's authorities, no certificate of one's own.
struct Certificates {
  std::string authorities, own, key; // files
};

class Http {
public:
  explicit Http(Certificates certificates); // UNSUPPORTED where there is no libcurl
  ~Http();
  Http(const Http &) = delete;
  Http &operator=(const Http &) = delete;
  // token: what etcd knows a user by; empty: none. once: on a connection of its own, for what libcurl must not send again by
  // itself where one that it kept was cut. Throws Lost.
  Answer post(const std::string &url, const std::string &body, const std::string &token, bool once, const plugin::Limit &limit);

private:
  const Certificates certificates_;
  void *const handle_;
};

} // namespace tutti::etcd
