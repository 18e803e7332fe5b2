// plugin-api/conformance/proto_operands.h: operands of a reduction and what a scalar reference makes of them, the same bits for
// every correct kernel.
#pragma once
#include "suite.h"
#include <vector>

namespace tutti::conformance {

struct Operands {
  std::vector<unsigned char> a, b, want;
};
// n elements each, and a byte more, so that data() of none is no null.
Operands operands(tutti_dtype t, tutti_redop op, size_t n, Random *random);
// A whole number up to 8 in a float of 16 or 8 bits, exactly.
void narrow_number(tutti_dtype t, unsigned value, unsigned char *at);

} // namespace tutti::conformance
