// tutti/plugins/proto-ll128: protocol "ll128". A line is 128 bytes, two cache lines that hardware fetches as a pair: 120 of
// payload, then the word. Cost: 16/15 bytes per byte, and a look at a word per 120 bytes; a message up to 120 bytes is one
// line. It needs lines that arrive whole or whose stores become visible in order: memory of one host.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ll128.cc"
#include "hwy/foreach_target.h"
//
#include "tutti/plugin/cxx/simd/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::plugin::HWY_NAMESPACE {
namespace {

tutti_kernel kernel_of(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  return line_kernel<WordLast<128>>(form, dtype, op, flags);
}

} // namespace
} // namespace tutti::plugin::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tutti/plugin/cxx/plugin.hpp"

namespace tutti::plugin {
namespace {

HWY_EXPORT(kernel_of);

class LL128 {
public:
  static constexpr Info info{"proto-ll128", "0.1.0", "tutti", "Apache-2.0", "every 128-byte line tells that it has arrived"};
  static constexpr const char *proto_name = "ll128";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_IN_DATA, 128, 120, 128, 120};

  explicit LL128(const Host &) {}

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    return HWY_DYNAMIC_DISPATCH(kernel_of)(form, dtype, op, flags);
  }
};

} // namespace
} // namespace tutti::plugin

TUTTI_CXX_PLUGIN(tutti::plugin::LL128)
#endif
