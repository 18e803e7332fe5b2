#include "base/file.h"
#include "base/fd.h"
#include "base/pipe_signal.h"
#include "base/time.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

namespace tutti {
namespace {

constexpr auto kPatience = std::chrono::seconds(5); // for the other end of a pipe to do something
constexpr auto kInAll = std::chrono::seconds(30);   // to do all of it

// False: it has done nothing for too long.
bool await_other_end(int fd, short events, const Deadline &end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(std::min<Nanos>(kPatience, end.left()));
  pollfd wait{fd, events, 0};
  return left.count() > 0 && ::poll(&wait, 1, static_cast<int>(left.count())) != 0;
}

// 0 or errno.
int write_all(int fd, std::string_view text) {
  const NoPipeSignal quiet;
  const Deadline end = Deadline::in(kInAll);
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (!await_other_end(fd, POLLOUT, end)) return ETIMEDOUT;
      continue;
    }
    if (n <= 0) return n < 0 ? errno : EIO;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

} // namespace

Status replace_file(const std::string &path, std::string_view text) {
  static std::atomic<unsigned> number{0};
  struct stat st {};
  const bool regular = ::stat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode);
  const std::string name = regular ? fmt::format("{}.{}.{}.tmp", path, ::getpid(), number++) : path;
  UniqueFd fd(::open(name.c_str(), O_WRONLY | O_CLOEXEC | (regular ? O_CREAT | O_EXCL : O_NONBLOCK), 0644));
  if (!fd) return fail_errno(errno, "cannot write " + path);
  int err = write_all(fd.get(), text);
  if (::close(fd.release()) != 0 && err == 0) err = errno;
  if (err == 0 && regular && ::rename(name.c_str(), path.c_str()) != 0) err = errno;
  if (err == 0) return {};
  if (regular) ::unlink(name.c_str());
  return fail_errno(err, "cannot write " + path);
}

int read_rest(int fd, size_t most, std::string *text) {
  const Deadline end = Deadline::in(kInAll);
  for (char part[1 << 16];;) {
    const ssize_t n = ::read(fd, part, sizeof part);
    if (n == 0) return 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (!await_other_end(fd, POLLIN, end)) return ETIMEDOUT;
      continue;
    }
    if (n < 0) return errno;
    text->append(part, static_cast<size_t>(n));
    if (text->size() > most) return EFBIG;
  }
}

Result<std::string> read_file(const std::string &path, size_t most) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, "cannot read " + path);
  if (S_ISDIR(st.st_mode)) return fail_errno(EISDIR, "cannot read " + path);
  std::string text;
  const int err = read_rest(fd.get(), most, &text);
  if (err == EFBIG) return fail(Code::invalid_argument, "cannot read {}: longer than {} bytes", path, most);
  if (err == ETIMEDOUT)
    return fail(Code::system, "cannot read {}: nothing came through it for {} s, or no end in {} s", path, kPatience.count(),
                kInAll.count());
  if (err) return fail_errno(err, "cannot read " + path);
  return text;
}

} // namespace tutti
