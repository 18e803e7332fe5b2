// tutti/core/bootstrap/bootstrap.h: how ranks find each other, prove that they belong, exchange small messages out of band, and
// learn that one of them failed. One service thread per process owns every socket here.
#pragma once
#include "base/fd.h"
#include "base/status.h"
#include "base/time.h"
#include "config/config.h"
#include "tutti/plugin/host.h"
#include "tutti/tutti.h"
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

using Bytes = std::vector<std::byte>;

struct Message {
  int from = -1;
  uint64_t tag = 0;
  Bytes data;
  UniqueFd fd; // set when the sender attached one
};

// Message kinds. `tag` below is kind << 56 | number.
enum class MsgKind : uint8_t { internal = 0, user = 1, link = 2, diagnose = 3 };
constexpr uint64_t make_tag(MsgKind kind, uint64_t number) {
  return uint64_t(kind) << 56 | (number & 0x00ff'ffff'ffff'ffffull);
}

// What every rank tells all others when it joins.
struct PeerInfo {
  int rank = -1;
  std::array<uint64_t, 2> process{}; // random per process: equal = same process
  uint64_t host = 0;                 // equal = same host and network namespace: file descriptors can be passed
  int32_t pid = 0;
  std::string hostname;
};

// Ends a join from another thread, now or as soon as it begins. [any thread]
class JoinStop {
public:
  void stop(const Error &why);
  void arm(const std::function<void(const Error &)> &fn); // by join(): what stop() does; {} when it is over

private:
  std::mutex mutex_; // guards the rest
  std::optional<Error> why_;
  std::function<void(const Error &)> fn_;
};

class Bootstrap {
public:
  // Starts a root in this process (owned by the service thread, ends after everybody joined or its deadline) and returns its
  // id.
  static Result<tuttiUniqueId> create_id(const Config &config);
  // Collective: check-in at the root, ring, exchange of PeerInfo. Errors name the ranks that are missing. Of several ids, the
  // same in the same order on all ranks, each root serves its share of the ranks; the first one hears from all others.
  static Result<std::unique_ptr<Bootstrap>> join(std::span<const tuttiUniqueId> ids, int nranks, int rank,
                                                 std::shared_ptr<const Config> config, Deadline deadline,
                                                 JoinStop *stop = nullptr);
  static Result<std::unique_ptr<Bootstrap>> join(const tuttiUniqueId &id, int nranks, int rank,
                                                 std::shared_ptr<const Config> config, Deadline deadline,
                                                 JoinStop *stop = nullptr) {
    return join(std::span(&id, 1), nranks, rank, std::move(config), deadline, stop);
  }
  // Rank, size and id from the environment (tutti run, mpirun via PMIx, TUTTI_RANK + TUTTI_COMM_ID); see launch.h.
  struct Launch {
    int rank = -1, nranks = 0, local_rank = -1, local_size = -1;
    tuttiUniqueId id{};
    std::string source;
  };
  static Result<Launch> launch_from_env(const Config &config, Deadline deadline);

  virtual ~Bootstrap() = default; // says goodbye to neighbours; waits at most 1 s, until sockets have taken it

  virtual int rank() const = 0;
  virtual int nranks() const = 0;
  virtual uint64_t comm_id() const = 0; // the same on all ranks, random
  virtual const PeerInfo &peer(int rank) const = 0;

  // Collectives of the control plane; called by one thread per communicator at a time. Pieces may differ in length.
  virtual Result<std::vector<Bytes>> allgather(std::span<const std::byte> mine, Deadline deadline, std::string_view what) = 0;
  virtual Status barrier(Deadline deadline, std::string_view what) = 0;

  // Tagged messages [any thread]. send() queues and returns (bounded queue); a message to oneself or within the process takes
  // no socket. fd (borrowed, duplicated) needs peer(to).host == peer(rank()).host.
  virtual Status send(int to, uint64_t tag, std::span<const std::byte> data, int fd = -1) = 0;
  // The next message with this tag from this rank; unexpected ones wait in a bounded queue.
  virtual Result<Message> recv(int from, uint64_t tag, Deadline deadline, std::string_view what) = 0;
  // false when there is none yet; never blocks.
  virtual bool try_recv(int from, uint64_t tag, Message *out) = 0;
  // All messages of a kind go to fn instead of the queue, on the service thread (or the sender's, within a process); fn must
  // not block. Queued ones are delivered first. Empty fn: back to the queue; on return the old fn is not running.
  virtual void set_handler(MsgKind kind, std::function<void(Message)> fn) = 0;

  // The derived group of all callers with the same color, ordered by (key, rank); no root. color < 0: takes part, gets nullptr.
  // *all_came, where it is given, becomes true once all ranks have taken part: what fails after that fails in the new group.
  virtual Result<std::unique_ptr<Bootstrap>> split(int color, int key, std::shared_ptr<const Config> config, Deadline deadline,
                                                   bool *all_came = nullptr) = 0;

  // The group of those that call it without the ranks of `excluded`, all with the same list; or, to find out, of those that are
  // left. Also after a failure; see council.h. What is left undone when a member dies meanwhile is done again without it.
  struct Shrink {
    bool find_out = false;
    std::vector<int> excluded; // sorted, without this rank
    std::vector<int> absent;   // out: were there, and did not call
  };
  virtual Result<std::unique_ptr<Bootstrap>> shrink(Shrink *request, std::shared_ptr<const Config> config,
                                                    JoinStop *stop = nullptr) = 0;

  // Failure. The first failure that this rank detects or hears of is kept; it is flooded to all ranks once.
  virtual void report_failure(const Error &error) = 0; // [any thread]
  virtual bool failed() const = 0;                     // [any thread] one relaxed load
  virtual Status failure() const = 0;                  // ok while nothing failed
  // Called once, on the service thread (or report_failure's caller), when failed() turns true.
  virtual void on_failure(std::function<void(const Error &)> fn) = 0;
  // After it a closing neighbour is no failure. Called by finalize once everybody is quiet (after a barrier).
  virtual void expect_close() = 0;

  virtual uint64_t fds() const = 0; // descriptors held now, for accounting
  // "; connection to rank 5 (10.0.0.2) lost 12 s ago, not restored yet: no answer", for waits that expire; "" = none is lost
  // [any]
  virtual std::string lost_connections() const { return ""; }
};

// Runs fn(ready) on the service thread while fd is ready (EPOLLIN/EPOLLOUT bits of tutti.host.watch/1); backs that service.
Status service_watch(int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg);
void service_unwatch(int fd);
const tutti_host_watch_v1 *host_watch_service(); // the table of tutti.host.watch/1; static

} // namespace tutti
