// tutti/core/exec/kernels/reduce-inl.h: the loops over memory. Compiled once per target.
// All walk forward and load a vector before they store it, so dst may be one of the operands.
#if defined(TUTTI_KERNELS_REDUCE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_REDUCE_INL_H
#undef TUTTI_KERNELS_REDUCE_INL_H
#else
#define TUTTI_KERNELS_REDUCE_INL_H
#endif

#include "exec/kernels/lookup.h"
#include "tutti/plugin/cxx/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
using namespace plugin::HWY_NAMESPACE;

HWY_INLINE void prefetch_start(const uint8_t *p, size_t bytes) {
  for (size_t k = 0; k < prefetch_bytes && k < bytes; k += cache_line) prefetch_write(p + k);
}

// Bytes before p's next cache line, if whole elements lead there and streaming is worth it; else `bytes`: all of it.
template <class T> HWY_INLINE size_t stream_head(const uint8_t *p, size_t bytes) {
  using S = typename T::S;
  const size_t head = (0 - reinterpret_cast<uintptr_t>(p)) % cache_line;
  constexpr bool whole_vectors = vector_bytes<S>() >= 16; // narrower streaming stores do not exist
  return whole_vectors && head % sizeof(typename T::Elem) == 0 && bytes >= head + 4 * cache_line ? head : bytes;
}

// Bytes to do first so that stores stop crossing cache lines, where that pays; large malloc() blocks start 16 bytes into one.
template <class T> HWY_INLINE size_t align_head(const uint8_t *p, size_t bytes) {
  const size_t head = (0 - reinterpret_cast<uintptr_t>(p)) % cache_line;
  return bytes >= 1024 && head % sizeof(typename T::Elem) == 0 ? head : 0;
}

// dst = a (+) b for bytes [from, to).
template <class T, class Op>
HWY_INLINE void reduce_span(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t i, size_t to) {
  using S = typename T::S;
  using P = Pair<T, Op>;
  constexpr size_t w = P::width;
  for (; i + 4 * w <= to; i += 4 * w) {
    const auto v0 = P::at(a + i, b + i), v1 = P::at(a + i + w, b + i + w);
    const auto v2 = P::at(a + i + 2 * w, b + i + 2 * w), v3 = P::at(a + i + 3 * w, b + i + 3 * w);
    store(S(), v0, dst + i);
    store(S(), v1, dst + i + w);
    store(S(), v2, dst + i + 2 * w);
    store(S(), v3, dst + i + 3 * w);
  }
  for (; i + w <= to; i += w) store(S(), P::at(a + i, b + i), dst + i);
  if (i < to) store_n(S(), P::part(a + i, b + i, to - i), dst + i, to - i);
}

// The forms whose stores to dst pass the caches (NT) leave both ends of it to those whose stores do not: they only add a loop.
template <class T, class Op, bool NT> void reduce(void *out, const void *left, const void *right, uint64_t bytes) noexcept {
  using S = typename T::S;
  using P = Pair<T, Op>;
  constexpr size_t w = P::width;
  auto *dst = static_cast<uint8_t *>(out);
  const auto *a = static_cast<const uint8_t *>(left), *b = static_cast<const uint8_t *>(right);
  if constexpr (NT) {
    size_t i = stream_head<T>(dst, bytes);
    if (i) reduce<T, Op, false>(dst, a, b, i);
    if constexpr (w >= 16)
      for (; i + 4 * w <= bytes; i += 4 * w)
        for (size_t k = i; k < i + 4 * w; k += w) stream(S(), P::at(a + k, b + k), dst + k);
    if (i < bytes) reduce<T, Op, false>(dst + i, a + i, b + i, bytes - i);
  } else {
    if (bytes <= w) return store_n(S(), P::part(a, b, bytes), dst, bytes);
    const size_t i = align_head<T>(dst, bytes);
    if (i) reduce_span<T, Op>(dst, a, b, 0, i);
    reduce_span<T, Op>(dst, a, b, i, bytes);
  }
}

// The user's output first, then the slot that is passed on.
template <class T, class Op, bool NT>
void reduce2(void *out, void *slot, const void *left, const void *right, uint64_t bytes) noexcept {
  using S = typename T::S;
  using P = Pair<T, Op>;
  constexpr size_t w = P::width;
  auto *dst = static_cast<uint8_t *>(out), *fwd = static_cast<uint8_t *>(slot);
  const auto *a = static_cast<const uint8_t *>(left), *b = static_cast<const uint8_t *>(right);
  size_t i = 0;
  if constexpr (NT) {
    i = stream_head<T>(dst, bytes);
    if (i) reduce2<T, Op, false>(dst, fwd, a, b, i);
  }
  if (i < bytes) prefetch_start(fwd + i, bytes - i);
  for (; i + 4 * w <= bytes; i += 4 * w) {
    if (i + prefetch_bytes < bytes)
      for (size_t k = 0; k < 4 * w; k += cache_line) prefetch_write(fwd + i + prefetch_bytes + k);
    for (size_t k = i; k < i + 4 * w; k += w) {
      const auto v = P::at(a + k, b + k);
      if constexpr (NT && w >= 16)
        stream(S(), v, dst + k);
      else
        store(S(), v, dst + k);
      store(S(), v, fwd + k);
    }
  }
  if constexpr (NT) {
    if (i < bytes) reduce2<T, Op, false>(dst + i, fwd + i, a + i, b + i, bytes - i);
  } else {
    for (; i < bytes; i += w) {
      const size_t n = HWY_MIN(w, bytes - i);
      const auto v = P::part(a + i, b + i, n);
      store_n(S(), v, dst + i, n);
      store_n(S(), v, fwd + i, n);
    }
  }
}

// dst = ((op[0] (+) op[1]) (+) ...), bytes [from, to) of each; narrow floats stay wide until the end. Gives how far it came: NT
// does whole pairs of vectors only.
template <class T, class Op, bool NT>
size_t reduce_n_span(uint8_t *dst, const void *const *operands, uint32_t n, size_t from, size_t to) noexcept {
  using S = typename T::S;
  using C = typename T::C;
  constexpr size_t w = vector_bytes<S>();
  const auto at = [=](uint32_t r, size_t k) HWY_ATTR { return static_cast<const uint8_t *>(operands[r]) + k; };
  size_t i = from;
  for (; i + 2 * w <= to; i += 2 * w) {
    auto x = T::widen(load(S(), at(0, i))), y = T::widen(load(S(), at(0, i + w)));
    for (uint32_t r = 1; r < n; ++r) {
      x = Op::apply(C(), x, T::widen(load(S(), at(r, i))));
      y = Op::apply(C(), y, T::widen(load(S(), at(r, i + w))));
    }
    if constexpr (NT && w >= 16) {
      stream(S(), T::narrow(x), dst + i);
      stream(S(), T::narrow(y), dst + i + w);
    } else {
      store(S(), T::narrow(x), dst + i);
      store(S(), T::narrow(y), dst + i + w);
    }
  }
  if constexpr (NT) return i;
  for (; i < to; i += w) {
    const size_t len = HWY_MIN(w, to - i);
    auto v = T::widen(load_n(S(), at(0, i), len));
    for (uint32_t r = 1; r < n; ++r) v = Op::apply(C(), v, T::widen(load_n(S(), at(r, i), len)));
    store_n(S(), T::narrow(v), dst + i, len);
  }
  return to;
}
template <class T, class Op, bool NT>
void reduce_n(void *out, const void *const *operands, uint32_t n, uint64_t bytes) noexcept {
  auto *dst = static_cast<uint8_t *>(out);
  size_t i = 0;
  if constexpr (NT) {
    i = reduce_n_span<T, Op, false>(dst, operands, n, 0, stream_head<T>(dst, bytes));
    i = reduce_n_span<T, Op, true>(dst, operands, n, i, bytes);
  }
  reduce_n_span<T, Op, false>(dst, operands, n, i, bytes);
}

template <class T, class Op> kernels::Fn pick(kernels::Form form, bool nt) {
  const auto erase = [](auto fn) { return reinterpret_cast<kernels::Fn>(fn); };
  switch (form) {
  case kernels::Form::reduce:
    return nt ? erase(&reduce<T, Op, true>) : erase(&reduce<T, Op, false>);
  case kernels::Form::reduce2:
    return nt ? erase(&reduce2<T, Op, true>) : erase(&reduce2<T, Op, false>);
  case kernels::Form::reduce_n:
    return nt ? erase(&reduce_n<T, Op, true>) : erase(&reduce_n<T, Op, false>);
  }
  return nullptr;
}

// signs: as with_element() has it.
template <class Op, bool signs> kernels::Fn find(kernels::Form form, tutti_dtype dtype, bool nt) {
  return with_element<signs, kernels::Fn>(dtype, [&](auto t) { return pick<decltype(t), Op>(form, nt); });
}

} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
