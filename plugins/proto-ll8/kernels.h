// tutti/plugins/proto-ll8/kernels.h: the kernels for this CPU's best SIMD target; nullptr for what is not known.
#pragma once
#include "tutti/plugin/proto.h"

namespace tutti {
tutti_kernel ll8_kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags);
}
