// tutti.store/1 over Redis: redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], redis+unix://[USER[:PASSWORD]@]/PATH[?db=DB].
#include "tutti/plugin/cxx/plugin.hpp"
#include "client.h"
#include <cstdlib>

namespace tutti::redis {
namespace {

constexpr uint16_t kPort = 6379;

uint32_t database_of(const plugin::StoreUrl &url, std::string_view digits) {
  uint32_t n = 0;
  for (const char c : digits) n = c >= '0' && c <= '9' && n < 1'000'000 ? n * 10 + static_cast<uint32_t>(c - '0') : 1u << 30;
  if (n >= 1'000'000)
    plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\": \"", digits, "\" is no number of a database, as 0 to 15 are");
  return n;
}

class Plugin {
public:
  static constexpr plugin::Info info{"store-redis", "0.1.0", "tutti", "Apache-2.0", "ranks meet through a Redis server"};
  static constexpr tutti_option options[] = {
      {"user", "", "user of the server's access control, where the URL names none; empty: the default user", nullptr, nullptr,
       0, 0, TUTTI_OPT_STRING, 0},
      {"password_file", "",
       "file whose first line is the password, mode 0600, where the URL has none; empty: REDISCLI_AUTH of the environment",
       nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0},
      {}};
  static constexpr const char *store_name = "redis";
  static constexpr const char *const store_schemes[] = {"redis", "redis+unix", "rediss", nullptr};
  using Store = Client;

  explicit Plugin(const plugin::Host &host) : host_(host) {}

  std::unique_ptr<Client> store_open(const std::string &text, std::chrono::nanoseconds timeout) const {
    const bool socket = text.compare(0, 10, "redis+unix") == 0;
    const plugin::StoreUrl url = plugin::parse_store_url(text, kPort, !socket);
    if (url.scheme == "rediss")
      plugin::unsupported("\"", url.shown,
                          "\": this plugin is built without TLS; use redis:// behind a tunnel, or redis+unix://");
    Settings s;
    s.shown = url.shown;
    if (socket) {
      s.target.socket = "/" + url.path;
      if (!url.query.empty() && url.query.compare(0, 3, "db=") != 0)
        plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\": what follows ? is db=NUMBER");
      if (!url.query.empty()) s.database = database_of(url, std::string_view(url.query).substr(3));
    } else {
      if (url.hosts.size() != 1) plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\" names several servers, redis:// has one");
      if (!url.query.empty()) plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\": nothing follows ? in redis://");
      s.target.host = url.hosts[0].name;
      s.target.port = url.hosts[0].port;
      s.database = database_of(url, url.path);
    }
    s.user = url.user.empty() ? host_.get_string("user") : url.user;
    s.password = password(url);
    if (!s.user.empty() && s.password.empty())
      plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\": user ", s.user,
                   " has no password: see plugin.store-redis.password_file");
    return std::make_unique<Client>(std::move(s), timeout);
  }

private:
  std::string password(const plugin::StoreUrl &url) const {
    if (url.has_password) return url.password;
    if (const std::string file = host_.get_string("password_file"); !file.empty())
      return plugin::read_secret_file(file, host_.origin("password_file"));
    const char *set = ::secure_getenv("REDISCLI_AUTH");
    return set ? set : "";
  }
  plugin::Host host_;
};

} // namespace
} // namespace tutti::redis

TUTTI_CXX_PLUGIN(tutti::redis::Plugin)
