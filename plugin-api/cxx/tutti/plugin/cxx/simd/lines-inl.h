// tutti/plugin/cxx/simd/lines-inl.h: the IN_DATA kernels of proto.h, over lines of any layout. Compiled once per target.
//
// A layout L says how one line looks:
//   L::line, L::payload      bytes of a line, and of the payload in it: a multiple of every element's size
//   L::arrived(line, word, n)  the line and its first n bytes of payload carry `word`: an acquire of them
//   L::open(line, room)      where `payload` contiguous bytes are written: in the line itself, or in `room`
//   L::seal(line, at, n, word) makes n bytes at open()'s `at` and the word visible, the word last
//   L::look(line, n, room)   the first n bytes of payload, contiguous: in the line itself, or put together in `room`
//
// A line is reduced whole: all its vectors are loaded before the first is stored, so the last one may overlap the one before,
// and dst may be src.
#if defined(TUTTI_PLUGIN_CXX_SIMD_LINES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_PLUGIN_CXX_SIMD_LINES_INL_H
#undef TUTTI_PLUGIN_CXX_SIMD_LINES_INL_H
#else
#define TUTTI_PLUGIN_CXX_SIMD_LINES_INL_H
#endif

#include "tutti/plugin/cxx/simd/vec-inl.h"
#include "tutti/plugin/proto.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::plugin::HWY_NAMESPACE {

// Payload first, the word in the line's last 8 bytes, for memory that shows stores in order: the payload's before the word's.
// x86 does so by itself, elsewhere the word's store is a release and its load an acquire.
template <size_t bytes> struct WordLast {
  static constexpr size_t line = bytes, payload = bytes - 8;
  static HWY_INLINE bool arrived(const uint8_t *at, uint64_t word, size_t) {
    return __atomic_load_n(reinterpret_cast<const uint64_t *>(at + payload), __ATOMIC_ACQUIRE) == word;
  }
  static HWY_INLINE uint8_t *open(uint8_t *at, uint8_t *) { return at; }
  static HWY_INLINE void seal(uint8_t *at, const uint8_t *, size_t, uint64_t word) {
    __atomic_store_n(reinterpret_cast<uint64_t *>(at + payload), word, __ATOMIC_RELEASE);
  }
  static HWY_INLINE const uint8_t *look(const uint8_t *at, size_t, uint8_t *) { return at; }
};

template <class L> constexpr size_t room_bytes = (L::payload + 63) / 64 * 64;

// ---- lines in memory

template <class L> HWY_INLINE void copy_payload(uint8_t *dst, const uint8_t *src, size_t n) {
  if (n == L::payload) {
    memcpy(dst, src, L::payload);
    return;
  }
  if constexpr (L::payload > 64) {
    if (n > 64) {
      memcpy(dst, src, 64);
      memcpy(dst + n - 64, src + n - 64, 64);
      return;
    }
  }
  copy_few<64>(dst, src, n);
}

// dst and next, each if there is one, = a (+) b, for a whole payload.
template <class L, class P> HWY_INLINE void reduce_payload(uint8_t *dst, uint8_t *next, const uint8_t *a, const uint8_t *b) {
  using S = typename P::S;
  constexpr size_t w = P::width;
  if constexpr (w > L::payload) {
    const auto v = P::part(a, b, L::payload);
    if (dst) store_n(S(), v, dst, L::payload);
    if (next) store_n(S(), v, next, L::payload);
  } else {
    constexpr size_t count = (L::payload + w - 1) / w;
    const auto offset = [](size_t k) { return HWY_MIN(k * w, L::payload - w); };
    hn::Vec<S> v[count];
    for (size_t k = 0; k < count; ++k) v[k] = P::at(a + offset(k), b + offset(k));
    if (dst)
      for (size_t k = 0; k < count; ++k) store(S(), v[k], dst + offset(k));
    if (next)
      for (size_t k = 0; k < count; ++k) store(S(), v[k], next + offset(k));
  }
}
template <class P> HWY_INLINE void reduce_part(uint8_t *dst, uint8_t *next, const uint8_t *a, const uint8_t *b, size_t n) {
  using S = typename P::S;
  for (size_t i = 0; i < n; i += P::width) {
    const size_t len = HWY_MIN(P::width, n - i);
    const auto v = P::part(a + i, b + i, len);
    if (dst) store_n(S(), v, dst + i, len);
    if (next) store_n(S(), v, next + i, len);
  }
}

// ---- slots

// Calls fn(line, offset, length) for each line that has arrived, from *done on; 1 when that were all. A message of no bytes is
// one line with its word.
template <class L, class Fn>
HWY_INLINE int32_t each_arrived(const void *slot, uint64_t bytes, uint64_t word, uint64_t *done, Fn fn) {
  uint64_t at = *done;
  if (at == bytes && bytes) return 1;
  const auto *line = static_cast<const uint8_t *>(slot) + at / L::payload * L::line;
  for (; bytes - at > L::payload; at += L::payload, line += L::line) {
    if (!L::arrived(line, word, L::payload)) {
      *done = at;
      return 0;
    }
    fn(line, at, L::payload);
  }
  *done = at;
  if (!L::arrived(line, word, bytes - at)) return 0;
  fn(line, at, bytes - at);
  *done = bytes;
  return 1;
}

template <class L> void encode(void *slot, const void *from, uint64_t bytes, uint64_t word) noexcept {
  auto *line = static_cast<uint8_t *>(slot);
  const auto *src = static_cast<const uint8_t *>(from);
  const uint8_t *const end = line + bytes / L::payload * L::line; // of what is worth fetching ahead
  for (const uint8_t *p = line; p < end && p < line + prefetch_bytes; p += cache_line) prefetch_write(p);
  HWY_ALIGN uint8_t room[room_bytes<L>];
  for (; bytes > L::payload; bytes -= L::payload, src += L::payload, line += L::line) {
    if (line + prefetch_bytes < end)
      for (size_t k = 0; k < L::line; k += cache_line) prefetch_write(line + prefetch_bytes + k);
    uint8_t *const at = L::open(line, room);
    copy_payload<L>(at, src, L::payload);
    L::seal(line, at, L::payload, word);
  }
  uint8_t *const at = L::open(line, room);
  copy_payload<L>(at, src, bytes);
  L::seal(line, at, bytes, word);
}

template <class L> int32_t decode(const void *slot, void *to, uint64_t bytes, uint64_t word, uint64_t *done) noexcept {
  auto *dst = static_cast<uint8_t *>(to);
  HWY_ALIGN uint8_t room[room_bytes<L>];
  return each_arrived<L>(slot, bytes, word, done, [&](const uint8_t *line, uint64_t at, size_t n) HWY_ATTR {
    copy_payload<L>(dst + at, L::look(line, n, room), n);
  });
}

// The fused forms in one, as compiled for each type and operation: `to` and `next_slot` may be null. What is the same for a
// whole message, the order of operands among it, is asked once per line, which costs less than twice the code.
template <class L, class P>
HWY_NOINLINE int32_t decode_reduce_to(const void *slot, const void *from, void *to, void *next_slot, uint64_t bytes,
                                      uint64_t word, uint64_t next_word, uint64_t *done, bool received_first) noexcept {
  auto *dst = static_cast<uint8_t *>(to), *next = static_cast<uint8_t *>(next_slot);
  const auto *src = static_cast<const uint8_t *>(from);
  const uint64_t end = bytes / L::payload * L::line;
  HWY_ALIGN uint8_t room[room_bytes<L>];
  HWY_ALIGN uint8_t next_room[room_bytes<L>];
  return each_arrived<L>(slot, bytes, word, done, [&](const uint8_t *line, uint64_t at, size_t n) HWY_ATTR {
    const uint64_t line_at = at / L::payload * L::line;
    if (next && line_at + prefetch_bytes < end)
      for (size_t k = 0; k < L::line; k += cache_line) prefetch_write(next + line_at + prefetch_bytes + k);
    const uint8_t *const in = L::look(line, n, room);
    const uint8_t *const a = received_first ? in : src + at, *const b = received_first ? src + at : in;
    uint8_t *const keep = dst ? dst + at : nullptr, *const out = next ? L::open(next + line_at, next_room) : nullptr;
    if (n == L::payload)
      reduce_payload<L, P>(keep, out, a, b);
    else
      reduce_part<P>(keep, out, a, b, n);
    if (next) L::seal(next + line_at, out, n, next_word);
  });
}

template <class L, class P, bool received_first>
int32_t decode_reduce(const void *slot, const void *from, void *to, uint64_t bytes, uint64_t word, uint64_t *done) noexcept {
  return decode_reduce_to<L, P>(slot, from, to, nullptr, bytes, word, 0, done, received_first);
}
template <class L, class P, bool received_first>
int32_t decode_reduce_encode(const void *slot, const void *from, void *to, void *next_slot, uint64_t bytes, uint64_t word,
                             uint64_t next_word, uint64_t *done) noexcept {
  return decode_reduce_to<L, P>(slot, from, to, next_slot, bytes, word, next_word, done, received_first);
}

template <class L, class P, bool received_first> tutti_kernel pick_line(tutti_form form) {
  if (form == TUTTI_FORM_DECODE_REDUCE) return reinterpret_cast<tutti_kernel>(&decode_reduce<L, P, received_first>);
  return reinterpret_cast<tutti_kernel>(&decode_reduce_encode<L, P, received_first>);
}

// The fused form for op Op. Only sums and products tell the order of operands, of types that do.
template <class L, class Op, bool signs> tutti_kernel find_line(tutti_form form, tutti_dtype dtype, bool received_first) {
  return with_element<signs, tutti_kernel>(dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (!signs && T::tells_order)
      if (received_first) return pick_line<L, Pair<T, Op>, true>(form);
    return pick_line<L, Pair<T, Op>, false>(form);
  });
}

// What a plugin's kernel() gives: every form, type and operation. User memory is small and read again, so no stores pass the
// caches.
template <class L> tutti_kernel line_kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  if (form == TUTTI_FORM_ENCODE || form == TUTTI_FORM_DECODE) {
    if (flags) return nullptr;
    return form == TUTTI_FORM_ENCODE ? reinterpret_cast<tutti_kernel>(&encode<L>) : reinterpret_cast<tutti_kernel>(&decode<L>);
  }
  if ((form != TUTTI_FORM_DECODE_REDUCE && form != TUTTI_FORM_DECODE_REDUCE_ENCODE) ||
      flags & ~uint32_t{TUTTI_KERNEL_RECEIVED_FIRST})
    return nullptr;
  switch (op) {
  case TUTTI_RED_SUM:
    return find_line<L, Sum, false>(form, dtype, flags);
  case TUTTI_RED_PROD:
    return find_line<L, Prod, false>(form, dtype, flags);
  case TUTTI_RED_MAX:
    return find_line<L, Max, true>(form, dtype, flags);
  case TUTTI_RED_MIN:
    return find_line<L, Min, true>(form, dtype, flags);
  default:
    return nullptr;
  }
}

} // namespace tutti::plugin::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
