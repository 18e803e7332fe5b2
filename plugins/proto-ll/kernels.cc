// tutti/plugins/proto-ll/kernels.cc: the kernels of 64-byte lines, once per SIMD target.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cc"
#include "hwy/foreach_target.h"
//
#include "tutti/plugin/cxx/simd/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
tutti_kernel ll_kernel_of(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return line_kernel<WordLast<64>>(form, dtype, op, flags);
}
} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels.h"
namespace tutti {
HWY_EXPORT(ll_kernel_of);
tutti_kernel ll_kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return HWY_DYNAMIC_DISPATCH(ll_kernel_of)(form, dtype, op, flags);
}
} // namespace tutti
#endif
