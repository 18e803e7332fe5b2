// Method. A pipe or a terminal is opened once more for each line, through /proc, as a description of its own that does not
// block: O_NONBLOCK on the one that is shared would hold for all who share it, and a copy that is kept would hold a pipe open
// that the application has closed. A socket is sent to without waiting. Where neither works, room is asked for first and pieces
// are short enough to fit into it.
#include "log/output.h"
#include "base/fd.h"
#include "base/pipe_signal.h"
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::log {
namespace {

using Clock = std::chrono::steady_clock;

class Descriptor {
public:
  explicit Descriptor(int fd) : fd_(fd) {
    struct stat facts {};
    if (::fstat(fd, &facts) != 0) return;
    file_ = S_ISREG(facts.st_mode);
    socket_ = S_ISSOCK(facts.st_mode);
    if (!file_ && !socket_)
      own_.reset(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
  // As far as it goes without waiting; < 0 with EAGAIN: not at all.
  ssize_t write(std::string_view bytes) const {
    if (socket_) return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (own_) return ::write(own_.get(), bytes.data(), bytes.size());
    if (!file_ && !room(0)) return errno = EAGAIN, -1;
    return ::write(fd_, bytes.data(), file_ ? bytes.size() : std::min<size_t>(bytes.size(), PIPE_BUF));
  }
  bool room(int within_ms) const {
    pollfd p{own_ ? own_.get() : fd_, POLLOUT, 0};
    return ::poll(&p, 1, within_ms) > 0;
  }

private:
  const int fd_;
  bool file_ = false, socket_ = false;
  UniqueFd own_;
};

} // namespace

bool Output::put(std::string_view bytes) {
  const Descriptor out(fd_);
  const auto end = Clock::now() + (lost_ > 0 ? std::chrono::milliseconds(0) : patience_);
  const size_t all = bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = out.write(bytes);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (n == 0 || errno != EAGAIN || left <= 0) break;
    (void)out.room(static_cast<int>(std::min<int64_t>(left, 50))); // not all that have room for little say so
  }
  if (bytes.size() < all) torn_ = !bytes.empty();
  return bytes.empty();
}

void Output::write(std::string_view line) {
  const NoPipeSignal quiet;
  const std::string more = lost_ == 0 ? "" : fmt::format(" ({} lines before it are lost: nobody read the log)", lost_);
  if (put(fmt::format("{}{}{}\n", torn_ ? "\n" : "", line, more)))
    lost_ = 0;
  else
    lost_++;
}

bool may_block(const std::string &path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
}

} // namespace tutti::log
