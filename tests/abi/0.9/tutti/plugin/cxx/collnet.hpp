// tutti/plugin/cxx/collnet.hpp: the C table of a collnet, made from five classes. Part of plugin.hpp.
//
// The plugin class P has `collnet_name`, types CollnetCtx, CollnetListener, CollnetGroup and CollnetMr, and
//   uint32_t collnet_device_count();
//   void collnet_device_info(uint32_t dev, tutti_collnet_dev &out);        out is zeroed, struct_size set
//   std::unique_ptr<CollnetCtx> collnet_ctx_create(uint32_t dev, const tutti_collnet_ctx_config &config);
// CollnetCtx:      std::unique_ptr<CollnetListener> listen(CollnetAddress &addr);
//                  std::unique_ptr<CollnetMr> mr_register(const tutti_region &region);
//                  int32_t progress(tutti_collnet_completion *out, uint32_t cap);
//                  optional: int event_fd();  bool arm();                  arm: false = there already is something to do
// CollnetListener: std::unique_ptr<CollnetGroup> group_create(const std::vector<CollnetAddress> &addrs, int32_t member,
//                                                             const tutti_collnet_config &config);
// CollnetGroup:    bool ready(tutti_collnet_caps &out);                    false = not all are in; out is zeroed
//                  void why(tutti_collnet_why &out);                       out is zeroed
//                  std::string describe();
//                  tutti_status post(const tutti_collnet_op &op, uint64_t cookie);
// Destructors are the *_destroy and *_release functions, with the promises that collnet.h makes for them. Everything may throw
// Error; the objects need a `const Host &host() const` so that the reason finds its way (derive from NetObject).
#ifndef TUTTI_PLUGIN_CXX_COLLNET_HPP
#define TUTTI_PLUGIN_CXX_COLLNET_HPP
#include "net.hpp"
#include "tutti/plugin/collnet.h"
#include <vector>

namespace tutti::plugin {

struct CollnetAddress {
  unsigned char bytes[TUTTI_COLLNET_ADDR_BYTES] = {};
  // A trivially copyable struct as the address, and back. What lies behind it is 0.
  template <class T> void set(const T &value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= TUTTI_COLLNET_ADDR_BYTES);
    std::memcpy(bytes, &value, size = sizeof(T));
  }
  template <class T> T get() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= TUTTI_COLLNET_ADDR_BYTES);
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
  uint32_t size = 0; // of one's own; that of others is not told
};

namespace detail {
template <class P, class = void> struct has_collnet : std::false_type {};
template <class P> struct has_collnet<P, std::void_t<decltype(P::collnet_name)>> : std::true_type {};

template <class P> struct CollnetTable {
  using Ctx = typename P::CollnetCtx;
  using Listener = typename P::CollnetListener;
  using Group = typename P::CollnetGroup;
  using Mr = typename P::CollnetMr;
  static Ctx &real(tutti_collnet_ctx *c) { return *reinterpret_cast<Ctx *>(c); }
  static Listener &real(tutti_collnet_listener *l) { return *reinterpret_cast<Listener *>(l); }
  static Group &real(tutti_collnet_group *g) { return *reinterpret_cast<Group *>(g); }

  static tutti_status device_count(void *plugin, uint32_t *count) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] { *count = o.self.collnet_device_count(); });
  }
  static tutti_status device_info(void *plugin, uint32_t dev, tutti_collnet_dev *out) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      tutti_collnet_dev info{};
      info.struct_size = sizeof(info);
      o.self.collnet_device_info(dev, info);
      write_out(out, info);
    });
  }
  static tutti_status ctx_create(void *plugin, uint32_t dev, const tutti_collnet_ctx_config *config,
                                 tutti_collnet_ctx **out) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      std::unique_ptr<Ctx> ctx = o.self.collnet_ctx_create(dev, read_in(config));
      *out = reinterpret_cast<tutti_collnet_ctx *>(ctx.release());
    });
  }
  static void ctx_destroy(tutti_collnet_ctx *ctx) noexcept { delete &real(ctx); }
  static tutti_status listen(tutti_collnet_ctx *ctx, void *addr, uint32_t *addr_bytes, tutti_collnet_listener **out) noexcept {
    return guarded(real(ctx).host(), [&] {
      CollnetAddress address;
      std::unique_ptr<Listener> listener = real(ctx).listen(address);
      std::memcpy(addr, address.bytes, address.size);
      *addr_bytes = address.size;
      *out = reinterpret_cast<tutti_collnet_listener *>(listener.release());
    });
  }
  static void listener_destroy(tutti_collnet_listener *listener) noexcept { delete &real(listener); }
  static tutti_status group_create(tutti_collnet_listener *listener, const void *addrs, uint32_t addr_stride, int32_t nmembers,
                                   int32_t member, const tutti_collnet_config *config, tutti_collnet_group **out) noexcept {
    return guarded(real(listener).host(), [&] {
      if (nmembers < 1 || member < 0 || member >= nmembers) fail(TUTTI_ERR_INVALID, "member ", member, " of ", nmembers);
      std::vector<CollnetAddress> all(static_cast<size_t>(nmembers));
      for (size_t i = 0; i < all.size(); i++) {
        all[i].size = std::min<uint32_t>(addr_stride, TUTTI_COLLNET_ADDR_BYTES);
        std::memcpy(all[i].bytes, static_cast<const char *>(addrs) + i * addr_stride, all[i].size);
      }
      std::unique_ptr<Group> group = real(listener).group_create(all, member, read_in(config));
      *out = reinterpret_cast<tutti_collnet_group *>(group.release());
    });
  }
  static tutti_status group_ready(tutti_collnet_group *group, tutti_collnet_caps *caps) noexcept {
    return guarded(real(group).host(), [&]() -> tutti_status {
      tutti_collnet_caps out{};
      if (!real(group).ready(out)) return TUTTI_AGAIN;
      write_out(caps, out);
      return TUTTI_OK;
    });
  }
  static tutti_status group_why(tutti_collnet_group *group, tutti_collnet_why *out) noexcept {
    return guarded(real(group).host(), [&] {
      tutti_collnet_why why{};
      why.member = -1;
      real(group).why(why);
      write_out(out, why);
    });
  }
  static tutti_status group_describe(tutti_collnet_group *group, char *out, uint32_t cap) noexcept {
    return guarded(real(group).host(), [&] {
      const std::string s = real(group).describe();
      if (cap == 0) return;
      const size_t n = std::min<size_t>(s.size(), cap - 1);
      std::memcpy(out, s.data(), n);
      out[n] = '\0';
    });
  }
  static void group_destroy(tutti_collnet_group *group) noexcept { delete &real(group); }
  static tutti_status mr_register(tutti_collnet_ctx *ctx, const tutti_region *region, tutti_collnet_mr **out) noexcept {
    return guarded(real(ctx).host(), [&] {
      std::unique_ptr<Mr> mr = real(ctx).mr_register(read_in(region));
      *out = reinterpret_cast<tutti_collnet_mr *>(mr.release());
    });
  }
  static void mr_release(tutti_collnet_mr *mr) noexcept { delete reinterpret_cast<Mr *>(mr); }
  static tutti_status post(tutti_collnet_group *group, const tutti_collnet_op *op, uint64_t cookie) noexcept {
    return guarded(real(group).host(), [&]() -> tutti_status { return real(group).post(read_in(op), cookie); });
  }
  static int32_t progress(tutti_collnet_ctx *ctx, tutti_collnet_completion *out, uint32_t cap) noexcept {
    return guarded(real(ctx).host(), [&]() -> int32_t { return real(ctx).progress(out, cap); });
  }
  static tutti_status event_fd(tutti_collnet_ctx *ctx, int32_t *fd) noexcept {
    if constexpr (has_event_fd<Ctx>::value)
      return guarded(real(ctx).host(), [&] { *fd = real(ctx).event_fd(); });
    else
      return TUTTI_ERR_UNSUPPORTED;
  }
  static tutti_status arm(tutti_collnet_ctx *ctx) noexcept {
    if constexpr (has_event_fd<Ctx>::value)
      return guarded(real(ctx).host(), [&]() -> tutti_status { return real(ctx).arm() ? TUTTI_OK : TUTTI_AGAIN; });
    else
      return TUTTI_ERR_UNSUPPORTED;
  }

  static constexpr tutti_collnet_v1 table() {
    tutti_collnet_v1 t{};
    t.struct_size = sizeof(t);
    t.name = P::collnet_name;
    t.device_count = device_count;
    t.device_info = device_info;
    t.ctx_create = ctx_create;
    t.ctx_destroy = ctx_destroy;
    t.listen = listen;
    t.listener_destroy = listener_destroy;
    t.group_create = group_create;
    t.group_ready = group_ready;
    t.group_why = group_why;
    t.group_describe = group_describe;
    t.group_destroy = group_destroy;
    t.mr_register = mr_register;
    t.mr_release = mr_release;
    t.post = post;
    t.progress = progress;
    if constexpr (has_event_fd<Ctx>::value) {
      t.event_fd = event_fd;
      t.arm = arm;
    }
    return t;
  }
  static constexpr tutti_collnet_v1 value = table();
};
} // namespace detail

} // namespace tutti::plugin
#endif
