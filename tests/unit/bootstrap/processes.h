// Ranks as forked processes; each reports lines through a pipe.
#pragma once
#include "bootstrap/launch.h"
#include "bootstrap/service.h"
#include "help.h"
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <semaphore>
#include <sys/wait.h>

namespace help {

struct Child {
  pid_t pid = -1;
  UniqueFd out;
  std::string read_line(std::chrono::milliseconds limit = 20s) {
    std::string s;
    const Deadline d = Deadline::in(limit);
    char c;
    while (!d.expired()) {
      pollfd p{out.get(), POLLIN, 0};
      if (poll(&p, 1, d.left_ms()) <= 0) break;
      if (read(out.get(), &c, 1) != 1 || c == '\n') break;
      s += c;
    }
    return s;
  }
};

// What the child's copy of the test's output buffer holds is the parent's to write.
inline void silence() {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(null, STDOUT_FILENO);
}

// The service thread of this process stands still. Whatever it holds at a fork the child would find held for ever: a lock of a
// sanitizer's allocator, which knows nothing of forks, stops the child's own service thread in the middle of joining.
class Still {
public:
  Still() {
    boot::Service::get().post([gate = gate_] {
      gate->reached.release();
      gate->open.acquire();
    });
    gate_->reached.acquire();
  }
  ~Still() { gate_->open.release(); }

private:
  struct Gate {
    std::binary_semaphore reached{0}, open{0};
  };
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(); // the thread leaves it last
};

using Say = std::function<void(const std::string &)>;

inline Child spawn(const std::function<void(const Say &)> &fn) {
  int p[2];
  REQUIRE(pipe2(p, O_CLOEXEC) == 0);
  std::optional<Still> still(std::in_place);
  const pid_t pid = fork();
  if (pid != 0) still.reset();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::close(p[0]);
    signal(SIGTERM, SIG_DFL); // the test framework reports it otherwise
    alarm(50);                // nothing is left if the test dies
    fn([&](const std::string &s) {
      const std::string text = s + "\n";
      if (write(p[1], text.data(), text.size()) < 0) _exit(3);
    });
    silence();
    std::exit(0); // runs the exit handlers: the service thread ends
  }
  ::close(p[1]);
  return Child{pid, UniqueFd(p[0])};
}

inline int reap(Child &c) {
  int status = 0;
  waitpid(c.pid, &status, 0);
  c.pid = -1;
  return status;
}

// n ranks in processes; the root is in this one. same_host false: nothing but TCP is used.
inline std::vector<Child> processes(int n, bool same_host, const std::function<void(Bootstrap &, const Say &)> &fn) {
  auto id = create_job_id(*config());
  REQUIRE(id.ok());
  std::vector<Child> out;
  for (int r = 0; r < n; r++)
    out.push_back(spawn([&, r](const Say &say) {
      auto c = Config::from("", "t", same_host ? Environment{} : Environment{{"TUTTI_HOSTID", "h" + std::to_string(r)}});
      auto b = Bootstrap::join(id.value(), n, r, c.value(), Deadline::in(20s));
      if (!b.ok()) return say("join: " + line(b));
      fn(*b.value(), say);
    }));
  return out;
}

} // namespace help
