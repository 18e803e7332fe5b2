#include "daemon.h"
#include "admin.h"
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace collnet {
namespace {

std::string read(const std::string &path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

std::string Folder::key(const std::string &name, const std::string &bytes) const {
  std::string path = file(name);
  if (::access(path.c_str(), F_OK) == 0) return path;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("cannot write " + path);
  ::close(fd);
  return path;
}

Daemon::Daemon(const Folder &folder, std::string name, std::string more, const Daemon *parent, std::string key,
               std::string host)
    : folder_(folder), name_(std::move(name)), more_(std::move(more)), key_(key.empty() ? folder.key() : std::move(key)),
      parent_(parent ? parent->address() : ""), host_(std::move(host)) {
  start();
}

Daemon::~Daemon() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Daemon::start(const std::function<void()> &in_child) {
  const std::string config = folder_.file(name_ + ".toml"), log_file = folder_.file(name_ + ".log");
  std::ofstream(config) << "[aggd]\nlisten = [\"" << host_ << ":" << port_ << "\"]\nkey_file = \"" << key_ << "\"\nadmin = \""
                        << folder_.file(name_ + ".sock") << "\"\nparent = \"" << parent_ << "\"\n"
                        << more_;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fd, 2);
    ::dup2(fd, 1);
    if (in_child) in_child();
    ::execl(TUTTI_AGGD, TUTTI_AGGD, "--config", config.c_str(), nullptr);
    ::_exit(127);
  }
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end; pause()) {
    const bool answers = !status().is_null(); // its log then has all its addresses
    const std::string said = log();
    const std::string words = "listening at ";
    for (size_t at = said.find(words); at != std::string::npos; at = said.find(words, at + 1)) {
      const size_t end_of_line = said.find('\n', at);
      if (end_of_line == std::string::npos) break;
      const int port = std::atoi(said.c_str() + said.find(':', at) + 1);
      (said.substr(at, end_of_line - at).ends_with("for metrics") ? metrics_ : port_) = port;
    }
    if (answers) {
      at_start_ = memory_kib();
      return;
    }
    int how = 0;
    if (::waitpid(pid_, &how, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error("tutti-aggd ended: " + log());
    }
  }
  throw std::runtime_error("tutti-aggd does not listen: " + log());
}

void Daemon::pause() {
  std::this_thread::sleep_for(milliseconds(5));
}

void Daemon::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int Daemon::wait(milliseconds limit) {
  for (const auto end = Clock::now() + limit; pid_ > 0; pause()) {
    int how = 0;
    if (::waitpid(pid_, &how, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    }
    if (Clock::now() >= end) return -1;
  }
  return 0;
}

void Daemon::restart(const std::function<void()> &in_child) {
  if (pid_ > 0) throw std::runtime_error("it still runs");
  start(in_child);
}

nlohmann::json Daemon::status() const {
  auto text = tutti::aggd::ask_status(folder_.file(name_ + ".sock"));
  return text.ok() ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
}

std::string Daemon::command(const std::vector<std::string> &args) const {
  std::string line = "--config " + folder_.file(name_ + ".toml");
  for (const std::string &a : args) line += " " + a;
  return output_of(line);
}

std::string Daemon::output_of(const std::string &args) {
  FILE *pipe = ::popen(("timeout 20 " + std::string(TUTTI_AGGD) + " " + args + " 2>&1").c_str(), "r");
  std::string out;
  char buffer[4096];
  for (size_t n; pipe && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  if (pipe) ::pclose(pipe);
  return out;
}

std::string Daemon::log() const {
  return read(folder_.file(name_ + ".log"));
}

uint64_t Daemon::memory_kib() const {
  const std::string text = read("/proc/" + std::to_string(pid_) + "/smaps_rollup");
  uint64_t sum = 0;
  for (const char *what : {"\nPss_Anon:", "\nPss_Shmem:"}) // not its code, which other processes share or not
    if (const size_t at = text.find(what); at != std::string::npos)
      sum += std::strtoull(text.c_str() + at + std::strlen(what), nullptr, 10);
  return sum;
}

bool Daemon::within(uint64_t limit_kib) const {
#ifdef __SANITIZE_ADDRESS__
  const uint64_t own = 96 << 10; // what was freed is kept for a while, and every byte has a shadow
#else
  const uint64_t own = 1 << 10; // connections, members, buffers of a call, the heap's spare
#endif
  const uint64_t now = memory_kib();
  if (now > at_start_ + limit_kib + own)
    std::fprintf(stderr, "the daemon has %llu KiB, and %llu when it started\n", static_cast<unsigned long long>(now),
                 static_cast<unsigned long long>(at_start_));
  return now <= at_start_ + limit_kib + own;
}

} // namespace collnet
