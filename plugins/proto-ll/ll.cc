// tutti/plugins/proto-ll: protocol "ll", low latency for host memory. A line is 64 bytes, what caches move: 56 of payload, then
// the word. The reader finds data and signal in one cache line and starts on a message when its first line is there, while the
// writer still fills the next one. Cost: 8/7 bytes per byte, and a look at a word per 56 bytes; a message up to 56 bytes is one
// line, as with "simple". It needs lines that arrive whole or whose stores become visible in order: memory of one host.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ll.cc"
#include "hwy/foreach_target.h"
//
#include "tutti/plugin/cxx/simd/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::plugin::HWY_NAMESPACE {
namespace {

tutti_kernel kernel_of(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return line_kernel<WordLast<64>>(form, dtype, op, flags);
}

} // namespace
} // namespace tutti::plugin::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tutti/plugin/cxx/plugin.hpp"

namespace tutti::plugin {
namespace {

HWY_EXPORT(kernel_of);

class LL {
public:
  static constexpr Info info{"proto-ll", "0.1.0", "tutti", "Apache-2.0", "every 64-byte line tells that it has arrived"};
  static constexpr const char *proto_name = "ll";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_IN_DATA, 64, 56, 64, 56};

  explicit LL(const Host &) {}

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    return HWY_DYNAMIC_DISPATCH(kernel_of)(form, dtype, op, flags);
  }
};

} // namespace
} // namespace tutti::plugin

TUTTI_CXX_PLUGIN(tutti::plugin::LL)
#endif
