// tutti/core/exec/kernels/sum.cc: the sum, for all types and forms.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernels/sum.cc"
#include "hwy/foreach_target.h"
//
#include "exec/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
kernels::Fn sum_of(kernels::Form form, tutti_dtype dtype, bool nt) {
  return find<Sum, false>(form, dtype, nt);
}
} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(sum_of);
kernels::Fn kernels::sum(Form form, tutti_dtype dtype, bool nontemporal) {
  return HWY_DYNAMIC_DISPATCH(sum_of)(form, dtype, nontemporal);
}
} // namespace tutti
#endif
