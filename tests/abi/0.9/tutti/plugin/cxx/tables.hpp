// tutti/plugin/cxx/tables.hpp: the C tables of algo, proto and tuner, made from the methods of a plugin class. Part of
// plugin.hpp, where the methods are listed.
#ifndef TUTTI_PLUGIN_CXX_TABLES_HPP
#define TUTTI_PLUGIN_CXX_TABLES_HPP
#include "plan_writer.hpp"
#include "tutti/plugin/algo.h"
#include "tutti/plugin/proto.h"
#include "tutti/plugin/tuner.h"

namespace tutti::plugin {

// A plugin's object and the host it was opened with. The C side sees a pointer to it.
template <class P> struct Opened {
  Host host;
  P self;
  explicit Opened(const tutti_host *h) : host(h), self(host) {}
  static Opened &of(void *plugin) { return *static_cast<Opened *>(plugin); }
};

// What a proto says about its lines.
struct ProtoShape {
  tutti_proto_signal signal = TUTTI_SIGNAL_COUNTER;
  uint32_t line_bytes = 1, payload_bytes = 1, atomic_store_bytes = 8, flag_offset = 56;
};
// A kernel as the table wants it: as_kernel(&encode).
template <class Fn> tutti_kernel as_kernel(Fn *fn) {
  return reinterpret_cast<tutti_kernel>(fn);
}

namespace detail {
template <class P, class = void> struct has_algo : std::false_type {};
template <class P> struct has_algo<P, std::void_t<decltype(P::algo_name)>> : std::true_type {};
template <class P, class = void> struct has_proto : std::false_type {};
template <class P> struct has_proto<P, std::void_t<decltype(P::proto_name)>> : std::true_type {};
template <class P, class = void> struct has_tuner : std::false_type {};
template <class P> struct has_tuner<P, std::void_t<decltype(P::tuner_name)>> : std::true_type {};
template <class P, class = void> struct has_net : std::false_type {};
template <class P> struct has_net<P, std::void_t<decltype(P::net_name)>> : std::true_type {};
template <class P, class = void> struct has_estimate : std::false_type {};
template <class P>
struct has_estimate<P, std::void_t<decltype(std::declval<const P &>().estimate(
                           std::declval<const tutti_algo_request &>(), std::declval<double &>(), std::declval<double &>()))>>
    : std::true_type {};

template <class P, class = void> struct plans_to_builder : std::false_type {};
template <class P>
struct plans_to_builder<P, std::void_t<decltype(std::declval<const P &>().plan(std::declval<const tutti_algo_request &>(),
                                                                               std::declval<const tutti_plan_builder &>()))>>
    : std::true_type {};

template <class P> struct AlgoTable {
  static tutti_status supports(void *plugin, const tutti_algo_request *req) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] { std::as_const(o.self).supports(read_in(req)); });
  }
  static tutti_status plan(void *plugin, const tutti_algo_request *req, const tutti_plan_builder *out) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      if constexpr (plans_to_builder<P>::value) {
        std::as_const(o.self).plan(read_in(req), *out);
        return TUTTI_OK;
      } else {
        PlanWriter writer;
        std::as_const(o.self).plan(read_in(req), writer);
        return writer.emit(*out);
      }
    });
  }
  static tutti_status estimate(void *plugin, const tutti_algo_request *req, double *rounds, double *bytes) noexcept {
    if constexpr (has_estimate<P>::value) {
      auto &o = Opened<P>::of(plugin);
      return guarded(o.host, [&] {
        double n = 0, b = 0;
        std::as_const(o.self).estimate(read_in(req), n, b);
        *rounds = n;
        *bytes = b;
      });
    } else {
      return TUTTI_ERR_UNSUPPORTED;
    }
  }
  static constexpr tutti_algo_v1 table() {
    tutti_algo_v1 t{};
    t.struct_size = sizeof(t);
    t.name = P::algo_name;
    t.supports = supports;
    t.plan = plan;
    if constexpr (has_estimate<P>::value) t.estimate = estimate;
    return t;
  }
  static constexpr tutti_algo_v1 value = table();
};

template <class P> struct ProtoTable {
  static tutti_kernel kernel(void *plugin, tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
    try {
      return std::as_const(Opened<P>::of(plugin).self).kernel(form, dtype, op, flags);
    } catch (...) {
      return nullptr;
    }
  }
  static constexpr tutti_proto_v1 table() {
    const ProtoShape s = P::proto_shape;
    return {sizeof(tutti_proto_v1), s.signal,      P::proto_name, s.line_bytes, s.payload_bytes,
            s.atomic_store_bytes,   s.flag_offset, kernel};
  }
  static constexpr tutti_proto_v1 value = table();
};

template <class P> struct TunerTable {
  // Candidates are copied to this version's layout and back, so that the class may use them as a plain vector.
  static tutti_status rate(void *plugin, const tutti_tune_query *query, tutti_candidate *candidates, uint32_t n,
                           uint32_t candidate_size) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      const size_t known = std::min<size_t>(candidate_size, sizeof(tutti_candidate));
      char *bytes = reinterpret_cast<char *>(candidates);
      std::vector<tutti_candidate> list(n);
      for (size_t i = 0; i < n; i++) std::memcpy(&list[i], bytes + i * candidate_size, known);
      o.self.rate(read_in(query), list);
      list.resize(n);
      for (size_t i = 0; i < n; i++) std::memcpy(bytes + i * candidate_size, &list[i], known);
    });
  }
  static constexpr tutti_tuner_v1 value = {sizeof(tutti_tuner_v1), 0, P::tuner_name, rate};
};
} // namespace detail

} // namespace tutti::plugin
#endif
