// One thread, one poll loop over a signalfd and the pipes of the ranks. The launcher is the subreaper of the job: what ranks
// leave behind becomes its child and is ended last; if the launcher dies, the kernel ends the ranks.
#include "tools/launch.h"
#include "base/time.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

extern char **environ;

namespace tutti::tools {
namespace {

constexpr size_t kLineLimit = 64 * 1024; // a longer line is passed on in parts

struct Stream { // one pipe from a rank
  UniqueFd fd;
  std::string part; // a line that has not ended yet
  int target = STDOUT_FILENO;
};

struct Child {
  pid_t pid = -1;
  bool running = false;
  int status = 0;
  Stream out, err;
};

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return; // nobody reads: the job's own business goes on
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string signal_text(int number) {
  const char *name = sigabbrev_np(number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

// Children of this process: the adopted ones included.
std::vector<pid_t> children_of_self() {
  std::vector<pid_t> out;
  DIR *proc = opendir("/proc");
  if (!proc) return out;
  while (const dirent *e = readdir(proc)) {
    pid_t pid = 0;
    const char *end = e->d_name + strlen(e->d_name);
    if (std::from_chars(e->d_name, end, pid).ptr != end) continue;
    UniqueFd fd(open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
    char text[1024];
    const ssize_t n = fd ? read(fd.get(), text, sizeof text - 1) : -1;
    if (n <= 0) continue;
    text[n] = 0;
    const char *after_name = strrchr(text, ')'); // the name may hold anything
    pid_t parent = 0;
    if (!after_name || strlen(after_name) < 5) continue;
    std::from_chars(after_name + 4, text + n, parent);
    if (parent == getpid()) out.push_back(pid);
  }
  closedir(proc);
  return out;
}

class Job {
public:
  explicit Job(const LaunchSpec &spec) : spec_(spec), children_(static_cast<size_t>(spec.ranks)) {}
  int run();

private:
  Status prepare();
  Status start(int rank);
  [[noreturn]] void become_rank(int rank, char *const *argv, char *const *env, int report, int out, int err) const;
  void loop();
  void on_signal(const signalfd_siginfo &info);
  void reap();
  void rank_ended(int rank, int status);
  void pump(Stream &s, int rank);
  bool piped(int target) const;
  void put_line(const Stream &s, int rank, std::string_view line);
  bool already_said(int rank, std::string_view line);
  void say_who_else() const;
  void signal_all(int number);
  void stop(int code, double grace);
  void check_deadlines();
  int poll_timeout() const;
  void end_descendants();
  int alive() const;
  std::string alive_text() const;
  template <class... A> void say(fmt::format_string<A...> text, A &&...args) const {
    fmt::print(stderr, "{}: {}\n", spec_.tool, fmt::format(text, std::forward<A>(args)...));
  }

  const LaunchSpec &spec_;
  std::vector<Child> children_;
  UniqueFd signals_, id_file_;
  sigset_t old_mask_{};
  int code_ = 0;
  bool stopping_ = false, one_ended_well_ = false;
  std::optional<Clock::time_point> job_end_, term_at_, kill_at_;
  std::set<pid_t> strangers_; // children that this process had before the job, as after exec from a shell's pipeline
  std::map<std::string, std::set<int>> said_; // an error, without who reports it; the ranks that did
};

Nanos seconds(double s) {
  return Nanos(static_cast<int64_t>(s * 1e9));
}

Status Job::prepare() {
  sigset_t mask;
  sigemptyset(&mask);
  for (int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&mask, s);
  pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
  signal(SIGPIPE, SIG_IGN);
  signals_.reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return fail_errno(errno, "cannot watch signals");
  for (pid_t pid : children_of_self()) strangers_.insert(pid);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  TUTTI_ASSIGN(file, spec_.make_id());
  id_file_ = std::move(file);
  return {};
}

// Runs in the child between fork and exec: only async-signal-safe calls.
void Job::become_rank(int rank, char *const *argv, char *const *env, int report, int out, int err) const {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  if (rank != 0) { // the terminal's input is one rank's
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
  }
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  execvpe(argv[0], argv, env);
  const int problem = errno;
  if (write(report, &problem, sizeof problem) < 0) _exit(kCannotStart);
  _exit(kCannotStart);
}

Status Job::start(int rank) {
  std::vector<std::string> env;
  constexpr std::string_view kOwn[] = {
      "TUTTI_RANK=", "TUTTI_NRANKS=", "TUTTI_LOCAL_RANK=", "TUTTI_LOCAL_SIZE=", "TUTTI_COMM_ID="};
  for (char **e = environ; *e; e++)
    if (std::none_of(std::begin(kOwn), std::end(kOwn), [&](auto name) { return std::string_view(*e).starts_with(name); }))
      env.emplace_back(*e);
  env.push_back(fmt::format("TUTTI_RANK={}", rank));
  env.push_back(fmt::format("TUTTI_NRANKS={}", spec_.ranks));
  env.push_back(fmt::format("TUTTI_LOCAL_RANK={}", rank));
  env.push_back(fmt::format("TUTTI_LOCAL_SIZE={}", spec_.ranks));
  env.push_back(fmt::format("TUTTI_COMM_ID=file:/proc/self/fd/{}", id_file_.get()));
  std::vector<char *> argv, envp;
  for (const auto &a : spec_.argv) argv.push_back(const_cast<char *>(a.c_str()));
  for (auto &e : env) envp.push_back(e.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int report[2], out[2] = {-1, -1}, err[2] = {-1, -1};
  if (pipe2(report, O_CLOEXEC) != 0) return fail_errno(errno, "cannot create a pipe");
  UniqueFd report_in(report[0]), report_out(report[1]);
  if ((piped(STDOUT_FILENO) && pipe2(out, O_CLOEXEC) != 0) || (piped(STDERR_FILENO) && pipe2(err, O_CLOEXEC) != 0))
    return fail_errno(errno, "cannot create a pipe");
  UniqueFd out_end(out[1]), err_end(err[1]);
  Child &child = children_[static_cast<size_t>(rank)];
  child.out.fd.reset(out[0]);
  child.err.fd.reset(err[0]);
  child.err.target = STDERR_FILENO;
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, fmt::format("cannot start rank {}", rank));
  if (pid == 0) become_rank(rank, argv.data(), envp.data(), report_out.get(), out_end.get(), err_end.get());
  child.pid = pid;
  child.running = true;
  report_out.reset();
  int problem = 0; // the pipe closes by itself when exec succeeds
  if (read(report_in.get(), &problem, sizeof problem) == sizeof problem) {
    waitpid(pid, nullptr, 0);
    child.running = false;
    return fail_errno(problem, fmt::format("cannot run \"{}\"", spec_.argv[0]));
  }
  for (const UniqueFd *fd : {&child.out.fd, &child.err.fd})
    if (*fd) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  return {};
}

int Job::alive() const {
  return static_cast<int>(std::count_if(children_.begin(), children_.end(), [](const Child &c) { return c.running; }));
}

std::string Job::alive_text() const {
  std::string out;
  for (size_t r = 0; r < children_.size(); r++)
    if (children_[r].running) out += fmt::format("{}{}", out.empty() ? "" : ", ", r);
  return out;
}

void Job::signal_all(int number) {
  for (const Child &c : children_)
    if (c.running) kill(c.pid, number);
}

// The first reason to stop decides the exit code.
void Job::stop(int code, double grace) {
  if (code_ == 0) code_ = code;
  if (stopping_) return;
  stopping_ = true;
  term_at_ = Clock::now() + seconds(grace);
}

void Job::rank_ended(int rank, int status) {
  children_[static_cast<size_t>(rank)].running = false;
  const int code = exit_code(status);
  if (code == 0) one_ended_well_ = true;
  if (code == 0 || stopping_) return;
  const bool verdict = rank == 0 && code == spec_.quiet_code;
  const auto pid = children_[static_cast<size_t>(rank)].pid;
  if (!verdict) {
    const std::string how = WIFSIGNALED(status) ? fmt::format("was killed by {}", signal_text(WTERMSIG(status)))
                                                : fmt::format("exited with code {}", code);
    const int rest = alive();
    if (spec_.keep_going && WIFSIGNALED(status) && (rest > 0 || one_ended_well_)) {
      say("rank {} (pid {}) {}{}", rank, pid, how, rest ? fmt::format("; the others go on ({})", alive_text()) : "");
      return;
    }
    say("rank {} (pid {}) {}{}", rank, pid, how, rest ? fmt::format("; ending the other ranks ({})", alive_text()) : "");
  }
  stop(code, spec_.grace_s);
}

// Of those that are found ended together, the killed ones came first: the others gave up because of them.
void Job::reap() {
  int status = 0;
  std::vector<std::pair<int, int>> ended; // rank, status
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (size_t r = 0; r < children_.size(); r++)
      if (children_[r].pid == pid && children_[r].running) ended.emplace_back(static_cast<int>(r), status);
  std::stable_partition(ended.begin(), ended.end(), [](const auto &e) { return WIFSIGNALED(e.second); });
  for (const auto &[rank, how] : ended) rank_ended(rank, how);
}

void Job::on_signal(const signalfd_siginfo &info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) return reap();
  // A key press reaches the whole foreground group by itself.
  if (info.ssi_code != SI_KERNEL) signal_all(number);
  if (number == SIGUSR1 || number == SIGUSR2) return;
  if (stopping_) {
    kill_at_ = Clock::now();
    return;
  }
  stop(128 + number, spec_.kill_after_s); // the ranks were told; SIGTERM follows for those that stay
}

void Job::check_deadlines() {
  const auto now = Clock::now();
  if (job_end_ && now >= *job_end_ && !stopping_) {
    say("not finished after {:g} s; still running: {}", spec_.timeout_s, alive_text());
    stop(kTimeoutCode, 0);
  }
  if (term_at_ && now >= *term_at_ && !kill_at_) {
    signal_all(SIGTERM);
    kill_at_ = now + seconds(spec_.kill_after_s);
  }
  if (kill_at_ && now >= *kill_at_ && alive() > 0) {
    say("ranks {} did not end within {:g} s of SIGTERM; killed", alive_text(), spec_.kill_after_s);
    signal_all(SIGKILL);
    kill_at_ = now + seconds(spec_.kill_after_s);
  }
}

int Job::poll_timeout() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](const std::optional<Clock::time_point> &t) {
    if (t && (!next || *t < *next)) next = t;
  };
  if (!stopping_) consider(job_end_);
  if (kill_at_)
    consider(kill_at_);
  else
    consider(term_at_);
  if (!next) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*next - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

// Output passes through the launcher where its lines could break: a program that writes to a file or a pipe writes whole
// buffers. On a terminal it writes whole lines, and may want to know that it is one.
bool Job::piped(int target) const {
  if (spec_.tag_output || (spec_.merge_errors && target == STDERR_FILENO)) return true;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const bool enough = files.rlim_cur > 64 + 2 * children_.size();
  return enough && !isatty(target);
}

// The line may lack its end: the last one of a rank, or a part of a very long one.
void Job::put_line(const Stream &s, int rank, std::string_view line) {
  if (s.target == STDERR_FILENO && spec_.merge_errors && already_said(rank, line)) return;
  if (!spec_.tag_output) return write_all(s.target, line);
  // One write: lines of different ranks never mix.
  write_all(s.target, fmt::format("[{}] {}{}", rank, line, line.ends_with('\n') ? "" : "\n"));
}

// "error: rank 2: TEXT" and "error: rank 0: rank 2 (pid 7 on host) failed: TEXT" say the same.
bool Job::already_said(int rank, std::string_view line) {
  constexpr std::string_view prefix = "error: ", relayed = ") failed: ";
  if (!line.starts_with(prefix)) return false;
  line.remove_prefix(prefix.size());
  if (const size_t colon = line.find(": "); line.starts_with("rank ") && colon != line.npos) line.remove_prefix(colon + 2);
  if (const size_t at = line.find(relayed); line.starts_with("rank ") && at != line.npos)
    line.remove_prefix(at + relayed.size());
  auto &ranks = said_[std::string(line)];
  ranks.insert(rank);
  return ranks.size() > 1;
}

void Job::say_who_else() const {
  std::set<int> others;
  for (const auto &[text, ranks] : said_)
    if (ranks.size() > 1) others.insert(ranks.begin(), ranks.end());
  if (!others.empty()) say("ranks {} say the same", fmt::join(others, ", "));
}

void Job::pump(Stream &s, int rank) {
  char text[16384];
  while (s.fd) {
    const ssize_t n = read(s.fd.get(), text, sizeof text);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      s.fd.reset();
      if (!s.part.empty()) put_line(s, rank, s.part);
      s.part.clear();
      return;
    }
    s.part.append(text, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = s.part.find('\n', begin)) != std::string::npos; begin = end + 1)
      put_line(s, rank, std::string_view(s.part).substr(begin, end + 1 - begin));
    s.part.erase(0, begin);
    if (s.part.size() > kLineLimit) put_line(s, rank, s.part), s.part.clear();
  }
}

void Job::loop() {
  while (alive() > 0) {
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    std::vector<std::pair<Stream *, int>> streams;
    for (size_t r = 0; r < children_.size(); r++)
      for (Stream *s : {&children_[r].out, &children_[r].err})
        if (s->fd) fds.push_back({s->fd.get(), POLLIN, 0}), streams.emplace_back(s, static_cast<int>(r));
    poll(fds.data(), fds.size(), poll_timeout());
    for (size_t i = 0; i < streams.size(); i++)
      if (fds[i + 1].revents) pump(*streams[i].first, streams[i].second);
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) on_signal(info);
    check_deadlines();
  }
}

void Job::end_descendants() {
  // Ending one hands its children to us, hence the rounds.
  for (int round = 0; round < 100; round++) {
    auto left = children_of_self();
    std::erase_if(left, [this](pid_t pid) { return strangers_.contains(pid); });
    if (left.empty()) return;
    for (pid_t pid : left) kill(pid, SIGKILL);
    for (pid_t pid : left) waitpid(pid, nullptr, 0);
  }
}

int Job::run() {
  Status ready = prepare();
  for (int r = 0; ready.ok() && r < spec_.ranks; r++) {
    ready = start(r);
    if (!ready.ok()) signal_all(SIGKILL);
  }
  if (!ready.ok()) {
    say("{}", ready.error().line());
    for (const Child &c : children_)
      if (c.running) waitpid(c.pid, nullptr, 0);
    end_descendants();
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    return ready.error().sys_errno != 0 ? kCannotStart : 2;
  }
  if (spec_.timeout_s > 0) job_end_ = Clock::now() + seconds(spec_.timeout_s);
  loop();
  end_descendants();
  for (size_t r = 0; r < children_.size(); r++)
    for (Stream *s : {&children_[r].out, &children_[r].err}) pump(*s, static_cast<int>(r));
  say_who_else();
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  return code_;
}

} // namespace

int launch(const LaunchSpec &spec) {
  return Job(spec).run();
}

} // namespace tutti::tools
