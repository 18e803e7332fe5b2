// tutti/plugins/proto-ll8: protocol "ll8", low latency for memory that delivers no more than 8 bytes whole and those in any
// order, as links of devices may. Half of each 8-byte word is payload, the other half its flag: the sequence. Words come in
// lines of 128 bytes: the core's word first, 14 words with 56 bytes of payload, one word free. Cost: 16/7 bytes per byte and a
// look at a flag per 4 bytes. On a host "ll" does the same with half of the lines; this one is for devices. Where stores are
// ordered the core's word of a line comes last and is never the same twice. Where they are not, a flag repeats after 2^32
// messages: such a device has to clear lines that have not been written for so long.
#include "kernels.h"
#include "tutti/plugin/cxx/plugin.hpp"

namespace {

using namespace tutti::plugin;

class LL8 {
public:
  static constexpr Info info{"proto-ll8", "0.1.0", "tutti", "Apache-2.0", "every 8-byte word tells that it has arrived"};
  static constexpr const char *proto_name = "ll8";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_IN_DATA, 128, 56, 8, 0};

  explicit LL8(const Host &) {}

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    return tutti::ll8_kernel(form, dtype, op, flags);
  }
};

} // namespace

TUTTI_CXX_PLUGIN(LL8)
