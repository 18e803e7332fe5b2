// tutti/plugins/proto-ll8/kernels.cc: the kernels of lines of 8-byte words, once per SIMD target.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cc"
#include "hwy/foreach_target.h"
//
#include "tutti/plugin/cxx/simd/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

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

tutti_kernel ll8_kernel_of(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return line_kernel<Words>(form, dtype, op, flags);
}
} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels.h"
namespace tutti {
HWY_EXPORT(ll8_kernel_of);
tutti_kernel ll8_kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return HWY_DYNAMIC_DISPATCH(ll8_kernel_of)(form, dtype, op, flags);
}
} // namespace tutti
#endif
