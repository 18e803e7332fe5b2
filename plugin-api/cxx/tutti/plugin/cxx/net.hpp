// tutti/plugin/cxx/net.hpp: the C table of a net, made from five classes. Part of plugin.hpp.
//
// The plugin class P has `net_name`, types Ctx, Listener, Ep and Mr, and
//   uint32_t device_count();
//   void device_info(uint32_t dev, tutti_net_dev &out);                    out is zeroed, struct_size set
//   std::unique_ptr<Ctx> ctx_create(uint32_t dev, const tutti_net_ctx_config &config);
// Ctx:      std::unique_ptr<Listener> listen(Address &addr);
//           std::unique_ptr<Ep> connect(const Address &addr);               or (const Address &addr, Address &answer)
//           std::unique_ptr<Mr> mr_register(const tutti_region &region);
//           int32_t progress(tutti_net_completion *out, uint32_t cap);
//           optional: int event_fd();  bool arm();                         arm: false = there already is something to do
// Listener: std::unique_ptr<Ep> accept();                                  null = nobody yet; or (const Address &answer)
// Ep:       bool ready();                                                  false = still connecting
//           std::string describe();
//           tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie);
//           tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie);
//           optional: tutti_status flush(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie);
// Beside tutti.net/1, for tutti.net.rma/1 (Mr then derives from NetObject, too):
//   Ep: tutti_status get(const tutti_net_buf &to, uint64_t remote, const NetKey &key, uint64_t cookie);
//   Mr: void key(NetKey &out);
// and for tutti.net.counters/1:
//   P:  void counters(uint32_t dev, std::vector<tutti_net_counter> &out);  from any thread
// Destructors are the *_destroy and *_release functions, with the promises that net.h makes for them. Everything may throw
// Error; the objects need a `const Host &host() const` so that the reason finds its way (derive from NetObject).
#ifndef TUTTI_PLUGIN_CXX_NET_HPP
#define TUTTI_PLUGIN_CXX_NET_HPP
#include "host.hpp"
#include "tables.hpp"
#include "tutti/plugin/net.h"
#include <memory>

namespace tutti::plugin {

struct Address {
  unsigned char bytes[TUTTI_NET_ADDR_BYTES] = {};
  uint32_t size = 0;
  // A trivially copyable struct as the address, and back.
  template <class T> void set(const T &value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= TUTTI_NET_ADDR_BYTES);
    std::memcpy(bytes, &value, size = sizeof(T));
  }
  template <class T> T get() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= TUTTI_NET_ADDR_BYTES);
    if (size != sizeof(T)) fail(TUTTI_ERR_INVALID, "address has ", size, " bytes, expected ", sizeof(T));
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
};

// Base of Ctx, Listener and Ep, and of an Mr that has a key.
class NetObject {
public:
  explicit NetObject(const Host &host) : host_(host) {}
  const Host &host() const { return host_; }

private:
  Host host_;
};

namespace detail {
template <class T, class = void> struct has_event_fd : std::false_type {};
template <class T> struct has_event_fd<T, std::void_t<decltype(std::declval<T &>().event_fd())>> : std::true_type {};
template <class T, class = void> struct has_answer : std::false_type {};
template <class T>
struct has_answer<
    T, std::void_t<decltype(std::declval<T &>().connect(std::declval<const Address &>(), std::declval<Address &>()))>>
    : std::true_type {};
template <class T, class = void> struct has_flush : std::false_type {};
template <class T>
struct has_flush<
    T, std::void_t<decltype(std::declval<T &>().flush(std::declval<const tutti_net_buf *>(), uint32_t(), uint64_t()))>>
    : std::true_type {};

template <class T, class = void> struct names_flush : std::false_type {};
template <class T> struct names_flush<T, std::void_t<decltype(&T::flush)>> : std::true_type {};

template <class P> struct NetTable {
  using Ctx = typename P::Ctx;
  using Listener = typename P::Listener;
  using Ep = typename P::Ep;
  using Mr = typename P::Mr;
  static_assert(has_flush<Ep>::value || !names_flush<Ep>::value,
                "Ep::flush is not flush(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie)");
  static Ctx &real(tutti_net_ctx *c) { return *reinterpret_cast<Ctx *>(c); }
  static Listener &real(tutti_net_listener *l) { return *reinterpret_cast<Listener *>(l); }
  static Ep &real(tutti_net_ep *e) { return *reinterpret_cast<Ep *>(e); }

  static tutti_status device_count(void *plugin, uint32_t *count) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] { *count = o.self.device_count(); });
  }
  static tutti_status device_info(void *plugin, uint32_t dev, tutti_net_dev *out) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      tutti_net_dev info{};
      info.struct_size = sizeof(info);
      o.self.device_info(dev, info);
      write_out(out, info);
    });
  }
  static tutti_status ctx_create(void *plugin, uint32_t dev, const tutti_net_ctx_config *config, tutti_net_ctx **out) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      std::unique_ptr<Ctx> ctx = o.self.ctx_create(dev, read_in(config));
      *out = reinterpret_cast<tutti_net_ctx *>(ctx.release());
    });
  }
  static void ctx_destroy(tutti_net_ctx *ctx) noexcept { delete &real(ctx); }
  static tutti_status listen(tutti_net_ctx *ctx, void *addr, uint32_t *addr_bytes, tutti_net_listener **out) noexcept {
    return guarded(real(ctx).host(), [&] {
      Address address;
      std::unique_ptr<Listener> listener = real(ctx).listen(address);
      std::memcpy(addr, address.bytes, address.size);
      *addr_bytes = address.size;
      *out = reinterpret_cast<tutti_net_listener *>(listener.release());
    });
  }
  static Address read_address(const void *from, uint32_t bytes) {
    Address address;
    if (bytes > sizeof(address.bytes)) fail(TUTTI_ERR_INVALID, "address of ", bytes, " bytes");
    if (bytes != 0) std::memcpy(address.bytes, from, bytes);
    address.size = bytes;
    return address;
  }
  static tutti_status connect(tutti_net_ctx *ctx, const void *addr, uint32_t addr_bytes, void *answer, uint32_t *answer_bytes,
                              tutti_net_ep **out) noexcept {
    return guarded(real(ctx).host(), [&] {
      Address reply;
      std::unique_ptr<Ep> ep;
      if constexpr (has_answer<Ctx>::value)
        ep = real(ctx).connect(read_address(addr, addr_bytes), reply);
      else
        ep = real(ctx).connect(read_address(addr, addr_bytes));
      if (reply.size != 0) std::memcpy(answer, reply.bytes, reply.size);
      *answer_bytes = reply.size;
      *out = reinterpret_cast<tutti_net_ep *>(ep.release());
    });
  }
  static tutti_status accept(tutti_net_listener *listener, const void *answer, uint32_t answer_bytes,
                             tutti_net_ep **out) noexcept {
    return guarded(real(listener).host(), [&]() -> tutti_status {
      std::unique_ptr<Ep> ep;
      if constexpr (has_answer<Ctx>::value)
        ep = real(listener).accept(read_address(answer, answer_bytes));
      else
        ep = real(listener).accept();
      if (!ep) return TUTTI_AGAIN;
      *out = reinterpret_cast<tutti_net_ep *>(ep.release());
      return TUTTI_OK;
    });
  }
  static tutti_status ep_ready(tutti_net_ep *ep) noexcept {
    return guarded(real(ep).host(), [&]() -> tutti_status { return real(ep).ready() ? TUTTI_OK : TUTTI_AGAIN; });
  }
  static tutti_status ep_describe(tutti_net_ep *ep, char *out, uint32_t cap) noexcept {
    return guarded(real(ep).host(), [&] {
      const std::string s = real(ep).describe();
      if (cap == 0) return;
      const size_t n = std::min<size_t>(s.size(), cap - 1);
      std::memcpy(out, s.data(), n);
      out[n] = '\0';
    });
  }
  static void ep_destroy(tutti_net_ep *ep) noexcept { delete &real(ep); }
  static void listener_destroy(tutti_net_listener *listener) noexcept { delete &real(listener); }
  static tutti_status mr_register(tutti_net_ctx *ctx, const tutti_region *region, tutti_net_mr **out) noexcept {
    return guarded(real(ctx).host(), [&] {
      std::unique_ptr<Mr> mr = real(ctx).mr_register(read_in(region));
      *out = reinterpret_cast<tutti_net_mr *>(mr.release());
    });
  }
  static void mr_release(tutti_net_mr *mr) noexcept { delete reinterpret_cast<Mr *>(mr); }
  static tutti_status send(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) noexcept {
    return guarded(real(ep).host(), [&]() -> tutti_status { return real(ep).send(bufs, n, cookie); });
  }
  static tutti_status recv(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t *received,
                           uint64_t cookie) noexcept {
    return guarded(real(ep).host(), [&]() -> tutti_status { return real(ep).recv(bufs, n, received, cookie); });
  }
  static tutti_status flush(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) noexcept {
    if constexpr (has_flush<Ep>::value)
      return guarded(real(ep).host(), [&]() -> tutti_status { return real(ep).flush(bufs, n, cookie); });
    else
      return TUTTI_ERR_UNSUPPORTED;
  }
  static int32_t progress(tutti_net_ctx *ctx, tutti_net_completion *out, uint32_t cap) noexcept {
    return guarded(real(ctx).host(), [&]() -> int32_t { return real(ctx).progress(out, cap); });
  }
  static tutti_status event_fd(tutti_net_ctx *ctx, int32_t *fd) noexcept {
    if constexpr (has_event_fd<Ctx>::value)
      return guarded(real(ctx).host(), [&] { *fd = real(ctx).event_fd(); });
    else
      return TUTTI_ERR_UNSUPPORTED;
  }
  static tutti_status arm(tutti_net_ctx *ctx) noexcept {
    if constexpr (has_event_fd<Ctx>::value)
      return guarded(real(ctx).host(), [&]() -> tutti_status { return real(ctx).arm() ? TUTTI_OK : TUTTI_AGAIN; });
    else
      return TUTTI_ERR_UNSUPPORTED;
  }

  static constexpr tutti_net_v1 table() {
    tutti_net_v1 t{};
    t.struct_size = sizeof(t);
    t.name = P::net_name;
    t.device_count = device_count;
    t.device_info = device_info;
    t.ctx_create = ctx_create;
    t.ctx_destroy = ctx_destroy;
    t.listen = listen;
    t.connect = connect;
    t.accept = accept;
    t.ep_ready = ep_ready;
    t.ep_describe = ep_describe;
    t.ep_destroy = ep_destroy;
    t.listener_destroy = listener_destroy;
    t.mr_register = mr_register;
    t.mr_release = mr_release;
    t.send = send;
    t.recv = recv;
    if constexpr (has_flush<Ep>::value) t.flush = flush;
    t.progress = progress;
    if constexpr (has_event_fd<Ctx>::value) {
      t.event_fd = event_fd;
      t.arm = arm;
    }
    return t;
  }
  static constexpr tutti_net_v1 value = table();
};
} // namespace detail

} // namespace tutti::plugin
#endif
