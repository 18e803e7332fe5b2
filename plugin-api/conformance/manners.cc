#include "manners.h"
#include "base/time.h"
#include "bootstrap/bootstrap.h"
#include "plugin/services.h"
#include <algorithm>
#include <atomic>
#include <clocale>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>
#include <pthread.h>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tutti::conformance {
namespace {

std::atomic<uint64_t> g_forks{0};

std::map<int, std::string> open_files() {
  std::map<int, std::string> out;
  std::error_code ec;
  std::vector<int> fds;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd", ec))
    fds.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int fd : fds) { // the one of the walk itself is gone by now
    const auto target = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), ec);
    if (!ec) out[fd] = target.string();
  }
  return out;
}

bool same_handler(const struct sigaction &a, const struct sigaction &b) {
  return a.sa_handler == b.sa_handler && (a.sa_flags & SA_SIGINFO) == (b.sa_flags & SA_SIGINFO);
}

} // namespace

ProcessState ProcessState::now() {
  static const bool counting = ::pthread_atfork([] { g_forks++; }, nullptr, nullptr) == 0;
  (void)counting;
  ProcessState s;
  std::error_code ec;
  s.folder_ = std::filesystem::current_path(ec).string();
  s.locale_ = std::setlocale(LC_ALL, nullptr);
  ::umask(s.umask_ = ::umask(0));
  for (char **e = environ; e && *e; e++) s.environment_.emplace_back(*e);
  std::sort(s.environment_.begin(), s.environment_.end());
  for (int sig = 1; sig < 65; sig++) ::sigaction(sig, nullptr, &s.handlers_[static_cast<size_t>(sig)]);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &s.blocked_);
  s.files_ = open_files();
  s.forks_ = g_forks;
  siginfo_t info{};
  s.children_ = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  return s;
}

void ProcessState::compare(const ProcessState &before, const std::string &who, const Complain &complain) const {
  const auto say = [&](const char *rule, const std::string &what, const char *todo) {
    complain(rule, fmt::format("{} {}", who, what), todo);
  };
  constexpr const char *kNotIts = "the process is not the plugin's: leave it as it was found";
  for (int sig = 1; sig < 65; sig++)
    if (const auto i = static_cast<size_t>(sig); !same_handler(handlers_[i], before.handlers_[i]))
      say("P-PROC-01", fmt::format("changed what happens on signal {} ({})", sig, ::strsignal(sig)), kNotIts);
  if (std::memcmp(&blocked_, &before.blocked_, sizeof blocked_) != 0)
    say("P-PROC-01", "changed which signals its caller's thread blocks", kNotIts);
  if (locale_ != before.locale_)
    say("P-PROC-02", fmt::format("changed the locale from \"{}\" to \"{}\"", before.locale_, locale_),
        "use newlocale() and uselocale()");
  if (folder_ != before.folder_)
    say("P-PROC-03", fmt::format("changed the working directory from {} to {}", before.folder_, folder_), "use openat()");
  if (umask_ != before.umask_)
    say("P-PROC-03", fmt::format("changed the umask from {:03o} to {:03o}", before.umask_, umask_), "use fchmod()");
  if (environment_ != before.environment_)
    say("P-PROC-04", "changed the environment",
        "options belong in the option table; other threads may be reading the environment");
  if (forks_ != before.forks_) say("P-PROC-05", "forks", "a process with threads and devices cannot be copied safely");
  if (children_ && !before.children_) say("P-PROC-05", "left a child process", kNotIts);
  for (const auto &[fd, target] : before.files_)
    if (const auto it = files_.find(fd); it == files_.end() || it->second != target)
      say("P-PROC-06", fmt::format("closed descriptor {} ({}), which is not its own", fd, target),
          "a descriptor is closed once, by whoever opened it");
}

// ---- the host

namespace {

struct Use {
  Plugin *plugin = nullptr;
  const void *(*given)(const tutti_host *, const char *) = nullptr;
  std::atomic<bool> closed{false};
  std::atomic<uint64_t> late{0};                 // calls after close()
  std::atomic<int64_t> second{0};                // of the steady clock
  std::atomic<uint64_t> lines{0}, most_lines{0}; // of that second, of any
  uint64_t memory = 0;                           // that others held before
  std::mutex mutex;                              // guards the next
  std::set<int32_t> watched;
  std::map<int, std::string> files;
} *g_use = nullptr; // of the plugin of this process

void called() {
  if (g_use->closed) g_use->late++;
}
template <class Table> const Table *below(const tutti_host *host, const char *id) {
  return static_cast<const Table *>(g_use->given(host, id));
}

int32_t log_enabled(const tutti_host *host, tutti_log_level level) noexcept {
  called();
  return below<tutti_host_diag_v1>(host, TUTTI_HOST_DIAG)->log_enabled(host, level);
}
void log_line(const tutti_host *host, tutti_log_level level, const char *text) noexcept {
  called();
  const auto *diag = below<tutti_host_diag_v1>(host, TUTTI_HOST_DIAG);
  if (!diag->log_enabled(host, level)) return;
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
  if (g_use->second.exchange(now) != now) g_use->lines = 0;
  const uint64_t n = ++g_use->lines;
  if (n > g_use->most_lines) g_use->most_lines = n;
  diag->log(host, level, text);
}
void set_error(const tutti_host *host, tutti_status code, const char *text) noexcept {
  called();
  below<tutti_host_diag_v1>(host, TUTTI_HOST_DIAG)->set_error(host, code, text);
}
const tutti_host_diag_v1 kDiag = {sizeof(tutti_host_diag_v1), 0, log_enabled, log_line, set_error};

tutti_status add_watch(const tutti_host *host, int32_t fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg) noexcept {
  called();
  const tutti_status s = below<tutti_host_watch_v1>(host, TUTTI_HOST_WATCH)->add(host, fd, events, fn, arg);
  const std::lock_guard lock(g_use->mutex);
  if (s == TUTTI_OK) g_use->watched.insert(fd);
  return s;
}
void remove_watch(const tutti_host *host, int32_t fd) noexcept {
  called();
  below<tutti_host_watch_v1>(host, TUTTI_HOST_WATCH)->remove(host, fd);
  const std::lock_guard lock(g_use->mutex);
  g_use->watched.erase(fd);
}
const tutti_host_watch_v1 kWatch = {sizeof(tutti_host_watch_v1), 0, add_watch, remove_watch};

const void *get_iface(const tutti_host *host, const char *id) noexcept {
  called();
  const void *given = g_use->given(host, id);
  if (!given) return nullptr;
  if (std::strcmp(id, TUTTI_HOST_DIAG) == 0) return &kDiag;
  if (std::strcmp(id, TUTTI_HOST_WATCH) == 0) return &kWatch;
  return given;
}

} // namespace

void WatchedHost::attach(Plugin *plugin) {
  constexpr int kStrangers = 16; // descriptors in the way of who closes by number
  static bool opened = false;
  if (!std::exchange(opened, true))
    for (int i = 0; i < kStrangers; i++) (void)::open("/dev/null", O_RDONLY | O_CLOEXEC);
  service_unwatch(-1); // its thread and descriptors are the core's, and there from now on
  g_use = new Use;     // threads of a plugin may call until the process ends
  g_use->plugin = plugin;
  g_use->given = plugin->host.get_iface;
  g_use->memory = plugin_memory_in_use();
  g_use->files = open_files();
  plugin->host.get_iface = get_iface;
}

void WatchedHost::after_close(const Complain &complain, size_t threads) {
  Use &use = *g_use;
  use.closed = true;
  if (const uint64_t held = plugin_memory_in_use() - use.memory; held != 0)
    complain("P-HOST-01", fmt::format("holds {} bytes of the host's memory after close()", held),
             "release() all of it before close() returns");
  {
    const std::lock_guard lock(use.mutex);
    if (!use.watched.empty())
      complain("P-HOST-02", fmt::format("watches descriptor {} after close()", fmt::join(use.watched, ", ")),
               "remove() each before close() returns: its function would be called");
  }
  std::vector<std::string> left;
  for (const auto &[fd, target] : open_files())
    if (const auto it = use.files.find(fd); it == use.files.end()) left.push_back(fmt::format("{} ({})", fd, target));
  if (!left.empty())
    complain("P-HOST-03", fmt::format("left descriptor {} open after close()", fmt::join(left, ", ")), "close what was opened");
  if (const size_t now = threads_at_rest(threads); now > threads)
    complain("P-HOST-04", fmt::format("left {} threads running after close()", now - threads),
             "join them before close() returns");
  if (const uint64_t late = use.late)
    complain("P-HOST-05", fmt::format("called the host {} times after close()", late),
             "after close() the host is as gone as the plugin");
}

void WatchedHost::check_log(const Complain &complain) {
  if (!g_use || g_use->most_lines <= LogBudget::kLinesPerSecond) return;
  complain("P-HOST-06", fmt::format("wrote {} lines in a second", g_use->most_lines.load()),
           fmt::format("a plugin may write {} in a second, the rest is dropped", LogBudget::kLinesPerSecond));
}

pid_t own_fork() {
  const pid_t child = ::fork();
  g_forks--;
  return child;
}

size_t threads_now() {
  size_t n = 0;
  std::error_code ec;
  for (std::filesystem::directory_iterator it("/proc/self/task", ec), end; !ec && it != end; it.increment(ec)) n++;
  return n;
}

size_t threads_at_rest(size_t expected) {
  const Deadline limit = Deadline::in(std::chrono::milliseconds(500));
  while (threads_now() > expected && !limit.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return threads_now();
}

} // namespace tutti::conformance
