// Protocols that break one rule: SIGNAL, LINE, PAYLOAD and STORE say of what shape, REDUCE what is wrong with the reduction.
#include <cstring>
#include <tutti/plugin/cxx/plugin.hpp>

namespace {

using namespace tutti::plugin;

#ifdef REDUCE
void copy(void *dst, const void *src, uint64_t bytes) noexcept {
  std::memcpy(dst, src, bytes);
}
// dst is written before b is read: right but where dst is b.
void reduce(void *dst, const void *a, const void *b, uint64_t bytes) noexcept {
  std::memmove(dst, a, bytes);
  for (uint64_t i = 0; i < bytes; i++)
    static_cast<uint8_t *>(dst)[i] = static_cast<uint8_t>(static_cast<uint8_t *>(dst)[i] + static_cast<const uint8_t *>(b)[i]);
}
tutti_kernel kernel_of(tutti_form form, tutti_dtype dtype, tutti_redop op) {
  if (form == TUTTI_FORM_ENCODE || form == TUTTI_FORM_DECODE) return reinterpret_cast<tutti_kernel>(copy);
  const bool offered = form == TUTTI_FORM_DECODE_REDUCE && dtype == TUTTI_DT_UINT8 && op == TUTTI_RED_SUM;
  return offered ? reinterpret_cast<tutti_kernel>(reduce) : nullptr;
}
#else
void encode(void *, const void *, uint64_t, uint64_t) noexcept {}
tutti_kernel kernel_of(tutti_form form, tutti_dtype, tutti_redop) { // only asked for: the shape is refused first
  return form == TUTTI_FORM_ENCODE || form == TUTTI_FORM_DECODE ? reinterpret_cast<tutti_kernel>(encode) : nullptr;
}
#endif

class BadProto {
public:
  static constexpr Info info{"bad-proto", "1.0.0", "tests", "Apache-2.0", "breaks a rule of protocols"};
  static constexpr const char *proto_name = "bad";
  static constexpr ProtoShape proto_shape{SIGNAL, LINE, PAYLOAD, STORE, 56};

  explicit BadProto(const Host &) {}

  tutti_kernel kernel(tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) const {
    return flags ? nullptr : kernel_of(form, dtype, op);
  }
};

} // namespace

TUTTI_CXX_PLUGIN(BadProto)
