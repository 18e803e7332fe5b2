// tutti/core/bootstrap/hub.h: what the process shares: its listeners, its members (a rank of a communicator) and its roots, and
// the routing of new connections to them.
#pragma once
#include "bootstrap/conn.h"
#include <deque>
#include <set>

namespace tutti::boot {

class Member;
class Root;

// Who answers questions to this process, in core/ras. [service thread]
class Answerer {
public:
  virtual ~Answerer() = default;
  virtual std::optional<Secret> key_for(const Conn &conn) = 0; // what who asks must know; nothing: it is refused
  virtual void adopt(const Conn::Ptr &conn) = 0;               // it has proved that it does
};

class Hub {
public:
  explicit Hub(Service &service);
  ~Hub();

  const std::array<uint64_t, 2> &process() const { return process_; }

  // Opens listeners unless they are open, and says how this process can be reached. With a rule in socket.ifname they are bound
  // to the addresses that it selects, without one they take connections from everywhere. [any thread]
  Result<Contact> contact(const Config &config);
  // One more TCP listener, for a root whose address is given. [any thread]
  Status listen_at(const Endpoint &endpoint);
  // The same where contact() listens, at this port: for a name that this host resolves to its loopback. [any thread]
  Status listen_at(uint16_t port, const Config &config);
  // How long a handshake waits for the other process: socket.handshake_timeout of the latest communicator or root. A crowded
  // machine may keep a process from its core for many seconds. [any thread]
  Nanos patience() const { return Nanos(patience_.load(std::memory_order_relaxed)); }
  void expect_ranks(int nranks); // so many may connect at the same time [any thread]
  uint64_t listener_fds() const { return listener_fds_.load(std::memory_order_relaxed); }

  // ---- members [any thread]
  bool add(uint64_t comm, int rank, const std::shared_ptr<Member> &member); // false: there is one
  void remove(uint64_t comm, int rank, const Member *member);
  std::shared_ptr<Member> find(uint64_t comm, int rank) const;
  std::vector<std::shared_ptr<Member>> local(uint64_t comm) const;
  // Who has left, and still waits for a lost connection to be restored.
  void add_leaving(uint64_t comm, int rank, const std::shared_ptr<Member> &member);
  void remove_leaving(uint64_t comm, int rank);
  // Members of splits that do not know their rank yet, by their place in the parent.
  void add_child(uint64_t parent, uint64_t split, int parent_rank, const std::shared_ptr<Member> &member);
  void remove_child(uint64_t parent, uint64_t split, int parent_rank);
  std::shared_ptr<Member> find_child(uint64_t parent, uint64_t split, int parent_rank) const;

  std::vector<std::shared_ptr<Member>> members() const; // all of this process
  // Whom questions to this process go to; nullptr: they are refused.
  void set_answerer(std::shared_ptr<Answerer> answerer);

  // ---- roots [service thread]
  void add_root(const std::shared_ptr<Root> &root);
  std::shared_ptr<Root> find_root(uint64_t base) const;
  void remove_root(uint64_t base);
  void close_all();
  void end_all(); // of members and roots: this process has no memory to go on

private:
  struct Listener {
    TrackedFd fd;
    bool is_unix = false;
    uint64_t token = 0;
    bool paused = false;
  };
  Status open_wildcards(const Config &config);
  Result<uint16_t> open_in_range(const Endpoint &at, const Config &config); // listen_m_ held, as in the next
  Result<uint16_t> port_at(const Endpoint &address, const Config &config);
  Status open_unix();
  void serve(TrackedFd fd, bool is_unix);
  void accept_all(const std::shared_ptr<Listener> &l);
  void pause(const std::shared_ptr<Listener> &l);
  void greet(const Conn::Ptr &conn);
  void route(const Conn::Ptr &conn, bool may_park);
  std::shared_ptr<Member> member_for(const Hello &hello) const;
  void route_question(const Conn::Ptr &conn);
  void refuse(const Conn::Ptr &conn, Refusal why);
  void unpark();
  void bound_half_open();
  size_t expected() const;

  Service &service_;
  std::array<uint64_t, 2> process_{};
  std::atomic<uint64_t> listener_fds_{2}; // the loop's own
  std::atomic<int64_t> patience_{30'000'000'000};
  std::atomic<size_t> max_half_open_;

  std::mutex listen_m_; // guards the next three
  bool opened_unix_ = false;
  std::map<std::string, uint16_t> ports_; // by address, port left out
  std::set<std::string> extra_;           // addresses with a listener whose port was given

  mutable std::mutex m_; // guards members_, leaving_, children_ and answerer_
  std::shared_ptr<Answerer> answerer_;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<Member>> members_, leaving_;
  std::map<std::tuple<uint64_t, uint64_t, int>, std::shared_ptr<Member>> children_;

  // service thread
  std::vector<std::shared_ptr<Listener>> listeners_;
  std::map<uint64_t, std::shared_ptr<Root>> roots_;
  std::deque<Conn::Ptr> half_open_;        // handshake not finished
  std::deque<std::weak_ptr<Conn>> parked_; // know whom they want, who has not registered yet
};

// Equal on two processes exactly if they share host and network namespace. Works without /sys and /proc/sys.
uint64_t host_id(const Config &config);
std::string host_name();
std::pair<int, int> port_range(const Config &config); // socket.port_range; {0, 0} = any port

} // namespace tutti::boot
