// Calls in words, and as a number that ranks compare.
#include "exec/call.h"
#include "base/types.h"
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

} // namespace tutti
