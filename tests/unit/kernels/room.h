// Bytes for a kernel to work on, where reading or writing beside them shows.
#pragma once
#include "reference.h"

// Source bytes at a chosen distance from a 64-byte boundary, with guard bytes that must not change.
struct Room {
  static constexpr size_t guard = 64;
  ref::Buf store;
  size_t at = 0, bytes;
  Room(size_t misalign, size_t n) : store(n + 2 * guard + 64, 0xa5), bytes(n) {
    at = guard + (64 - reinterpret_cast<uintptr_t>(store.data() + guard) % 64 + misalign) % 64;
  }
  Room(size_t misalign, const ref::Buf &from, size_t n) : Room(misalign, n) {
    memcpy(data(), from.data(), std::min(n, from.size()));
  }
  uint8_t *data() { return store.data() + at; }
  bool intact() const {
    for (size_t i = 0; i < at; ++i)
      if (store[i] != 0xa5) return false;
    for (size_t i = at + bytes; i < store.size(); ++i)
      if (store[i] != 0xa5) return false;
    return true;
  }
};
