// tutti/plugins/net-ib/plugin.cc: the plugin's object.
#include "tutti/plugin/cxx/plugin.hpp"
#include "context.h"
#include "counters.h"
#include "endpoint.h"
#include "listener.h"
#include <mutex>
#include <set>

namespace tutti::net_ib {

class Plugin {
public:
  static constexpr plugin::Info info{"net-ib", "0.1.0", "tutti", "Apache-2.0", "messages over RDMA: InfiniBand and RoCE"};
  static constexpr const tutti_option *options = option_table.data();
  static constexpr const char *net_name = "ib";
  using Ctx = Context;
  using Listener = net_ib::Listener;
  using Ep = Endpoint;
  using Mr = net_ib::Mr;

  explicit Plugin(const Host &host) : host_(host), settings_(read_settings(host)) {}

  uint32_t device_count() {
    Found found = find_devices(settings_, real_verbs());
    for (const std::string &u : found.unmatched) say(TUTTI_LOG_WARN, u + " names no port of this host");
    for (const std::string &d : found.declined) say(TUTTI_LOG_INFO, "not used: " + d);
    for (const std::string &n : found.notes) say(TUTTI_LOG_INFO, n);
    if (found.devices.empty()) {
      if (found.declined.empty()) say(TUTTI_LOG_INFO, found.why);
      host_.set_error(TUTTI_ERR_UNSUPPORTED, found.why.c_str());
    }
    const std::lock_guard lock(mutex_);
    devices_ = std::move(found.devices);
    return static_cast<uint32_t>(devices_.size());
  }

  void device_info(uint32_t dev, tutti_net_dev &out) {
    const Device d = device(dev);
    const Port &first = d.own.front();
    d.name.copy(out.name, sizeof out.name - 1);
    if (!first.pci.empty()) // shorter than the path through the bridges, and the same folder
      plugin::text("/sys/bus/pci/devices", first.pci.substr(first.pci.rfind('/'))).copy(out.pci, sizeof out.pci - 1);
    out.mem_kinds = TUTTI_MEM_HOST;
    out.guid = first.guid;
    bool loopback = true;
    uint64_t largest = UINT64_MAX;
    for (const Port &p : d.own) {
      out.speed_mbps += p.speed_mbps;
      loopback &= p.netdev == "lo";
      largest = std::min<uint64_t>(largest, p.max_message);
    }
    for (const Port &p : d.spare) largest = std::min<uint64_t>(largest, p.max_message);
    out.flags = loopback ? uint32_t{TUTTI_NET_LOOPBACK} : 0;
    out.numa_node = first.numa_node;
    out.rail = first.rail;
    describe_limits(settings_, largest, out);
  }

  std::unique_ptr<Context> ctx_create(uint32_t dev, const tutti_net_ctx_config &config) {
    return std::make_unique<Context>(host_, settings_, real_verbs(), device(dev), config);
  }

  void counters(uint32_t dev, std::vector<tutti_net_counter> &out) {
    const Device d = device(dev);
    for (const Port &p : d.own)
      for (const Counter &c : read_counters(p)) {
        const std::string name = d.own.size() == 1 ? c.name : plugin::text(p.name(), " ", c.name);
        out.push_back({keep(name), c.hint, c.value, 0});
      }
  }

private:
  Device device(uint32_t dev) {
    const auto listed = [&] {
      const std::lock_guard lock(mutex_);
      return !devices_.empty();
    };
    if (!listed()) device_count();
    const std::lock_guard lock(mutex_);
    if (dev >= devices_.size()) plugin::fail(TUTTI_ERR_INVALID, "device ", dev, " of ", devices_.size());
    return devices_[dev];
  }
  // The core asks for devices often; what it heard already is no news.
  void say(tutti_log_level level, const std::string &line) {
    {
      const std::lock_guard lock(mutex_);
      if (!said_.insert(line).second) return;
    }
    host_.log(level, line);
  }
  const char *keep(const std::string &name) {
    const std::lock_guard lock(mutex_);
    return names_.insert(name).first->c_str();
  }

  Host host_;
  Settings settings_;
  std::mutex mutex_; // guards what follows: counters are read by any thread
  std::vector<Device> devices_;
  std::set<std::string> said_, names_;
};

} // namespace tutti::net_ib

TUTTI_CXX_PLUGIN(tutti::net_ib::Plugin)
