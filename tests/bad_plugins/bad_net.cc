// The template's net with completions that lie, TWICE, COOKIE, SIZES or LATE says how; that does not take what net.h lets the
// core hand over: KIND, EMPTY; that never comes to an end: NEVER_READY, NEVER_DONE; that writes where it must not: OVERRUN;
// that answers what is no answer: GARBAGE; or that throws: THROW_DEVICE, THROW_CONNECT, THROW_PROGRESS.
#include <map>
#include <stdexcept>
#include <tutti/plugin/cxx/plugin.hpp>
#undef TUTTI_CXX_PLUGIN
#define TUTTI_CXX_PLUGIN(Class)
#include "../../plugin-api/template/net/unix.cc" // NOLINT(bugprone-suspicious-include): the template itself

namespace {

using Good = tutti::plugin::detail::NetTable<UnixNet>;
using Desc = tutti::plugin::detail::Descriptor<UnixNet>;

#ifdef OVERRUN
std::map<uint64_t, uint8_t *> &ends() { // of posted buffers, by cookie
  static std::map<uint64_t, uint8_t *> all;
  return all;
}
#endif
#ifdef LATE
tutti_net_completion last{};
bool destroyed = false;
#endif

[[maybe_unused]] int32_t progress(tutti_net_ctx *ctx, tutti_net_completion *out, uint32_t cap) noexcept {
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
#if defined(OVERRUN)
    if (const auto past = ends().find(out[i].cookie); past != ends().end()) {
      *past->second = 0;
      ends().erase(past);
    }
#elif defined(LATE)
    last = out[i];
#endif
  }
#ifdef LATE
  if (destroyed && n == 0 && cap > 0) {
    destroyed = false;
    out[0] = last;
    return 1;
  }
#endif
#ifdef NEVER_DONE
  return 0;
#else
  return n;
#endif
}

#ifdef OVERRUN
tutti_status recv(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) noexcept {
  const tutti_status s = Good::value.recv(ep, bufs, n, received, cookie);
  if (s == TUTTI_OK && bufs[n - 1].addr) ends()[cookie] = static_cast<uint8_t *>(bufs[n - 1].addr) + bufs[n - 1].bytes;
  return s;
}
#endif
#ifdef LATE
void ep_destroy(tutti_net_ep *ep) noexcept {
  Good::value.ep_destroy(ep);
  destroyed = last.cookie != 0;
}
#endif
#ifdef NEVER_READY
tutti_status ep_ready(tutti_net_ep *) noexcept {
  return TUTTI_AGAIN;
}
#endif
#ifdef GARBAGE
tutti_status send(tutti_net_ep *, const tutti_net_buf *, uint32_t, uint64_t) noexcept {
  return 77;
}
#endif

// What throws cannot have the type of what does not.
#if defined(THROW_DEVICE)
tutti_status thrower(void *, uint32_t *) {
  throw std::runtime_error("no devices today");
}
#elif defined(THROW_CONNECT)
tutti_status thrower(tutti_net_ctx *, const void *, uint32_t, void *, uint32_t *, tutti_net_ep **) {
  throw std::runtime_error("no route today");
}
#elif defined(THROW_PROGRESS)
int32_t thrower(tutti_net_ctx *, tutti_net_completion *, uint32_t) {
  throw std::runtime_error("no progress today");
}
#endif

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

tutti_net_v1 spoiled() {
  tutti_net_v1 t = Good::table();
  t.progress = progress;
#if defined(OVERRUN)
  t.recv = recv;
#elif defined(LATE)
  t.ep_destroy = ep_destroy;
#elif defined(NEVER_READY)
  t.ep_ready = ep_ready;
#elif defined(GARBAGE)
  t.send = send;
#elif defined(THROW_DEVICE)
  t.device_count = reinterpret_cast<decltype(t.device_count)>(thrower);
#elif defined(THROW_CONNECT)
  t.connect = reinterpret_cast<decltype(t.connect)>(thrower);
#elif defined(THROW_PROGRESS)
  t.progress = reinterpret_cast<decltype(t.progress)>(thrower);
#endif
#ifdef KIND
  t.mr_register = mr_register;
#endif
#ifdef EMPTY
  t.send = send;
#endif
  return t;
}
const void *get_iface(void *, const char *id) noexcept {
  static const tutti_net_v1 table = spoiled();
  return std::string_view(id) == TUTTI_NET ? &table : nullptr;
}

constexpr tutti_plugin_desc spoiled_desc() {
  tutti_plugin_desc d = Desc::value;
  d.get_iface = get_iface;
  return d;
}

} // namespace

extern "C" const tutti_plugin_desc tutti_plugin_v1 = spoiled_desc();
