#include "isolated.h"
#include "base/fd.h"
#include "base/time.h"
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

constexpr size_t kMaxHeard = 1u << 20; // a plugin in trouble may repeat itself

std::string clean(std::string s) {
  for (char &c : s)
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  return s;
}

constexpr int kAway = 500;          // a descriptor
constexpr int kDeafened = 77;       // exit status: the child cannot say anything any more
const Speaker *g_speaker = nullptr; // of the child

std::string exception_text() {
  try {
    throw;
  } catch (const std::exception &e) {
    return e.what();
  } catch (...) {
    return "of a type of its own";
  }
}

[[noreturn]] void say_exception() {
  if (std::current_exception()) g_speaker->say('!', exception_text());
  if (std::current_exception()) ::_exit(0);
  ::abort();
}

[[noreturn]] void be_child(int fd, const std::function<void(const Speaker &)> &fn, std::chrono::seconds limit) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const struct rlimit no_core = {0, 0}, cpu = {static_cast<rlim_t>(limit.count()) + 5, static_cast<rlim_t>(limit.count()) + 10};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::setrlimit(RLIMIT_CPU, &cpu);
  for (int sig : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTERM}) ::signal(sig, SIG_DFL);
  // Away from where a plugin that closes descriptors by number would find it.
  const int away = ::fcntl(fd, F_DUPFD_CLOEXEC, kAway);
  static Speaker speaker(away < 0 ? fd : away);
  std::set_terminate(say_exception); // of functions that promise not to throw, and are taken at their word
  g_speaker = &speaker;
  try {
    fn(speaker);
    speaker.end();
  } catch (...) {
    speaker.say('!', exception_text());
  }
  ::_exit(0);
}

std::vector<Said> parse(const std::string &heard) {
  std::vector<Said> out;
  for (size_t at = 0; at < heard.size();) {
    const size_t end = heard.find('\n', at);
    if (end == std::string::npos) break; // a line cut off by a crash
    const std::string line = heard.substr(at, end - at);
    at = end + 1;
    if (line.size() < 2) continue;
    Said s{line[0], "", "", ""};
    std::string *field[] = {&s.a, &s.b, &s.c};
    for (size_t f = 0, p = 2; f < 3; f++) {
      const size_t tab = line.find('\t', p);
      *field[f] = line.substr(p, tab - p);
      if (tab == std::string::npos) break;
      p = tab + 1;
    }
    out.push_back(std::move(s));
  }
  return out;
}

// Until the pipe closes, the child ends, or the deadline.
bool listen(int fd, pid_t child, const Deadline &deadline, std::string *heard, int *status) {
  bool ended = false;
  while (!deadline.expired()) {
    struct pollfd p = {fd, POLLIN, 0};
    const int ready = ::poll(&p, 1, std::min(deadline.left_ms(), 50));
    char buffer[4096];
    const ssize_t n = ready > 0 ? ::read(fd, buffer, sizeof(buffer)) : -1;
    if (n > 0 && heard->size() < kMaxHeard) heard->append(buffer, static_cast<size_t>(n));
    if (n > 0) continue;
    if (ended) return true; // ended before, and nothing is left to read
    ended = ::waitpid(child, status, WNOHANG) == child;
  }
  return ended;
}

} // namespace

void Speaker::say(char kind, const std::string &a, const std::string &b, const std::string &c) const {
  const std::string line = fmt::format("{}\t{}\t{}\t{}\n", kind, clean(a), clean(b), clean(c));
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EBADF) ::_exit(kDeafened);
    if (n < 0 && errno != EINTR) return; // the parent gave up
    if (n > 0) done += static_cast<size_t>(n);
  }
}

void Speaker::end() const {
  say('.', "end");
  ::_exit(0); // no destructors: the plugin's may be what is broken
}

Outcome run_isolated(const std::function<void(const Speaker &)> &fn, std::chrono::seconds limit) {
  Outcome out;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    out.how = fmt::format("pipe: {}", std::strerror(errno));
    return out;
  }
  UniqueFd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    out.how = fmt::format("fork: {}", std::strerror(errno));
    return out;
  }
  if (child == 0) be_child(to.get(), fn, limit);
  ::setpgid(child, child);
  to.reset();
  std::string heard;
  int status = 0;
  const bool ended = listen(from.get(), child, Deadline::in(limit), &heard, &status);
  ::kill(-child, SIGKILL);
  if (!ended) ::waitpid(child, &status, 0);
  out.said = parse(heard);
  const bool complete = !out.said.empty() && (out.said.back().kind == '.' || out.said.back().kind == '!');
  if (!ended) {
    out.end = Outcome::End::timed_out;
    out.how = fmt::format("did not return within {} s", limit.count());
  } else if (WIFSIGNALED(status)) {
    out.end = Outcome::End::crashed;
    out.how = fmt::format("crashed: signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  } else if (!complete && WEXITSTATUS(status) == kDeafened) {
    out.end = Outcome::End::crashed;
    out.how = "closed descriptors that are not its own, the one that the checker listens to among them";
  } else if (!complete) {
    out.end = Outcome::End::crashed;
    out.how = fmt::format("ended the process with exit status {}", WEXITSTATUS(status));
  } else {
    out.end = Outcome::End::returned;
  }
  return out;
}

} // namespace tutti
