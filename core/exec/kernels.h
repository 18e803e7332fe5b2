// tutti/core/exec/kernels.h: copy and reduction kernels, SIMD chosen at run time (Google Highway). Backs tutti.host.reduce/1.
#pragma once
#include "tutti/plugin/host.h"

namespace tutti {
const tutti_host_reduce_v1 *host_reduce_service();
const char *simd_target(); // "AVX3", "AVX2", ... for `tutti info`
} // namespace tutti
