// Calls in words, and as a number that ranks compare.
#include "exec/call.h"
#include "base/types.h"
#include "exec/bound.h"
#include <fmt/format.h>
#include <string_view>

namespace tutti {

std::string describe(const CallInfo &c) {
  std::string what;
  if (c.coll == TUTTI_COLL_BARRIER || c.coll == TUTTI_COLL_SEND_RECV) {
    what = "";
  } else {
    what = fmt::format("{} {}", c.count, dtype_name(c.dtype));
    constexpr std::string_view kOps[] = {"sum", "prod", "max", "min", "avg", "premul_sum"};
    if (coll_reduces(c.coll)) what += fmt::format(" {}", c.op < std::size(kOps) ? kOps[c.op] : "?");
    if (coll_has_root(c.coll)) what += fmt::format(" root {}", c.root);
    if (c.table) what += fmt::format(" in blocks {:08x}", static_cast<uint32_t>(c.table >> 32));
  }
  const std::string name = fmt::format("{}{} #{}", coll_name(c.coll), c.table ? "_v" : "", c.number);
  return fmt::format("{}{}{}", name, what.empty() ? "" : " (" + what + ")", c.tag ? fmt::format(" [{}]", c.tag) : "");
}

uint32_t call_signature(const CallInfo &c) {
  if (c.coll == TUTTI_COLL_SEND_RECV) return mix32(TUTTI_COLL_SEND_RECV) | 1u; // ranks may group them differently
  const uint64_t head = uint64_t(c.coll) << 48 | uint64_t(c.dtype) << 40 | uint64_t(c.op & 0xff) << 32 | uint32_t(c.root);
  return mix32((head ^ (c.count + 0x1234'5678'9abcull) * 0xd6e8'feb8'6659'fd93ull) + c.table) | 1u;
}

} // namespace tutti
