// tutti/plugins/proto-pull: protocol "pull". The core lends what lies at its home and reads it there (TUTTI_SIGNAL_DESCRIPTOR);
// kernels stage the rest and reduce, so each form is one of the host's as it stands.
#include "tutti/plugin/cxx/plugin.hpp"

namespace {

using namespace tutti::plugin;

class Pull {
public:
  static constexpr Info info{"proto-pull", "0.1.0", "tutti", "Apache-2.0",
                             "the receiver reads the message in the sender's memory"};
  static constexpr const char *proto_name = "pull";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_DESCRIPTOR, 1, 1, 8, 56};

  explicit Pull(const Host &host) : reduce_(host.need<tutti_host_reduce_v1>(TUTTI_HOST_REDUCE)) {
    if (!TUTTI_HAS(tutti_host_reduce_v1, &reduce_, copy) || !TUTTI_HAS(tutti_host_reduce_v1, &reduce_, reduce_n))
      unsupported(TUTTI_HOST_REDUCE, " of this core lacks the kernels that protocol pull is made of");
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

TUTTI_CXX_PLUGIN(Pull)
