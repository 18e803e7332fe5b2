// tutti/plugins/collnet-aggd/daemon/admin.cc
#include "admin.h"
#include "base/time.h"
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/file.h>
#include <sys/un.h>
#include <thread>

namespace tutti::aggd {
namespace {

constexpr int kBacklog = 16;
constexpr milliseconds kPause{20}; // before what was refused for the moment is tried again
constexpr const char *kHint = "[aggd] admin names a socket in a folder that the daemon may write to; \"\": none";
std::string hint_for(int err) { // not every error is about the path
  return err == EMFILE || err == ENFILE || err == ENOMEM ? "" : kHint;
}

Result<sockaddr_un> address_of(const std::string &path) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof out.sun_path)
    return fail(Code::invalid_argument, "\"{}\" is no path of a socket", path);
  std::memcpy(out.sun_path, path.data(), path.size());
  return out;
}

// 0: there is a connection; else errno. A listener whose backlog is full gives EAGAIN, at once.
int try_connect(const Fd &fd, const sockaddr_un &to) {
  return ::connect(fd.get(), reinterpret_cast<const sockaddr *>(&to), sizeof to) == 0 ? 0 : errno;
}
Fd new_socket() {
  return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Of the folder: two daemons that begin at the same time look, remove and make one after the other.
Result<Fd> lock_folder(const std::string &folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail(Code::system, "admin: cannot open the folder {}", folder).sys(errno).hint(hint_for(errno));
  for (const Deadline end = Deadline::in(std::chrono::seconds(2)); ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(Code::system, "admin: cannot lock {}", folder).sys(errno);
    if (end.expired()) return fail(Code::timeout, "admin: another process has locked the folder {} for 2 s", folder);
    std::this_thread::sleep_for(kPause);
  }
  return fd;
}

std::string folder_of(const std::string &path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

// Nothing is there, or a socket.
Status look_at(const std::string &path, bool *there) {
  struct stat facts {};
  *there = ::lstat(path.c_str(), &facts) == 0;
  if (!*there && errno != ENOENT) return fail(Code::system, "admin: cannot look at {}", path).sys(errno).hint(hint_for(errno));
  if (*there && !S_ISSOCK(facts.st_mode))
    return fail(Code::invalid_usage, "admin: {} is there and is no socket; it stays as it is", path).hint(kHint);
  return {};
}

// Nothing is there, or a socket that nobody listens at, which is removed.
Status make_room(const std::string &path, const sockaddr_un &address) {
  bool there = false;
  if (Status s = look_at(path, &there); !s.ok() || !there) return s;
  const Fd fd = new_socket();
  if (!fd) return fail(Code::system, "admin: no socket").sys(errno);
  const int err = try_connect(fd, address);
  if (err == ECONNREFUSED) return ::unlink(path.c_str()), Status();
  if (err == 0 || err == EAGAIN)
    return fail(Code::invalid_usage, "admin: {}: a running daemon answers there", path)
        .hint("give each daemon its own [aggd] admin");
  return fail(Code::system, "admin: {} is somebody else's", path).sys(err).hint(hint_for(err));
}

} // namespace

Status AdminSocket::check(const std::string &path) {
  if (const auto address = address_of(path); !address.ok()) return address.status();
  const std::string folder = folder_of(path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return fail(Code::system, "admin: cannot make {}", path).sys(errno).hint(hint_for(errno));
  bool there = false; // a daemon that runs is no mistake
  return look_at(path, &there);
}

Result<Fd> AdminSocket::listen(const std::string &path) {
  TUTTI_ASSIGN(address, address_of(path));
  TUTTI_ASSIGN(lock, lock_folder(folder_of(path)));
  TUTTI_TRY(make_room(path, address));
  Fd fd = new_socket();
  if (!fd) return fail(Code::system, "admin: no socket for {}", path).sys(errno);
  const mode_t before = ::umask(0177);
  const int err = ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0 ? 0 : errno;
  ::umask(before);
  if (err != 0) return fail(Code::system, "admin: cannot make the socket {}", path).sys(err).hint(hint_for(err));
  if (::lstat(path.c_str(), &made_) == 0) path_ = path;
  if (::listen(fd.get(), kBacklog) != 0) return fail(Code::system, "admin: cannot listen at {}", path).sys(errno);
  return fd;
}

AdminSocket::~AdminSocket() {
  if (path_.empty()) return;
  const auto lock = lock_folder(folder_of(path_)); // without it the look below is as good as it gets
  struct stat now {};
  const auto same = [&] { // numbers of inodes are used again
    return now.st_dev == made_.st_dev && now.st_ino == made_.st_ino && now.st_ctim.tv_sec == made_.st_ctim.tv_sec &&
           now.st_ctim.tv_nsec == made_.st_ctim.tv_nsec;
  };
  if (::lstat(path_.c_str(), &now) == 0 && same()) ::unlink(path_.c_str());
}

Result<std::string> ask_status(const std::string &path, milliseconds limit) {
  TUTTI_ASSIGN(address, address_of(path));
  const Deadline deadline = Deadline::in(limit);
  const auto late = [&](const char *what) {
    return fail(Code::timeout, "{}: the daemon {} for {} ms: it is stopped, or overloaded", path, what, limit.count());
  };
  Fd fd;
  for (int err = EAGAIN; err != 0;) {
    fd = new_socket();
    if (!fd) return fail(Code::system, "{}: no socket", path).sys(errno);
    if (err = try_connect(fd, address); err == 0) break;
    if (err != EAGAIN && err != EINTR)
      return fail(Code::system, "{}: no daemon answers", path)
          .sys(err)
          .hint("--config names the daemon's file, --socket its [aggd] admin");
    if (deadline.expired()) return late("takes no question");
    std::this_thread::sleep_for(kPause);
  }
  if (::send(fd.get(), "status\n", 7, MSG_NOSIGNAL) != 7)
    return fail(Code::system, "{}: the daemon does not listen", path).sys(errno);
  std::string out;
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd p{fd.get(), POLLIN, 0};
    if (::poll(&p, 1, deadline.left_ms()) <= 0) return late("says nothing");
    const ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) break;
    out.append(buffer.data(), static_cast<size_t>(n));
  }
  if (out.empty()) return fail(Code::invalid_usage, "{}: the daemon answers only its own user and root", path);
  return out;
}

} // namespace tutti::aggd
