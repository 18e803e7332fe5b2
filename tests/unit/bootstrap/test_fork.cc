// A process that has a service thread forks: what the child finds of it.
#include "bootstrap/conn.h"
#include "bootstrap/crypto.h"
#include "processes.h"
#include <cstddef>
#include <mutex>
#include <sys/stat.h>
#include <sys/un.h>

using namespace help;

namespace {

// Allocates nothing: it runs in children that were forked at any moment.
int open_sockets() {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++) {
    struct stat st {};
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) n++;
  }
  return n;
}

int sockets_in_child() {
  const pid_t pid = fork();
  if (pid == 0) _exit(open_sockets());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Connects to a process of this host and leaves, again and again.
void knock(uint64_t process) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::string name = boot::unix_listener_name(process);
  std::copy(name.begin(), name.end(), un.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  for (;;) {
    const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<sockaddr *>(&un), length) != 0) return;
  }
}

} // namespace

TEST_CASE("a rank is forked while the service thread of its parent holds no lock") {
  std::mutex lock; // for one that no test can see, such as the allocator's of a sanitizer
  std::binary_semaphore held{0}, forked{0};
  boot::Service::get().post([&] {
    std::lock_guard guard(lock);
    held.release();
    (void)forked.try_acquire_for(300ms); // the fork has to wait for this task: it does not come before
  });
  held.acquire();
  auto child = spawn([&](const Say &say) { say(lock.try_lock() ? "free" : "held"); });
  forked.release();
  CHECK(child.read_line() == "free");
  CHECK(reap(child) == 0);
  std::lock_guard done(lock);
}

TEST_CASE("a child has no copy of a connection that comes or goes while it is forked") {
  const auto id = create_job_id(*config());
  REQUIRE(id.ok());
  int before;
  {
    const Still still;
    before = sockets_in_child();
  }
  auto stranger = spawn([&](const Say &) { knock(boot::decode(id.value()).value().process); });
  int more = 0;
  for (int i = 0; i < 400; i++) more += sockets_in_child() != before;
  CHECK(more == 0);
  kill(stranger.pid, SIGKILL);
  reap(stranger);
  release_id(id.value());
}
