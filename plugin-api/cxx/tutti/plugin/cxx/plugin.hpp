// tutti/plugin/cxx/plugin.hpp: a C++17 class becomes a plugin. Header-only; include it in one source file and end that with
// TUTTI_CXX_PLUGIN(YourClass). The helper is optional: the C headers are the contract.
//
//   struct MyRing {
//     static constexpr tutti::plugin::Info info{"algo-my-ring", "1.0.0", "me", "Apache-2.0", "a ring of my own"};
//     static constexpr tutti_option options[] = {{"key", "1", "what it does", nullptr, nullptr, 0, 8, TUTTI_OPT_INT, 0}, {}};
//     explicit MyRing(const tutti::plugin::Host &host);                     throws Error: the plugin is not used
//     static constexpr const char *algo_name = "my-ring";                   having it offers tutti.algo/1
//     void supports(const tutti_algo_request &req) const;                   throws: tutti::plugin::unsupported("why")
//     void plan(const tutti_algo_request &req, tutti::plugin::PlanWriter &w) const;
//         or, to hand the core's own builder to tutti.host.plan/1:  plan(req, const tutti_plan_builder &out)
//     void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const;   optional, see algo.h
//   };
//   TUTTI_CXX_PLUGIN(MyRing)
//
// Further interfaces of the same class:
//   proto_name  with  static constexpr ProtoShape proto_shape  and  tutti_kernel kernel(form, dtype, op, flags) const
//   tuner_name  with  void rate(const tutti_tune_query &query, std::vector<tutti_candidate> &candidates)
//   net_name    see net.hpp, also for tutti.net.rma/1 and tutti.net.counters/1
//   collnet_name  see collnet.hpp
//   store_name  see store.hpp
// `options` may be left out; its last element is {}.
#ifndef TUTTI_PLUGIN_CXX_PLUGIN_HPP
#define TUTTI_PLUGIN_CXX_PLUGIN_HPP
#include "collnet.hpp"
#include "host.hpp"
#include "net.hpp"
#include "net_optional.hpp"
#include "plan_writer.hpp"
#include "store.hpp"
#include "tables.hpp"

namespace tutti::plugin {

struct Info {
  const char *name, *version, *vendor, *license, *summary;
};

namespace detail {
template <class P, class = void> struct has_options : std::false_type {};
template <class P> struct has_options<P, std::void_t<decltype(P::options)>> : std::true_type {};

template <class P> struct Descriptor {
  struct Ids {
    const char *id[9] = {};
  };
  static constexpr Ids list() {
    Ids out;
    int n = 0;
    if constexpr (has_net<P>::value) {
      static_assert(check_optional<P>());
      out.id[n++] = TUTTI_NET;
      if constexpr (has_rma<P>::value) out.id[n++] = TUTTI_NET_RMA;
      if constexpr (has_counters<P>::value) out.id[n++] = TUTTI_NET_COUNTERS;
    }
    if constexpr (has_collnet<P>::value) out.id[n++] = TUTTI_COLLNET;
    if constexpr (has_algo<P>::value) out.id[n++] = TUTTI_ALGO;
    if constexpr (has_proto<P>::value) out.id[n++] = TUTTI_PROTO;
    if constexpr (has_tuner<P>::value) out.id[n++] = TUTTI_TUNER;
    if constexpr (has_store<P>::value) out.id[n++] = TUTTI_STORE;
    return out;
  }
  static constexpr Ids ids = list();

  static tutti_status open(const tutti_host *host, void **plugin) noexcept {
    return guarded(Host(host), [&] { *plugin = new Opened<P>(host); });
  }
  static void close(void *plugin) noexcept { delete static_cast<Opened<P> *>(plugin); }
  static const void *get_iface(void *, const char *id) noexcept {
    const std::string_view want(id);
    if constexpr (has_net<P>::value) {
      if (want == TUTTI_NET) return &NetTable<P>::value;
      if constexpr (has_rma<P>::value) {
        if (want == TUTTI_NET_RMA) return &RmaTable<P>::value;
      }
      if constexpr (has_counters<P>::value) {
        if (want == TUTTI_NET_COUNTERS) return &CountersTable<P>::value;
      }
    }
    if constexpr (has_collnet<P>::value) {
      if (want == TUTTI_COLLNET) return &CollnetTable<P>::value;
    }
    if constexpr (has_algo<P>::value) {
      if (want == TUTTI_ALGO) return &AlgoTable<P>::value;
    }
    if constexpr (has_proto<P>::value) {
      if (want == TUTTI_PROTO) return &ProtoTable<P>::value;
    }
    if constexpr (has_tuner<P>::value) {
      if (want == TUTTI_TUNER) return &TunerTable<P>::value;
    }
    if constexpr (has_store<P>::value) {
      if (want == TUTTI_STORE) return &StoreTable<P>::value;
    }
    return nullptr;
  }
  static constexpr const tutti_option *options() {
    if constexpr (has_options<P>::value)
      return P::options;
    else
      return nullptr;
  }
  static constexpr tutti_plugin_desc value = {sizeof(tutti_plugin_desc),
                                              TUTTI_ABI_MAJOR,
                                              TUTTI_ABI_MINOR,
                                              P::info.name,
                                              P::info.version,
                                              P::info.vendor,
                                              P::info.license,
                                              P::info.summary,
                                              ids.id,
                                              options(),
                                              open,
                                              close,
                                              get_iface};
};
} // namespace detail

} // namespace tutti::plugin

// A program that links plugins in gives each descriptor a name of its own: -DTUTTI_PLUGIN_SYMBOL=tutti_plugin_algo_ring.
#ifndef TUTTI_PLUGIN_SYMBOL
#define TUTTI_PLUGIN_SYMBOL tutti_plugin_v1
#endif
#define TUTTI_CXX_PLUGIN(Class)                                                                                                \
  extern "C" {                                                                                                                 \
  TUTTI_EXPORT extern const tutti_plugin_desc TUTTI_PLUGIN_SYMBOL;                                                             \
  const tutti_plugin_desc TUTTI_PLUGIN_SYMBOL = ::tutti::plugin::detail::Descriptor<Class>::value;                             \
  }
#endif
