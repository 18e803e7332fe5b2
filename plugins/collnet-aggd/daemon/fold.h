// tutti/plugins/collnet-aggd/daemon/fold.h: what operands become, in the order in which they are given. Element by element, so
// the bits do not depend on where the data is cut.
#pragma once
#include "tutti/plugin/base.h"
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::aggd {

// A part of a member's vector; wide: float32 partial results of a type of 8 or 16 bits.
struct Operand {
  const uint8_t *at;
  bool wide;
};

class Folder {
public:
  Folder();
  // Narrow floats are combined in float32, and rounded once, unless the result stays wide.
  void fold(tutti_dtype dtype, tutti_redop op, std::span<const Operand> operands, uint8_t *out, bool wide_out,
            uint64_t elements);
  // What the core does to the sum at the end of an average.
  static void divide(tutti_dtype dtype, uint8_t *data, uint64_t divisor, uint64_t bytes);

private:
  void fold_wide(tutti_dtype dtype, tutti_redop op, std::span<const Operand> operands, uint8_t *out, bool wide_out,
                 uint64_t elements);
  std::vector<const void *> plain_;
  std::vector<float> sum_, next_;
};

// Exactly what the kernels do with these types before and after they compute.
void widen(tutti_dtype dtype, float *out, const void *in, uint64_t elements);
void narrow(tutti_dtype dtype, void *out, const float *in, uint64_t elements);

} // namespace tutti::aggd
