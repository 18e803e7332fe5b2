// tutti/plugin/cxx/net_optional.hpp: the C tables of what a net may offer beside tutti.net/1. Part of plugin.hpp; net.hpp lists
// the methods.
#ifndef TUTTI_PLUGIN_CXX_NET_OPTIONAL_HPP
#define TUTTI_PLUGIN_CXX_NET_OPTIONAL_HPP
#include "net.hpp"
#include "tutti/plugin/net_counters.h"
#include "tutti/plugin/net_rma.h"
#include <vector>

namespace tutti::plugin {

// What a peer reads registered memory with.
struct NetKey {
  unsigned char bytes[TUTTI_NET_KEY_BYTES] = {};
  uint32_t size = 0;
  template <class T> void set(const T &value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= TUTTI_NET_KEY_BYTES);
    std::memcpy(bytes, &value, size = sizeof(T));
  }
  template <class T> T get() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= TUTTI_NET_KEY_BYTES);
    if (size != sizeof(T)) fail(TUTTI_ERR_INVALID, "key has ", size, " bytes, expected ", sizeof(T));
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
};

namespace detail {
template <class P, class = void> struct has_rma : std::false_type {};
template <class P>
struct has_rma<P, std::void_t<decltype(std::declval<typename P::Ep &>().get(std::declval<const tutti_net_buf &>(), uint64_t(),
                                                                            std::declval<const NetKey &>(), uint64_t()))>>
    : std::true_type {};
template <class P, class = void> struct has_counters : std::false_type {};
template <class P>
struct has_counters<
    P, std::void_t<decltype(std::declval<P &>().counters(uint32_t(), std::declval<std::vector<tutti_net_counter> &>()))>>
    : std::true_type {};

// A method that bears the name and is called otherwise would leave its interface out without a word.
template <class T, class = void> struct names_get : std::false_type {};
template <class T> struct names_get<T, std::void_t<decltype(&T::get)>> : std::true_type {};
template <class P, class = void> struct names_counters : std::false_type {};
template <class P> struct names_counters<P, std::void_t<decltype(&P::counters)>> : std::true_type {};
template <class P> constexpr bool check_optional() {
  static_assert(has_rma<P>::value || !names_get<typename P::Ep>::value,
                "Ep::get is not get(const tutti_net_buf &to, uint64_t remote, const NetKey &key, uint64_t cookie)");
  static_assert(has_counters<P>::value || !names_counters<P>::value,
                "counters is not counters(uint32_t dev, std::vector<tutti_net_counter> &out)");
  return true;
}

template <class P> struct RmaTable {
  using Ep = typename P::Ep;
  using Mr = typename P::Mr;

  static tutti_status mr_key(tutti_net_mr *mr, void *key, uint32_t *key_bytes) noexcept {
    Mr &real = *reinterpret_cast<Mr *>(mr);
    return guarded(real.host(), [&] {
      NetKey out;
      real.key(out);
      std::memcpy(key, out.bytes, out.size);
      *key_bytes = out.size;
    });
  }
  static tutti_status get(tutti_net_ep *ep, const tutti_net_buf *to, uint64_t remote, const void *key, uint32_t key_bytes,
                          uint64_t cookie) noexcept {
    Ep &real = *reinterpret_cast<Ep *>(ep);
    return guarded(real.host(), [&]() -> tutti_status {
      NetKey in;
      if (key_bytes > sizeof(in.bytes)) fail(TUTTI_ERR_INVALID, "key of ", key_bytes, " bytes");
      std::memcpy(in.bytes, key, in.size = key_bytes);
      return real.get(*to, remote, in, cookie);
    });
  }
  static constexpr tutti_net_rma_v1 value = {sizeof(tutti_net_rma_v1), 0, mr_key, get};
};

template <class P> struct CountersTable {
  static tutti_status read(void *plugin, uint32_t dev, tutti_net_counter *out, uint32_t *count) noexcept {
    auto &o = Opened<P>::of(plugin);
    return guarded(o.host, [&] {
      std::vector<tutti_net_counter> all;
      o.self.counters(dev, all);
      for (size_t i = 0; i < all.size() && i < *count; i++) out[i] = all[i];
      *count = static_cast<uint32_t>(all.size());
    });
  }
  static constexpr tutti_net_counters_v1 value = {sizeof(tutti_net_counters_v1), 0, read};
};
} // namespace detail

} // namespace tutti::plugin
#endif
