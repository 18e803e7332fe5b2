// tutti/plugins/collnet-aggd/farewell.cc
#include "farewell.h"
#include <array>
#include <cerrno>

namespace tutti::aggd {

constexpr milliseconds longest{2000};

Farewell::Farewell(Fd fd, std::string words) : fd_(std::move(fd)), words_(std::move(words)), until_(Clock::now() + longest) {}

bool Farewell::over(Clock::time_point now) {
  while (fd_ && said_ < words_.size()) {
    const ssize_t n = ::send(fd_.get(), words_.data() + said_, words_.size() - said_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) return true;
    said_ += static_cast<size_t>(n);
  }
  if (!fd_) return true;
  if (said_ == words_.size() && !std::exchange(said_all_, true)) ::shutdown(fd_.get(), SHUT_WR);
  return drained() || now >= until_;
}

bool Farewell::drained() {
  std::array<char, 64 << 10> drop;
  for (int i = 0; i < 16; i++) {
    const ssize_t n = ::recv(fd_.get(), drop.data(), drop.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EINTR)) return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  return false;
}

} // namespace tutti::aggd
