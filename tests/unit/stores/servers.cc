#include "servers.h"
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace stores {
namespace {

struct Fd {
  int n;
  ~Fd() {
    if (n >= 0) ::close(n);
  }
};
sockaddr_in loopback(uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}
template <class Fn> void wait_until(const char *what, Process &process, Fn &&fn) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!fn()) {
    if (process.ended()) throw std::runtime_error(fmt::format("{} ended at once", what));
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error(fmt::format("{} does not listen", what));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
// A package of Debian has the server's program under another name, which it goes by when it is called so.
std::string redis_program() {
  const std::string server = find_program("redis-server");
  return server.empty() ? find_program("redis-check-rdb") : server;
}

} // namespace

uint16_t free_port() {
  const Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in a = loopback(0);
  socklen_t n = sizeof a;
  if (::bind(fd.n, reinterpret_cast<sockaddr *>(&a), n) != 0 || ::getsockname(fd.n, reinterpret_cast<sockaddr *>(&a), &n) != 0)
    throw std::runtime_error("no free port");
  return ntohs(a.sin_port);
}

std::string find_program(const std::string &name) {
  const char *path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string file = fmt::format("{}/{}", rest.substr(0, end), name);
    if (::access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return "";
}

void write_file(const std::string &path, const std::string &text, unsigned mode) {
  const Fd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, static_cast<mode_t>(mode))};
  if (fd.n < 0 || ::write(fd.n, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fchmod(fd.n, static_cast<mode_t>(mode)) != 0)
    throw std::runtime_error("cannot write " + path);
}

Process::Process(const std::string &file, const std::vector<std::string> &arguments, const std::string &log) {
  std::vector<char *> argv;
  for (const std::string &a : arguments) argv.push_back(const_cast<char *>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), in = ::open("/dev/null", O_RDONLY);
  ::dup2(in, 0), ::dup2(out, 1), ::dup2(out, 2);
  ::execv(file.c_str(), argv.data());
  ::_exit(127);
}
Process::~Process() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}
void Process::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}
bool Process::ended() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

bool answers(uint16_t port) {
  const Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const sockaddr_in a = loopback(port);
  return ::connect(fd.n, reinterpret_cast<const sockaddr *>(&a), sizeof a) == 0;
}
bool answers(const std::string &socket) {
  const Fd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::strncpy(a.sun_path, socket.c_str(), sizeof(a.sun_path) - 1);
  return ::connect(fd.n, reinterpret_cast<const sockaddr *>(&a), sizeof a) == 0;
}

bool Redis::installed() {
  return !redis_program().empty();
}
Redis::Redis(const std::string &more) : port_(free_port()) {
  write_file((folder_.path / "redis.conf").string(),
             fmt::format("bind 127.0.0.1\nport {}\nunixsocket {}\ndir {}\nrequirepass {}\nsave \"\"\nappendonly no\n{}\n",
                         port_, socket(), folder_.path.string(), kPassword, more));
  start();
}
void Redis::start() {
  process_.emplace(redis_program(), std::vector<std::string>{"redis-server", (folder_.path / "redis.conf").string()},
                   (folder_.path / "log").string());
  wait_until("redis-server", *process_, [&] { return answers(port_) && answers(socket()); });
}
std::string Redis::url() const {
  return fmt::format("redis://:pass%3Aw%2Frd%401@127.0.0.1:{}", port_);
}
std::string Redis::unix_url() const {
  return fmt::format("redis+unix://:pass%3Aw%2Frd%401@{}", socket());
}

bool Etcd::installed() {
  return !find_program("etcd").empty();
}
Etcd::Etcd(const std::vector<std::string> &more, const std::string &scheme) {
  port_ = free_port();
  const std::string client = fmt::format("{}://127.0.0.1:{}", scheme, port_),
                    peer = fmt::format("http://127.0.0.1:{}", free_port());
  std::vector<std::string> arguments = {"etcd",
                                        "--name=test",
                                        fmt::format("--data-dir={}/data", folder_.path.string()),
                                        "--listen-client-urls=" + client,
                                        "--advertise-client-urls=" + client,
                                        "--listen-peer-urls=" + peer,
                                        "--initial-advertise-peer-urls=" + peer,
                                        "--initial-cluster=test=" + peer,
                                        "--unsafe-no-fsync",
                                        "--logger=zap"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  process_.emplace(find_program("etcd"), arguments, (folder_.path / "log").string());
  wait_until("etcd", *process_, [&] { return answers(port_); });
}
std::string Etcd::url() const {
  return fmt::format("etcd://127.0.0.1:{}/test", port_);
}

} // namespace stores
