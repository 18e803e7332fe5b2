// tutti/core/plan/interpret.h: runs the plans of all ranks over real memory, with FIFOs made of memcpy, in one thread. Slow and
// plain: the reference that the checker and the executor are tested against. It shares no code with either but the chunk
// arithmetic.
#pragma once
#include "plan/chunks.h"
#include "plan/plan.h"
#include <functional>

namespace tutti {

// One rank's memory. `in` may be nullptr where the collective gives the rank no IN; likewise `out`. In place: overlapping.
struct RankBuffers {
  const uint8_t *in = nullptr;
  uint8_t *out = nullptr;
  BufferShape in_shape, out_shape;
};

// The operation. All but `reduce` may be empty.
struct Arithmetic {
  std::function<void(uint8_t *acc, const uint8_t *operand, uint64_t bytes)> reduce; // acc = acc (+) operand
  std::function<void(uint8_t *acc, uint64_t bytes)> round; // once at the end of a step that reduces, as 16-bit types are
  std::function<void(int rank, uint8_t *data, uint64_t bytes)> preop;
  std::function<void(uint8_t *data, uint64_t bytes)> postop;
};

struct InterpretOptions {
  uint32_t depth = 0;  // 0 = the plan's min_depth
  uint32_t window = 0; // 0 = the plan's, or 1
  uint64_t slice_bytes = 4096;
  bool reverse = false; // look at lanes in the other order: shows what depends on timing
};

// An error when ranks wait for each other for ever, a link has no other end, or the two ends of a link see different sizes.
Status interpret(std::span<const std::shared_ptr<const Plan>> plans, std::span<const RankBuffers> buffers,
                 const Arithmetic &arithmetic, const InterpretOptions &options = {});

} // namespace tutti
