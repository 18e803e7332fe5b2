#include "tools/doctor/host.h"
#include "base/fd.h"
#include "bootstrap/helper.h"
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::doctor {
namespace {

std::optional<Space> space_of(const char *path) {
  struct statvfs s {};
  if (statvfs(path, &s) != 0) return std::nullopt;
  Space out;
  out.total = uint64_t{s.f_blocks} * s.f_frsize;
  out.free = uint64_t{s.f_bavail} * s.f_frsize;
  out.files = s.f_files;
  out.free_files = s.f_favail;
  out.read_only = s.f_flag & ST_RDONLY;
  return out;
}

// The exit status of a child; it is killed when it has not ended by the deadline, and -1 then.
int status_of(pid_t child, Deadline deadline) {
  const UniqueFd end(static_cast<int>(syscall(SYS_pidfd_open, child, 0u)));
  pollfd p{end.get(), POLLIN, 0};
  const bool late = end && poll(&p, 1, deadline.left_ms()) <= 0;
  if (late || !end) kill(child, SIGKILL);
  int status = 0;
  return waitpid(child, &status, 0) == child && !late && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A child reads a word of this process, which it did not start: as one rank of a job reads another's memory.
int try_process_vm_readv() {
  static const uint64_t word = 0x7475747469;
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    uint64_t copy = 0;
    const iovec to{&copy, sizeof copy}, from{const_cast<uint64_t *>(&word), sizeof word};
    const ssize_t n = process_vm_readv(parent, &to, 1, &from, 1, 0);
    _exit(n == ssize_t{sizeof word} && copy == word ? 0 : errno & 0xff);
  }
  const int status = status_of(child, Deadline::in(std::chrono::seconds(5)));
  return status < 0 ? EPERM : status;
}

int errno_of(int fd) { // of a call that opened a descriptor
  const int err = fd < 0 ? errno : 0;
  const UniqueFd closed(fd);
  return err;
}

std::map<std::string, int> try_calls() {
  std::map<std::string, int> out;
  out["memfd_create"] = errno_of(memfd_create("tutti-doctor", MFD_CLOEXEC));
  out["epoll_create1"] = errno_of(epoll_create1(EPOLL_CLOEXEC));
  sigset_t none;
  sigemptyset(&none);
  out["signalfd"] = errno_of(signalfd(-1, &none, SFD_CLOEXEC));
  out["unix_socket"] = errno_of(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  out["tcp_socket"] = errno_of(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  cpu_set_t cpus;
  out["sched_getaffinity"] = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? 0 : errno;
  // Default policy for no memory at all: allowed or not, nothing changes.
  out["mbind"] = syscall(SYS_mbind, nullptr, 0ul, 0, nullptr, 0ul, 0u) == 0 ? 0 : errno;
  out["process_vm_readv"] = try_process_vm_readv();
  return out;
}

std::string address_text(const sockaddr *address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

Names look_up(const std::string &own) {
  Names out;
  out.own = own;
  const auto start = Clock::now();
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int rc = getaddrinfo(own.c_str(), nullptr, &hints, &list); rc != 0) {
    out.forward_error = gai_strerror(rc);
  } else {
    for (const addrinfo *a = list; a; a = a->ai_next) out.forward.push_back(address_text(a->ai_addr, a->ai_addrlen));
    char name[NI_MAXHOST] = "";
    if (list && !out.forward.front().starts_with("127.") &&
        getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof name, nullptr, 0, NI_NAMEREQD) == 0)
      out.reverse = name;
    freeaddrinfo(list);
  }
  out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return out;
}

Names gather_names(Deadline deadline) {
  char own[256] = "";
  if (gethostname(own, sizeof own - 1) != 0) return {};
  const std::string name = own;
  auto found = boot::within<Names>(deadline, [name] { return look_up(name); });
  if (found) return *found;
  Names out;
  out.own = name;
  out.forward_error = "no answer in time";
  out.seconds = std::chrono::duration<double>(deadline.span()).count();
  return out;
}

// What a program prints, if it ends well by the deadline. nullopt: it cannot be started, or says no.
std::optional<std::string> output_of(const std::vector<const char *> &command, Deadline deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  std::vector<char *> argv;
  for (const char *word : command) argv.push_back(const_cast<char *>(word));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(out.get(), STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  out.reset();
  constexpr size_t kMost = 1 << 20;
  std::string text;
  bool whole = false;
  pollfd p{in.get(), POLLIN, 0};
  while (text.size() < kMost && poll(&p, 1, deadline.left_ms()) > 0) {
    char buffer[8192];
    const ssize_t n = read(in.get(), buffer, sizeof buffer);
    if (n <= 0) {
      whole = n == 0;
      break;
    }
    text.append(buffer, static_cast<size_t>(n));
  }
  if (!whole) kill(child, SIGKILL);
  if (status_of(child, deadline) != 0 || !whole) return std::nullopt;
  return text;
}

void gather_firewall(Host &host, Deadline deadline) {
  if (!host.root) {
    host.firewall_problem = "only root may read them (sudo tutti doctor)";
    return;
  }
  bool any = false;
  for (const auto &[name, command] :
       {std::pair<const char *, std::vector<const char *>>{"nft list ruleset", {"nft", "list", "ruleset"}},
        {"iptables-save", {"iptables-save"}}}) {
    const auto text = output_of(command, deadline);
    if (!text) continue;
    any = true;
    if (trimmed(*text).empty()) continue;
    host.firewall = *text;
    host.firewall_from = name;
    return;
  }
  if (!any) host.firewall_problem = "neither nft nor iptables-save can be run";
}

} // namespace

Host gather_host(std::shared_ptr<const Config> config, Deadline deadline) {
  Host out;
  out.config = std::move(config);
  out.interfaces = netif::list();
  out.shm = space_of("/dev/shm");
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) out.usable_cpus = CPU_COUNT(&cpus);
  out.root = geteuid() == 0;
  out.calls = try_calls();
  timex time{};
  if (const int state = adjtimex(&time); state >= 0)
    out.clock_synchronised = state != TIME_ERROR && !(time.status & STA_UNSYNC);
  if (const char *gpus = std::getenv("CUDA_VISIBLE_DEVICES"))
    for (std::string_view rest = gpus; !rest.empty();) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      if (const std::string name = trimmed(one); !name.empty()) out.visible_gpus.push_back(name);
    }
  gather_firewall(out, deadline);
  out.names = gather_names(deadline); // last: it may take all of the time
  return out;
}

} // namespace tutti::doctor
