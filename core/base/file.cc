#include "base/file.h"
#include "base/fd.h"
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>

namespace tutti {
namespace {

// 0 or errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
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
  UniqueFd fd(::open(name.c_str(), O_WRONLY | O_CLOEXEC | (regular ? O_CREAT | O_EXCL : 0), 0666));
  if (!fd) return fail_errno(errno, "cannot write " + path);
  int err = write_all(fd.get(), text);
  if (::close(fd.release()) != 0 && err == 0) err = errno;
  if (err == 0 && regular && ::rename(name.c_str(), path.c_str()) != 0) err = errno;
  if (err == 0) return {};
  if (regular) ::unlink(name.c_str());
  return fail_errno(err, "cannot write " + path);
}

} // namespace tutti
