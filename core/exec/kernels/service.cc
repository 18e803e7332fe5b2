// tutti/core/exec/kernels/service.cc: the table of tutti.host.reduce/1.
#include "exec/kernels.h"
#include "exec/kernels/lookup.h"

namespace tutti {
namespace {

using kernels::Form;
constexpr uint32_t known_flags = TUTTI_KERNEL_NONTEMPORAL;

template <class Kernel> Kernel find(Form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
  if (flags & ~known_flags) return nullptr;
  const bool nt = flags & TUTTI_KERNEL_NONTEMPORAL;
  switch (op) {
  case TUTTI_RED_SUM:
    return reinterpret_cast<Kernel>(kernels::sum(form, dtype, nt));
  case TUTTI_RED_PROD:
    return reinterpret_cast<Kernel>(kernels::prod(form, dtype, nt));
  case TUTTI_RED_MAX:
    return reinterpret_cast<Kernel>(kernels::max(form, dtype, nt));
  case TUTTI_RED_MIN:
    return reinterpret_cast<Kernel>(kernels::min(form, dtype, nt));
  default:
    return nullptr;
  }
}

tutti_copy_fn copy(uint32_t flags) noexcept {
  return flags & ~known_flags ? nullptr : kernels::copy(flags & TUTTI_KERNEL_NONTEMPORAL);
}
tutti_reduce_fn reduce(tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
  return find<tutti_reduce_fn>(Form::reduce, dtype, op, flags);
}
tutti_reduce2_fn reduce2(tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
  return find<tutti_reduce2_fn>(Form::reduce2, dtype, op, flags);
}
tutti_reduce_n_fn reduce_n(tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
  return find<tutti_reduce_n_fn>(Form::reduce_n, dtype, op, flags);
}
tutti_scale_fn scale(tutti_dtype dtype) noexcept {
  return kernels::scale(dtype);
}
tutti_divide_fn divide(tutti_dtype dtype) noexcept {
  return kernels::divide(dtype);
}

constexpr tutti_host_reduce_v1 service = {sizeof(tutti_host_reduce_v1), 0, copy, reduce, reduce2, reduce_n, scale, divide};

} // namespace

const tutti_host_reduce_v1 *host_reduce_service() {
  return &service;
}
const char *simd_target() {
  return kernels::target_name();
}

} // namespace tutti
