// tutti/core/exec/kernels/min.cc: the minimum, for all types and forms.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernels/min.cc"
#include "hwy/foreach_target.h"
//
#include "exec/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
kernels::Fn min_of(kernels::Form form, tutti_dtype dtype, bool nt) {
  return find<Min, true>(form, dtype, nt);
}
} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(min_of);
kernels::Fn kernels::min(Form form, tutti_dtype dtype, bool nontemporal) {
  return HWY_DYNAMIC_DISPATCH(min_of)(form, dtype, nontemporal);
}
} // namespace tutti
#endif
