// tutti.store/1 over etcd: etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX], etcds:// with TLS.
#include "tutti/plugin/cxx/plugin.hpp"
#include "client.h"
#include <cstdlib>

namespace tutti::etcd {
namespace {

constexpr uint16_t kPort = 2379;

class Plugin {
public:
  static constexpr plugin::Info info{"store-etcd", "0.1.0", "tutti", "Apache-2.0", "ranks meet through etcd"};
  static constexpr tutti_option options[] = {
      {"user", "", "user, where the URL names none; empty: no authentication, or that of ETCDCTL_USER", nullptr, nullptr, 0, 0,
       TUTTI_OPT_STRING, 0},
      {"password_file", "",
       "file whose first line is the password, mode 0600, where the URL has none; empty: ETCDCTL_PASSWORD of the environment",
       nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0},
      {"ca_file", "", "certificates that etcds:// trusts, PEM; empty: those of the system", nullptr, nullptr, 0, 0,
       TUTTI_OPT_STRING, 0},
      {"cert_file", "", "certificate that etcds:// shows, PEM, where servers ask for one", nullptr, nullptr, 0, 0,
       TUTTI_OPT_STRING, 0},
      {"key_file", "", "key of that certificate, PEM", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0},
      {}};
  static constexpr const char *store_name = "etcd";
  static constexpr const char *const store_schemes[] = {"etcd", "etcds", nullptr};
  using Store = Client;

  explicit Plugin(const plugin::Host &host) : host_(host) {}

  std::unique_ptr<Client> store_open(const std::string &text, std::chrono::nanoseconds timeout) const {
    const plugin::StoreUrl url = plugin::parse_store_url(text, kPort);
    if (!url.query.empty()) plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\": nothing follows ? in ", url.scheme, "://");
    Settings s;
    s.shown = url.shown;
    const bool tls = url.scheme == "etcds";
    for (const auto &h : url.hosts) s.servers.push_back(plugin::text(tls ? "https://" : "http://", h.text()));
    s.prefix = "/" + url.path;
    if (s.prefix.back() != '/') s.prefix += '/';
    user(url, &s);
    if (tls) s.certificates = {host_.get_string("ca_file"), host_.get_string("cert_file"), host_.get_string("key_file")};
    return std::make_unique<Client>(std::move(s), timeout);
  }

private:
  static std::string env(const char *name) {
    const char *value = ::secure_getenv(name);
    return value ? value : "";
  }
  // etcdctl's variables: ETCDCTL_USER is USER or USER:PASSWORD.
  void user(const plugin::StoreUrl &url, Settings *s) const {
    s->user = url.user;
    s->password = url.password;
    const std::string both = env("ETCDCTL_USER");
    const size_t colon = std::min(both.find(':'), both.size());
    if (s->user.empty()) s->user = host_.get_string("user");
    if (s->user.empty()) s->user = both.substr(0, colon);
    if (s->user.empty() || url.has_password) return;
    if (const std::string file = host_.get_string("password_file"); !file.empty())
      s->password = plugin::read_secret_file(file, host_.origin("password_file"));
    else if (s->user == both.substr(0, colon) && colon < both.size())
      s->password = both.substr(colon + 1);
    else
      s->password = env("ETCDCTL_PASSWORD");
    if (s->password.empty())
      plugin::fail(TUTTI_ERR_INVALID, "\"", url.shown, "\": user ", s->user,
                   " has no password: see plugin.store-etcd.password_file");
  }
  plugin::Host host_;
};

} // namespace
} // namespace tutti::etcd

TUTTI_CXX_PLUGIN(tutti::etcd::Plugin)
