// tutti/plugins/collnet-aggd/daemon/fold.cc
#include "fold.h"
#include "exec/kernels.h"
#include "wire.h"
#include <algorithm>

namespace tutti::aggd {
namespace {
constexpr size_t block = 4096; // elements: two of them as float32 stay in the first cache
}

Folder::Folder() : sum_(block), next_(block) {}

void Folder::fold(tutti_dtype dtype, tutti_redop op, std::span<const Operand> operands, uint8_t *out, bool wide_out,
                  uint64_t elements) {
  const uint64_t bytes = elements * element_bytes(static_cast<uint8_t>(dtype));
  const bool wide = wide_out || std::any_of(operands.begin(), operands.end(), [](const Operand &o) { return o.wide; });
  if (wide) return fold_wide(dtype, op, operands, out, wide_out, elements);
  if (operands.size() == 1) {
    std::memcpy(out, operands[0].at, bytes);
  } else {
    plain_.clear();
    for (const Operand &o : operands) plain_.push_back(o.at);
    host_reduce_service()->reduce_n(dtype, op, 0)(out, plain_.data(), static_cast<uint32_t>(plain_.size()), bytes);
  }
}

void Folder::fold_wide(tutti_dtype dtype, tutti_redop op, std::span<const Operand> operands, uint8_t *out, bool wide_out,
                       uint64_t elements) {
  const uint32_t element = element_bytes(static_cast<uint8_t>(dtype));
  const tutti_reduce_fn combine = host_reduce_service()->reduce(TUTTI_DT_FLOAT32, op, 0);
  for (uint64_t from = 0; from < elements; from += block) {
    const uint64_t n = std::min<uint64_t>(block, elements - from);
    const auto load = [&](const Operand &o, float *to) {
      if (o.wide)
        std::memcpy(to, o.at + from * 4, n * 4);
      else
        widen(dtype, to, o.at + from * element, n);
    };
    load(operands[0], sum_.data());
    for (size_t i = 1; i < operands.size(); i++) {
      load(operands[i], next_.data());
      combine(sum_.data(), sum_.data(), next_.data(), n * 4);
    }
    if (wide_out)
      std::memcpy(out + from * 4, sum_.data(), n * 4);
    else
      narrow(dtype, out + from * element, sum_.data(), n);
  }
}

void Folder::divide(tutti_dtype dtype, uint8_t *data, uint64_t divisor, uint64_t bytes) {
  host_reduce_service()->divide(dtype)(data, data, divisor, bytes);
}

} // namespace tutti::aggd
