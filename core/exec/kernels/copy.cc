// tutti/core/exec/kernels/copy.cc: copies into slots and past the caches.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernels/copy.cc"
#include "hwy/foreach_target.h"
//
#include "exec/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
void copy_ahead(void *to, const void *from, uint64_t bytes) noexcept {
  memmove(to, from, bytes);
}
void copy_past_caches(void *to, const void *from, uint64_t bytes) noexcept {
  memmove(to, from, bytes);
}
#else
using Bytes = hn::ScalableTag<uint8_t>;
constexpr size_t width = vector_bytes<Bytes>();

// At most four vectors: two or four overlapping ones, all loaded before the first store (dst may be src).
HWY_INLINE void copy_short(uint8_t *dst, const uint8_t *src, size_t n) {
  const Bytes d;
  if (n <= width) {
#if TUTTI_BYTE_MASKS
    return store_n(d, load_n(d, src, n), dst, n);
#else
    return copy_few<width>(dst, src, n);
#endif
  }
  const auto first = load(d, src), last = load(d, src + n - width);
  if (n > 2 * width) {
    const auto second = load(d, src + width), third = load(d, src + n - 2 * width);
    store(d, second, dst + width);
    store(d, third, dst + n - 2 * width);
  }
  store(d, first, dst);
  store(d, last, dst + n - width);
}

HWY_INLINE void copy4(uint8_t *dst, const uint8_t *src) {
  const Bytes d;
  const auto v0 = load(d, src), v1 = load(d, src + width), v2 = load(d, src + 2 * width), v3 = load(d, src + 3 * width);
  store(d, v0, dst);
  store(d, v1, dst + width);
  store(d, v2, dst + 2 * width);
  store(d, v3, dst + 3 * width);
}

void copy_ahead(void *to, const void *from, uint64_t bytes) noexcept {
  auto *dst = static_cast<uint8_t *>(to);
  const auto *src = static_cast<const uint8_t *>(from);
  if (bytes <= 4 * width) return copy_short(dst, src, bytes);
  prefetch_start(dst, bytes);
  size_t i = align_head<Plain<uint8_t>>(dst, bytes);
  if (i) copy_short(dst, src, i);
  for (; i + prefetch_bytes + 4 * width <= bytes; i += 4 * width) {
    for (size_t k = 0; k < 4 * width; k += cache_line) prefetch_write(dst + i + prefetch_bytes + k);
    copy4(dst + i, src + i);
  }
  for (; i + 4 * width <= bytes; i += 4 * width) copy4(dst + i, src + i);
  copy_short(dst + i, src + i, bytes - i);
}

void copy_past_caches(void *to, const void *from, uint64_t bytes) noexcept {
  auto *dst = static_cast<uint8_t *>(to);
  const auto *src = static_cast<const uint8_t *>(from);
  const Bytes d;
  const size_t head = stream_head<Plain<uint8_t>>(dst, bytes);
  if (head == bytes) return copy_ahead(to, from, bytes);
  copy_few<cache_line>(dst, src, head);
  size_t i = head;
  for (; i + 4 * width <= bytes; i += 4 * width)
    for (size_t k = i; k < i + 4 * width; k += width) stream(d, load(d, src + k), dst + k);
  copy_short(dst + i, src + i, bytes - i);
}
#endif

tutti_copy_fn copy_of(bool nt) {
  return nt ? &copy_past_caches : &copy_ahead;
}
const char *name_of() {
  return hwy::TargetName(HWY_TARGET);
}

} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(copy_of);
HWY_EXPORT(name_of);
tutti_copy_fn kernels::copy(bool nontemporal) {
  return HWY_DYNAMIC_DISPATCH(copy_of)(nontemporal);
}
const char *kernels::target_name() {
  return HWY_DYNAMIC_DISPATCH(name_of)();
}
} // namespace tutti
#endif
