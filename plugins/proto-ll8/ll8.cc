// tutti/plugins/proto-ll8: protocol "ll8", low latency for memory that delivers no more than 8 bytes whole and those in any
// order, as links of devices may. Half of each 8-byte word is payload, the other half its flag: the sequence. Words come in
// lines of 128 bytes: the core's word first, 14 words with 56 bytes of payload, one word free. Cost: 16/7 bytes per byte and a
// look at a flag per 4 bytes. On a host "ll" does the same with half of the lines; this one is for devices. Where stores are
// ordered the core's word of a line comes last, and proto.h says how it differs from older ones. Where they are not, a flag
// repeats after 2^32 messages: such a device has to clear lines that have not been written for so long.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ll8.cc"
#include "hwy/foreach_target.h"
//
#include "tutti/plugin/cxx/simd/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::plugin::HWY_NAMESPACE {
namespace {

// Word 0 of a line is the core's, words 1 to 14 are 4 bytes of data and 4 bytes of flag, word 15 is free. Each is stored and
// loaded whole, and each tells by itself whether it has arrived, so they may arrive in any order.
struct Words {
  static constexpr size_t line = 128, payload = 56;
  struct Word {
    uint32_t data, flag;
  };
  static uint32_t flag_of(uint64_t word) { return static_cast<uint32_t>(word); } // the sequence
  static HWY_INLINE bool arrived(const uint8_t *at, uint64_t word, size_t n) {
    if (__atomic_load_n(reinterpret_cast<const uint64_t *>(at), __ATOMIC_ACQUIRE) != word) return false;
    uint32_t differ = 0;
    for (size_t i = 0; i < n; i += 4) differ |= load_word(at, i).flag ^ flag_of(word);
    return differ == 0;
  }
  static HWY_INLINE uint8_t *open(uint8_t *, uint8_t *room) { return room; }
  static HWY_INLINE void seal(uint8_t *at, const uint8_t *from, size_t n, uint64_t word) {
    for (size_t i = 0; i < n; i += 4) {
      Word w{0, flag_of(word)};
      memcpy(&w.data, from + i, HWY_MIN(size_t{4}, n - i));
      uint64_t whole;
      memcpy(&whole, &w, 8);
      __atomic_store_n(reinterpret_cast<uint64_t *>(at + 8 + 2 * i), whole, __ATOMIC_RELAXED);
    }
    __atomic_store_n(reinterpret_cast<uint64_t *>(at), word, __ATOMIC_RELEASE);
  }
  // A word never changes once its flag has been seen, so what arrived() saw is still there.
  static HWY_INLINE const uint8_t *look(const uint8_t *at, size_t n, uint8_t *room) {
    for (size_t i = 0; i < n; i += 4) {
      const uint32_t data = load_word(at, i).data;
      memcpy(room + i, &data, 4);
    }
    return room;
  }

private:
  static HWY_INLINE Word load_word(const uint8_t *at, size_t i) {
    const uint64_t whole = __atomic_load_n(reinterpret_cast<const uint64_t *>(at + 8 + 2 * i), __ATOMIC_RELAXED);
    Word w;
    memcpy(&w, &whole, 8);
    return w;
  }
};

tutti_kernel kernel_of(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return line_kernel<Words>(form, dtype, op, flags);
}

} // namespace
} // namespace tutti::plugin::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tutti/plugin/cxx/plugin.hpp"

namespace tutti::plugin {
namespace {

HWY_EXPORT(kernel_of);

class LL8 {
public:
  static constexpr Info info{"proto-ll8", "0.1.0", "tutti", "Apache-2.0", "every 8-byte word tells that it has arrived"};
  static constexpr const char *proto_name = "ll8";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_IN_DATA, 128, 56, 8, 0};

  explicit LL8(const Host &) {}

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    return HWY_DYNAMIC_DISPATCH(kernel_of)(form, dtype, op, flags);
  }
};

} // namespace
} // namespace tutti::plugin

TUTTI_CXX_PLUGIN(tutti::plugin::LL8)
#endif
