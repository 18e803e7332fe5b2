// tutti/core/transport/memory.h: memory of rings, counted against the communicator's cap.
#pragma once
#include "base/fd.h"
#include "base/status.h"
#include <atomic>
#include <cstdint>
#include <string>

namespace tutti {

// Bytes of one communicator. [any thread]
class MemoryBudget {
public:
  explicit MemoryBudget(uint64_t cap) : cap_(cap) {}
  // A refusal names cap, use and what was asked; it is no end of anything by itself.
  Status take(uint64_t bytes, const std::string &what);
  void give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

private:
  uint64_t cap_; // 0 = none
  std::atomic<uint64_t> used_{0};
};

// A zeroed piece of memory that two ends share: counted references within a process, a mapping of its own per process.
class Block {
public:
  Block() = default;
  Block(Block &&o) noexcept { swap(o); }
  Block &operator=(Block &&o) noexcept {
    swap(o);
    return *this;
  }
  ~Block() { reset(); }
  static Result<Block> create_local(uint64_t bytes);
  static Result<Block> open_local(uint64_t id);      // of a block that lives in this process
  static Result<Block> create_empty(uint64_t bytes); // zeroes that nobody writes: takes no memory
  // memfd; fd stays open until it was handed over. huge: of huge pages when it fills one and there are any. touch: all of it
  // will be used, so its pages exist from the beginning.
  static Result<Block> create_shared(uint64_t bytes, bool huge, UniqueFd *fd, bool touch = true);
  static Result<Block> map_shared(int fd, uint64_t bytes, bool touch = true);
  uint8_t *data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t id() const { return id_; } // of a local block
  void reset();

private:
  static Result<Block> create_memfd(uint64_t bytes, unsigned flags, UniqueFd *fd, bool touch);
  void swap(Block &o) {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(id_, o.id_);
  }
  uint8_t *data_ = nullptr;
  uint64_t bytes_ = 0, id_ = 0; // id 0 = a mapping
};

} // namespace tutti
