// tutti/plugins/proto-simple: protocol "simple". The slot's word is the signal (TUTTI_SIGNAL_COUNTER), so each form is one
// of the host's kernels as it stands.
#include "tutti/plugin/cxx/plugin.hpp"

namespace {

using namespace tutti::plugin;

class Simple {
public:
  static constexpr Info info{"proto-simple", "0.1.0", "tutti", "Apache-2.0",
                             "one word per slot tells that its payload has arrived"};
  static constexpr const char *proto_name = "simple";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_COUNTER, 1, 1, 8, 56};

  explicit Simple(const Host &host) : reduce_(host.need<tutti_host_reduce_v1>(TUTTI_HOST_REDUCE)) {
    if (!TUTTI_HAS(tutti_host_reduce_v1, &reduce_, copy) || !TUTTI_HAS(tutti_host_reduce_v1, &reduce_, reduce_n))
      unsupported(TUTTI_HOST_REDUCE, " of this core lacks the kernels that protocol simple is made of");
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

} // namespace

TUTTI_CXX_PLUGIN(Simple)
