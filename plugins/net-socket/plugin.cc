// tutti/plugins/net-socket/plugin.cc: the plugin's object.
#include "tutti/plugin/cxx/plugin.hpp"
#include "connector.h"
#include "listener.h"

namespace tutti::net_socket {

class Plugin {
public:
  static constexpr plugin::Info info{"net-socket", "0.1.0", "tutti", "Apache-2.0", "messages over TCP, on any interface"};
  static constexpr const tutti_option *options = option_table.data();
  static constexpr const char *net_name = "socket";
  using Ctx = Context;
  using Listener = net_socket::Listener;
  using Ep = Endpoint;
  using Mr = net_socket::Mr;

  explicit Plugin(const Host &host) : host_(host), settings_(read_settings(host)) {
    if (sodium_init() < 0) plugin::fail(TUTTI_ERR_SYSTEM, "libsodium cannot start: no source of random numbers");
    check_congestion(settings_, host);
  }

  uint32_t device_count() {
    std::string why;
    devices_ = find_devices(settings_, why);
    if (devices_.empty()) host_.set_error(TUTTI_ERR_UNSUPPORTED, why.c_str());
    return static_cast<uint32_t>(devices_.size());
  }
  void device_info(uint32_t dev, tutti_net_dev &out) { describe(device(dev), out); }
  std::unique_ptr<Context> ctx_create(uint32_t dev, const tutti_net_ctx_config &config) {
    std::vector<Device> all{device(dev)};
    for (const Device &d : devices_)
      if (d.interface.name != all.front().interface.name) all.push_back(d);
    return std::make_unique<Context>(host_, settings_, std::move(all), config);
  }

private:
  const Device &device(uint32_t dev) {
    if (devices_.empty()) device_count();
    if (dev >= devices_.size()) plugin::fail(TUTTI_ERR_INVALID, "device ", dev, " of ", devices_.size());
    return devices_[dev];
  }
  Host host_;
  Settings settings_;
  std::vector<Device> devices_;
};

} // namespace tutti::net_socket

TUTTI_CXX_PLUGIN(tutti::net_socket::Plugin)
