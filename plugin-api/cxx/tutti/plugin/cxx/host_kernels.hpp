// tutti/plugin/cxx/host_kernels.hpp: base of protocols whose payload is plain bytes: each form is one of the host's kernels as
// it stands. The derived class names itself and its signal.
#pragma once
#include "tutti/plugin/cxx/plugin.hpp"

namespace tutti::plugin {

class HostKernels {
public:
  // Throws UNSUPPORTED, naming the protocol, where the core is too old for it. host must outlive this object.
  HostKernels(const Host &host, const char *protocol) : reduce_(host.need<tutti_host_reduce_v1>(TUTTI_HOST_REDUCE)) {
    if (!TUTTI_HAS(tutti_host_reduce_v1, &reduce_, copy) || !TUTTI_HAS(tutti_host_reduce_v1, &reduce_, reduce_n))
      unsupported(TUTTI_HOST_REDUCE, " of this core lacks the kernels that protocol ", protocol, " is made of");
  }

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    switch (form) {
    case TUTTI_FORM_ENCODE:
      return as_kernel(reduce_.copy(flags & ~uint32_t{TUTTI_KERNEL_NONTEMPORAL})); // slots stay in the caches
    case TUTTI_FORM_DECODE:
      return as_kernel(reduce_.copy(flags));
    case TUTTI_FORM_DECODE_REDUCE:
      return as_kernel(reduce_.reduce(dtype, op, flags));
    case TUTTI_FORM_DECODE_REDUCE_ENCODE:
      return as_kernel(reduce_.reduce2(dtype, op, flags));
    case TUTTI_FORM_REDUCE_N:
      return as_kernel(reduce_.reduce_n(dtype, op, flags));
    default:
      return nullptr;
    }
  }

private:
  const tutti_host_reduce_v1 &reduce_;
};

} // namespace tutti::plugin
