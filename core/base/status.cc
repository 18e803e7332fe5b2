#include "base/status.h"
#include <cstring>

namespace tutti {

std::string Error::line() const {
  std::string out;
  if (rank >= 0) out += fmt::format("rank {}: ", rank);
  out += message;
  if (!endpoint.empty() && message.find(endpoint) == message.npos) out += fmt::format(" ({})", endpoint);
  if (!hint.empty()) out += "; " + hint;
  return out;
}

Status &&Status::sys(int err) && {
  char buf[128];
  error_->sys_errno = err;
  error_->message += std::string(": ") + strerror_r(err, buf, sizeof buf);
  return std::move(*this);
}

Status fail_errno(int err, std::string what) {
  return fail(Code::system, "{}", what).sys(err);
}

} // namespace tutti
