// tutti/plugins/proto-ll128: protocol "ll128". A line is 128 bytes, two cache lines that hardware fetches as a pair: 120 of
// payload, then the word. Cost: 16/15 bytes per byte, and a look at a word per 120 bytes; a message up to 120 bytes is one
// line. It needs stores that become visible in order over the whole line, or release stores: memory of one host.
#include "kernels.h"
#include "tutti/plugin/cxx/plugin.hpp"

namespace {

using namespace tutti::plugin;

class LL128 {
public:
  static constexpr Info info{"proto-ll128", "0.1.0", "tutti", "Apache-2.0", "every 128-byte line tells that it has arrived"};
  static constexpr const char *proto_name = "ll128";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_IN_DATA, 128, 120, 128, 120};

  explicit LL128(const Host &) {}

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    return tutti::ll128_kernel(form, dtype, op, flags);
  }
};

} // namespace

TUTTI_CXX_PLUGIN(LL128)
