#include "base/status.h"
#include <cstring>

namespace tutti {

std::string Error::line() const {
  std::string out;
  if (rank >= 0) out += fmt::format("rank {}: ", rank);
  out += message;
  if (!endpoint.empty()) out += fmt::format(" ({})", endpoint);
  if (!hint.empty()) out += "; " + hint;
  return out;
}

Status fail_errno(int err, std::string what) {
  Error e;
  e.code = Code::system;
  e.sys_errno = err;
  char buf[128];
  e.message = std::move(what) + ": " + strerror_r(err, buf, sizeof buf);
  return Status(std::move(e));
}

} // namespace tutti
