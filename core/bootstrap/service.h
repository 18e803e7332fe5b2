// tutti/core/bootstrap/service.h: the process's one service thread: an epoll loop with tasks and timers. It sleeps while
// nothing happens. It starts at first use and ends with the process; a forked child gets its own and closes what it inherited.
#pragma once
#include "base/fd.h"
#include "base/status.h"
#include "base/time.h"
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unordered_map>
#include <vector>

namespace tutti::boot {

class Hub;

class Service {
public:
  static Service &get();
  Service(const Service &) = delete;
  Service &operator=(const Service &) = delete;

  Hub &hub() { return *hub_; }
  // Runs the task on the service thread, in the order of posting. [any thread]
  void post(std::function<void()> task);
  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  uint64_t pid() const { return static_cast<uint64_t>(pid_); }

  // ---- only on the service thread
  using Ready = std::function<void(uint32_t events)>;
  Status add(int fd, uint32_t events, Ready fn, uint64_t *token);
  void modify(uint64_t token, uint32_t events);
  void remove(uint64_t token);
  uint64_t at(Clock::time_point when, std::function<void()> fn);
  void cancel(uint64_t timer);
  int draining = 0; // connections that wait for their last bytes to be read

  // ---- tutti.host.watch/1 [any thread]
  Status watch(int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg);
  void unwatch(int fd);

private:
  Service();
  static void at_exit();
  static void child_after_fork();
  void stop();
  void run();
  void run_tasks();
  int run_timers(); // milliseconds to the next one, -1 = none
  void dispatch(uint64_t token, uint32_t events);
  // Runs fn, which found no memory if it throws. What it has not done is lost, and nobody knows what that was: every
  // communicator of this process ends and says so, with the memory that was kept for this moment.
  template <class Fn> bool whole(Fn &&fn) noexcept;
  void tell_all() noexcept;

  struct Watch {
    int fd = -1;
    Ready fn;
    bool threw = false;
  };
  struct Outside { // one external watch
    int fd = -1;
    void (*fn)(void *, uint32_t) = nullptr;
    void *arg = nullptr;
  };

  pid_t pid_;
  UniqueFd epoll_, wake_;
  std::unique_ptr<Hub> hub_;
  std::mutex m_; // guards tasks_, stopping_, outside_, running_outside_
  std::condition_variable outside_idle_;
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::unordered_map<uint64_t, Outside> outside_;                                  // by token
  uint64_t running_outside_ = 0;                                                   // token whose function runs now
  std::atomic<uint64_t> next_token_{1};                                            // 0 = the wake-up descriptor
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;                   // service thread
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> timers_; // service thread
  std::unordered_map<uint64_t, Clock::time_point> timer_at_;                       // service thread
  uint64_t next_timer_ = 1;
  std::unique_ptr<std::byte[]> reserve_; // service thread, as the next, once that runs
  bool exhausted_ = false;               // and not all have been told
  std::thread thread_;
};

// A descriptor that a forked child closes at once: a copy in a child would keep a dead parent's connections open. No fork comes
// between its making and the note of it, nor between its end and that of the note.
class TrackedFd {
public:
  TrackedFd() = default;
  TrackedFd(TrackedFd &&) = default;
  TrackedFd &operator=(TrackedFd &&o) noexcept;
  ~TrackedFd() { reset(); }
  static TrackedFd socket(int family, int type);
  static TrackedFd accept(int listener, sockaddr_storage *from); // neither blocks; errno says why there is none
  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();

private:
  UniqueFd fd_;
};

// Raises the soft limit of open files to `need`, or as far as the hard one allows; soft limits of 1024 are common where the
// hard one is far higher. false: nothing was gained.
bool raise_fd_limit(rlim_t need, std::string_view why);
bool more_fds();             // after EMFILE: twice as many
std::string fd_limit_text(); // "1024 (soft limit; hard limit 4096)"

} // namespace tutti::boot
