// The template's net with completions that lie, TWICE, COOKIE or SIZES says how, or that does not take what net.h lets the core
// hand over: KIND, EMPTY.
#include <tutti/plugin/cxx/plugin.hpp>
#undef TUTTI_CXX_PLUGIN
#define TUTTI_CXX_PLUGIN(Class)
#include "../../plugin-api/template/net/unix.cc" // NOLINT(bugprone-suspicious-include): the template itself

namespace {

using Good = tutti::plugin::detail::NetTable<UnixNet>;
using Desc = tutti::plugin::detail::Descriptor<UnixNet>;

int32_t progress(tutti_net_ctx *ctx, tutti_net_completion *out, uint32_t cap) noexcept {
#ifdef TWICE
  static tutti_net_completion again{};
  static bool pending = false;
  if (pending && cap > 0) {
    pending = false;
    out[0] = again;
    return 1;
  }
#endif
  const int32_t n = Good::value.progress(ctx, out, cap);
  for (int32_t i = 0; i < n; i++) {
#if defined(COOKIE)
    out[i].cookie ^= 1;
#elif defined(SIZES)
    out[i].bytes += 1;
#endif
#ifdef TWICE
    again = out[i];
    pending = true;
#endif
  }
  return n;
}

#ifdef KIND
tutti_status mr_register(tutti_net_ctx *ctx, const tutti_region *region, tutti_net_mr **out) noexcept {
  return region->kind == TUTTI_MEM_HOST ? Good::value.mr_register(ctx, region, out) : TUTTI_ERR_SYSTEM;
}
#endif
#ifdef EMPTY
tutti_status send(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) noexcept {
  return bufs[0].addr ? Good::value.send(ep, bufs, n, cookie) : TUTTI_ERR_INVALID;
}
#endif

constexpr tutti_net_v1 spoiled() {
  tutti_net_v1 t = Good::table();
  t.progress = progress;
#ifdef KIND
  t.mr_register = mr_register;
#endif
#ifdef EMPTY
  t.send = send;
#endif
  return t;
}
constexpr tutti_net_v1 table = spoiled();
const void *get_iface(void *, const char *id) noexcept {
  return std::string_view(id) == TUTTI_NET ? &table : nullptr;
}

constexpr tutti_plugin_desc spoiled_desc() {
  tutti_plugin_desc d = Desc::value;
  d.get_iface = get_iface;
  return d;
}

} // namespace

extern "C" const tutti_plugin_desc tutti_plugin_v1 = spoiled_desc();
