#include "ras/neighbours.h"
#include "base/file.h"
#include "bootstrap/conn.h"
#include "bootstrap/crypto.h"
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace tutti::ras {
namespace {

constexpr size_t kMostStat = 4096;
constexpr size_t kMostKnownHere = 1u << 16;

Look look_of(const ProcessStat &stat, int64_t pid, int64_t uid) {
  Look l;
  l.pid = pid;
  l.uid = uid;
  l.cpu_ns = stat.cpu_ns;
  l.seen = stat.state == 'T' || stat.state == 't'                        ? Look::Seen::stopped
           : stat.state == 'Z' || stat.state == 'X' || stat.state == 'x' ? Look::Seen::zombie
                                                                         : Look::Seen::running;
  return l;
}

} // namespace

// pid (name) state ppid ...: the name may hold anything, so the fields are counted from its last bracket.
std::optional<ProcessStat> parse_stat(std::string_view text) {
  const size_t name = text.rfind(')');
  if (name == std::string_view::npos || name + 2 >= text.size()) return {};
  std::vector<std::string_view> fields; // from the third on
  for (size_t at = name + 2; at < text.size() && fields.size() < 40;) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    fields.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  const auto number = [&](size_t field) { // as proc(5) counts
    uint64_t v = 0;
    if (field - 3 < fields.size())
      std::from_chars(fields[field - 3].data(), fields[field - 3].data() + fields[field - 3].size(), v);
    return v;
  };
  if (fields.size() < 22 || fields[0].size() != 1) return {};
  ProcessStat s;
  s.state = fields[0][0];
  const auto tick = static_cast<uint64_t>(std::max(1l, ::sysconf(_SC_CLK_TCK)));
  s.cpu_ns = static_cast<int64_t>((number(14) + number(15)) * (1'000'000'000 / tick));
  s.threads = number(20);
  s.start = number(22);
  s.rss = number(24) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return s;
}

std::optional<ProcessStat> read_stat(int64_t pid, const std::string &proc) {
  const auto text = read_file(fmt::format("{}/{}/stat", proc, pid), kMostStat);
  return text.ok() ? parse_stat(*text) : std::nullopt;
}

Look Neighbours::meet(uint64_t process, Known *who) {
  Look l;
  const boot::TrackedFd fd = boot::TrackedFd::socket(AF_UNIX, SOCK_STREAM);
  if (!fd) return l;
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::string name = boot::unix_listener_name(process);
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&un), length) != 0) {
    if (errno == ECONNREFUSED) l.seen = Look::Seen::gone;
    return l;
  }
  ucred cred{};
  socklen_t n = sizeof cred;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0 || cred.pid <= 0) return l; // of another namespace
  // Not without a word: it would be taken for a stranger.
  boot::Hello hello;
  hello.from = 0;
  hello.to = boot::kAskRank;
  const Bytes words = boot::encode(hello);
  [[maybe_unused]] const ssize_t sent = ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const auto stat = read_stat(cred.pid);
  l.pid = cred.pid;
  l.uid = static_cast<int64_t>(cred.uid);
  if (!stat) return l;
  *who = {cred.pid, l.uid, stat->start};
  return look_of(*stat, cred.pid, l.uid);
}

Look Neighbours::look(uint64_t process) {
  if (known_.size() > kMostKnownHere) known_.clear();
  const auto at = known_.find(process);
  if (at != known_.end()) {
    const auto stat = read_stat(at->second.pid);
    if (stat && stat->start == at->second.start) return look_of(*stat, at->second.pid, at->second.uid);
    Look l;
    l.seen = Look::Seen::gone;
    l.pid = at->second.pid;
    l.uid = at->second.uid;
    return l;
  }
  Known who;
  const Look l = meet(process, &who);
  if (who.pid) known_[process] = who;
  return l;
}

} // namespace tutti::ras
