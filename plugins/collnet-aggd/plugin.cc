// tutti/plugins/collnet-aggd/plugin.cc: the plugin's object.
#include "context.h"

namespace tutti::aggd {

class Plugin {
public:
  static constexpr plugin::Info info{"collnet-aggd", "0.1.0", "tutti", "Apache-2.0",
                                     "reduction in tutti-aggd daemons, on any IP network"};
  static constexpr const tutti_option *options = option_table.data();
  static constexpr const char *collnet_name = "aggd";
  using CollnetCtx = Context;
  using CollnetListener = Listener;
  using CollnetGroup = Membership;
  using CollnetMr = Mr;

  explicit Plugin(const Host &host) : host_(host) {
    if (!crypto_ready()) plugin::fail(TUTTI_ERR_SYSTEM, "libsodium cannot start: no source of random numbers");
    options_ = read_options(host);
  }
  uint32_t collnet_device_count() {
    std::string why;
    key_ = options_.key(why);
    if (!key_) host_.set_error(TUTTI_ERR_UNSUPPORTED, why.c_str());
    return key_ ? 1 : 0;
  }
  void collnet_device_info(uint32_t dev, tutti_collnet_dev &out) {
    check(dev);
    std::string names;
    for (const std::string &s : options_.servers) names += (names.empty() ? "" : ",") + s;
    std::strncpy(out.name, names.c_str(), sizeof out.name - 1);
    out.mem_kinds = TUTTI_MEM_HOST;
    out.flags = TUTTI_COLLNET_IN_PLACE;
    out.numa_node = -1;
    out.rail = -1;
  }
  std::unique_ptr<Context> collnet_ctx_create(uint32_t dev, const tutti_collnet_ctx_config &) {
    check(dev);
    return std::make_unique<Context>(host_, options_, *key_);
  }

private:
  void check(uint32_t dev) {
    std::string why;
    if (!key_) key_ = options_.key(why);
    if (!key_) plugin::fail(TUTTI_ERR_UNSUPPORTED, why);
    if (dev != 0) plugin::fail(TUTTI_ERR_INVALID, "device ", dev, " of 1");
  }
  Host host_;
  Options options_;
  std::optional<Key> key_; // once it was asked for
};

} // namespace tutti::aggd

TUTTI_CXX_PLUGIN(tutti::aggd::Plugin)
