// tutti/plugins/net-fault/plugin.cc: the plugin's object.
#include "tutti/plugin/cxx/plugin.hpp"
#include "endpoint.h"

namespace tutti::net_fault {

class Plugin {
public:
  static constexpr plugin::Info info{"net-fault", "0.1.0", "tutti", "Apache-2.0", "another net plugin, with faults: for tests"};
  static constexpr tutti_option options[] = {
      {"inner", "", "the net plugin that carries the messages: a path, or a name beside this one; empty: this one is not used",
       nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0},
      {"inner_options", "", "options of the plugin inside, as key=value", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING_LIST, 0},
      {"faults", "",
       "what goes wrong: kind=when[:how], separated by commas; kinds delay, drop, corrupt, short, reset, half_open; when a "
       "probability or after:N; how a duration for delay, payload or header for corrupt",
       nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0},
      {"seed", "1", "of the random numbers: the same seed gives the same faults", nullptr, nullptr, 0, 0, TUTTI_OPT_INT, 0},
      {"rank", "-1", "the only rank that receives faults; -1: every one", nullptr, nullptr, -1, 1 << 30, TUTTI_OPT_INT, 0},
      {}};
  static constexpr const char *net_name = "fault";
  using Ctx = Context;
  using Listener = net_fault::Listener;
  using Ep = Endpoint;
  using Mr = net_fault::Mr;

  explicit Plugin(const Host &host) : host_(host) {
    wanted_.faults = parse_faults(host.get_string("faults"), host.origin("faults"));
    wanted_.seed = static_cast<uint64_t>(host.get_int("seed"));
    wanted_.rank = host.get_int("rank");
    const std::string inner = host.get_string("inner");
    if (inner.empty())
      plugin::unsupported("it makes faults in another net plugin, for tests, and plugin.net-fault.inner names none");
    inner_ = std::make_unique<Inner>(host, inner, host.get_list("inner_options"), host.origin("inner_options"));
  }

  uint32_t device_count() {
    uint32_t n = 0;
    check(inner_->net().device_count(inner_->state(), &n));
    return n;
  }
  // Device memory and reads of it are not wrapped.
  void device_info(uint32_t dev, tutti_net_dev &out) {
    check(inner_->net().device_info(inner_->state(), dev, &out));
    out.mem_kinds &= TUTTI_MEM_HOST;
    out.flags &= ~uint32_t{TUTTI_NET_NEEDS_FLUSH};
    out.max_batch = std::min(out.max_batch, Call::max_batch);
  }
  std::unique_ptr<Context> ctx_create(uint32_t dev, const tutti_net_ctx_config &config) {
    return std::make_unique<Context>(host_, *inner_, wanted_, dev, config);
  }

private:
  static void check(tutti_status s) {
    if (s < 0) throw plugin::Error(s, "");
  }
  Host host_;
  Wanted wanted_;
  std::unique_ptr<Inner> inner_;
};

} // namespace tutti::net_fault

TUTTI_CXX_PLUGIN(tutti::net_fault::Plugin)
