// tutti/core/exec/kernels/max.cc: the maximum, for all types and forms.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernels/max.cc"
#include "hwy/foreach_target.h"
//
#include "exec/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
kernels::Fn max_of(kernels::Form form, tutti_dtype dtype, bool nt) {
  return find<Max, true>(form, dtype, nt);
}
} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(max_of);
kernels::Fn kernels::max(Form form, tutti_dtype dtype, bool nontemporal) {
  return HWY_DYNAMIC_DISPATCH(max_of)(form, dtype, nontemporal);
}
} // namespace tutti
#endif
