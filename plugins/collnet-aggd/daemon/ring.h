// tutti/plugins/collnet-aggd/daemon/ring.h: a ring of bytes that lies twice in a row in the address space, so that every span
// of up to its capacity is contiguous. Positions only grow.
#pragma once
#include "base/status.h"
#include <cstdint>
#include <utility>

namespace tutti::aggd {

class Ring {
public:
  Ring() = default;
  Ring(Ring &&o) noexcept
      : base_(std::exchange(o.base_, nullptr)), mask_(std::exchange(o.mask_, 0)), head(o.head), tail(o.tail) {}
  Ring &operator=(Ring &&o) noexcept;
  ~Ring();
  static Result<Ring> make(uint32_t bytes); // a power of two of at least one page

  uint64_t capacity() const { return base_ ? mask_ + 1 : 0; }
  uint64_t used() const { return head - tail; }
  uint64_t room() const { return capacity() - used(); }
  uint8_t *at(uint64_t position) const { return base_ + (position & mask_); }

private:
  uint8_t *base_ = nullptr;
  uint64_t mask_ = 0;

public:
  uint64_t head = 0, tail = 0; // bytes [tail, head) are in use
};

} // namespace tutti::aggd
