#include "base/file.h"
#include "base/fd.h"
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

namespace tutti {
namespace {

constexpr int kPatience = 5000; // ms, for the other end of a pipe

// 0 or errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd wait{fd, POLLOUT, 0};
      if (::poll(&wait, 1, kPatience) == 0) return ETIMEDOUT;
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

Result<std::string> read_file(const std::string &path, size_t most) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, "cannot read " + path);
  if (S_ISDIR(st.st_mode)) return fail_errno(EISDIR, "cannot read " + path);
  std::string text;
  for (char part[1 << 16];;) {
    const ssize_t n = ::read(fd.get(), part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd wait{fd.get(), POLLIN, 0};
      if (::poll(&wait, 1, kPatience) == 0)
        return fail(Code::system, "cannot read {}: nothing came through it for {} s", path, kPatience / 1000);
      continue;
    }
    if (n < 0) return fail_errno(errno, "cannot read " + path);
    if (n == 0) return text;
    text.append(part, static_cast<size_t>(n));
    if (text.size() > most) return fail(Code::invalid_argument, "cannot read {}: longer than {} bytes", path, most);
  }
}

} // namespace tutti
