// tutti/core/bootstrap/member.h: one rank of one communicator: its connections to other ranks, its mailbox, the allgather
// around the ring, and what it knows about failures. Shared by the handle (Bootstrap), the hub and tasks of the service thread.
#pragma once
#include "bootstrap/council.h"
#include "bootstrap/dialer.h"
#include "bootstrap/hub.h"
#include "bootstrap/root.h"
#include <deque>
#include <future>

namespace tutti::boot {

class Member : public std::enable_shared_from_this<Member> {
public:
  Member(Service &service, const Identity &identity, std::shared_ptr<const Config> config);
  void ask_under(const Identity &asking) { asking_ = asking; } // as the parent's, or by the job's secret; before it joins

  // ---- set-up, by the caller's thread
  Status join(std::span<const UniqueId> ids, int nranks, int rank, Deadline deadline);
  Result<std::shared_ptr<Member>> split(int color, int key, std::shared_ptr<const Config> config, Deadline deadline,
                                        bool *all_came);
  Result<std::shared_ptr<Member>> shrink(Bootstrap::Shrink *request, const std::shared_ptr<const Config> &config,
                                         JoinStop *stop);
  void close(); // the handle's end; waits a moment, so that sockets take the goodbye, and for no peer

  // ---- what Bootstrap offers; see there
  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  uint64_t comm() const { return identity_.comm; }
  const PeerInfo &peer(int rank) const { return infos_[static_cast<size_t>(rank)]; }
  Result<std::vector<Bytes>> allgather(std::span<const std::byte> mine, Deadline deadline, std::string_view what);
  Status send(int to, uint64_t tag, std::span<const std::byte> data, int fd);
  Result<Message> recv(int from, uint64_t tag, Deadline deadline, std::string_view what);
  bool try_recv(int from, uint64_t tag, Message *out);
  void set_handler(MsgKind kind, std::function<void(Message)> fn);
  void report_failure(const Error &error);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  Status failure() const;
  void on_failure(std::function<void(const Error &)> fn);
  void expect_close();
  uint64_t fds() const;

  // ---- for core/ras [any]
  const Identity &asking() const { return asking_; } // of questions between processes: known to all ranks
  std::vector<Contact> contacts() const;             // of all ranks, as far as they are known
  std::vector<int> gone() const;                     // ranks that have left
  std::string joining() const;                       // what a rank that has not joined waits for; "" = it has
  struct Reconnecting {                              // a connection that is lost and not restored yet
    int rank = -1;
    std::string address;
    Clock::time_point since;
    uint64_t attempts = 0; // in vain
    std::string why, last; // why it was lost; how the latest attempt ended
    bool warned = false;
    std::string text() const;
  };
  std::vector<Reconnecting> reconnecting() const;
  std::string outage_note() const; // Bootstrap::lost_connections()

  // ---- for the hub and other members
  const Secret &key() const { return identity_.key; }
  void adopt(const Conn::Ptr &conn);            // an authenticated connection from another rank [service thread]
  void deliver(Message message);                // [any]
  void fail(Error error, bool relayed = false); // relayed: heard from others, already in words for everybody [any]

private:
  friend class Council;
  using Piece = std::shared_ptr<const Bytes>;
  enum Direction { up = 0, down = 1 }; // to rank + 1, to rank - 1
  struct Gather {
    std::vector<Piece> pieces;
    int count = 0;
  };
  struct Waiting { // a frame for a connection that is being made
    FrameType type;
    uint64_t tag;
    Bytes data;
    UniqueFd fd;
  };
  struct Kept { // a frame that the other end has not said to have come
    FrameType type;
    uint64_t tag;
    Bytes data;
  };
  struct Link { // to one rank of another process [service thread]
    std::vector<Conn::Ptr> conns;
    Conn::Ptr tx; // all frames go over one connection: they stay in order
    std::deque<Waiting> waiting;
    std::shared_ptr<Dialer> dialer;
    Clock::time_point dial_until{};
    bool gone = false; // said goodbye
    bool was_up = false;

    // ---- over TCP, see member_resume.cc
    Conn::Ptr live, candidate;             // the one in use; one that was dialled and whose other end has not taken it yet
    bool numbered = false;                 // has been up over TCP
    bool dials = false;                    // this end has dialled
    uint64_t attempt = 0;                  // the latest that was offered or taken
    uint64_t sent = 0, come = 0;           // frames
    std::deque<Kept> kept;                 // the last of those sent
    uint64_t unsaid = 0, unsaid_bytes = 0; // have come, and the other end does not know
    std::string address;                   // of the other end, when it was last up
    bool restoring = false;
    std::optional<Clock::time_point> refused_since;
    uint64_t look_timer = 0, limit_timer = 0;
  };
  struct Handler {
    std::function<void(Message)> fn;
    bool live = false; // false while queued messages are delivered first
    int running = 0;
  };

  int next() const { return (rank_ + 1) % nranks_; }
  int prev() const { return (rank_ + nranks_ - 1) % nranks_; }
  std::string name(int rank) const; // "rank 5 (pid 123 on host)"
  Error about(int peer, Code code, std::string message) const;
  Status locate(Status s) const; // adds rank and phase

  // set-up
  void configure(int nranks, int rank);
  struct Seat { // which root this rank checks in at
    UniqueId id;
    int nroots = 1, root = 0;
    uint64_t ids = 0;
    Bytes first_root; // see CheckIn
  };
  Seat seat_of(std::span<const UniqueId> ids) const;
  void check_in(const Seat &seat, Deadline deadline);
  CheckIn check_in_data(const Seat &seat, Deadline deadline) const;
  void dial_root(const Seat &seat, Deadline deadline);
  void root_frame(FrameType type, const Bytes &data);
  Error with_own_view(Error e) const;
  void root_lost(const Status &why);
  void connect_ring(const Contact &to, const std::shared_ptr<Member> &same_process);
  void ring_neighbour(int rank, const std::shared_ptr<Member> &member); // of this process [any]
  void ring_joined(Direction dir);                                      // [any]
  void ring_progress();                                                 // [any]
  Status wait_ring(Deadline deadline);
  Status exchange_contacts(Deadline deadline);
  void leave_root();
  Status enter_child(const std::shared_ptr<Member> &child, const std::vector<int> &members, int index, uint64_t split,
                     Deadline deadline);
  Status seat_child(const std::shared_ptr<Member> &child, const std::vector<int> &members, int index);
  Status meet(const std::shared_ptr<Member> &child, Deadline deadline, const std::function<std::shared_ptr<Member>()> &local);
  Result<std::shared_ptr<Member>> shrink_once(Bootstrap::Shrink *request, const std::shared_ptr<const Config> &config,
                                              bool *met);
  void watch_shrunk(const std::shared_ptr<Member> &child, const Decision &decision);
  Status enter_shrunk(const std::shared_ptr<Member> &child, const Decision &decision);

  // links [service thread]
  void dial(int to, Link &link, const Contact &contact, Clock::time_point deadline);
  void reach(int to, Link &link, Clock::time_point deadline);
  Hello hello_to(int rank) const;
  void attach(int peer, const Conn::Ptr &conn, bool dialled);
  void link_up(int peer, Link &link);
  void frame(int from, Frame f);
  void malformed(int from);
  void lost(int peer, const Conn::Ptr &conn, const Status &why);
  bool pass_over(int peer, Link &link);
  void push(int to, FrameType type, uint64_t tag, Bytes data, UniqueFd fd);
  void flood(const Error &error);
  void send_waiting(int to, Link &link);
  void send_all(FrameType type, const Bytes &data, int except);
  void leave_links(bool clean);
  void say_goodbye(Link &link);
  void leave_link(int peer, Link &link);
  void when_written(const std::shared_ptr<std::promise<void>> &done, Clock::time_point limit);
  void left_link(int peer); // one that was still being made when the rank left

  // member_resume.cc [service thread]
  void transmit(int to, Link &link, FrameType type, uint64_t tag, std::span<const std::byte> data, UniqueFd fd = {});
  bool release(Link &link, uint64_t come);
  void arrived(int from, const Conn::Ptr &conn, Frame f);
  void say_resume(Link &link, const Conn::Ptr &conn);
  void offer(int to, Link &link, const Conn::Ptr &conn);
  void hear_resume(int from, Link &link, const Conn::Ptr &conn, const Frame &f);
  void close_others(Link &link, const Conn::Ptr &conn);
  void take_over(int peer, Link &link, const Conn::Ptr &conn, uint64_t come);
  bool may_resume(int peer, const Link &link) const;
  void interrupted(int peer, Link &link, const Status &why);
  void look_for(int peer, Link &link);
  void looked_for(int peer, Result<Conn::Ptr> r);
  void note_attempt(int peer, const std::string &what);
  void look_later(int peer, Link &link, Nanos pause);
  void candidate_lost(int peer, Link &link, const Status &why);
  std::optional<Reconnecting> end_outage(int peer, Link &link);
  void restored(int peer, Link &link);
  void not_restored(int peer, bool ended);
  void forget(int peer, Link &link);

  // allgather [any]
  bool expects(uint64_t seq) const;
  void spread(uint64_t seq, int origin, Direction dir, const Piece &piece);
  void pass_on(uint64_t seq, int origin, Direction dir, const Piece &piece);
  void store(uint64_t seq, int origin, const Piece &piece);
  Status gather_missing(uint64_t seq, Deadline deadline, std::string_view what);

  void peer_gone(int rank, bool clean); // [any]
  void note_lost(int rank);             // its process has ended, or it has left, whatever failed before [any]
  void tell_lost(int rank);
  bool is_lost(int rank) const;
  bool is_closed() const {
    std::lock_guard lock(m_);
    return closed_;
  }
  void send_council(int to, Bytes data); // also after a failure
  bool later(std::function<void()> fn);  // keeps what comes before configure(); false: do it now (m_ held)
  void drain_kind(MsgKind kind);
  Status unreachable(int to) const;

  Service &service_;
  Hub &hub_;
  const Identity identity_;
  Identity asking_;
  const std::shared_ptr<const Config> config_;
  int rank_ = -1, nranks_ = 0;   // set by configure(), before anybody else looks
  std::vector<PeerInfo> infos_;  // set before join() or split() returns
  std::atomic<bool> met_{false}; // infos_ is set
  Contact self_;

  mutable std::mutex m_; // guards all up to the next comment
  std::condition_variable cv_;
  bool configured_ = false, closed_ = false, closing_ = false;
  std::vector<std::function<void()>> early_;
  std::vector<Contact> contacts_; // empty until known
  std::vector<bool> gone_, lost_;
  std::map<std::pair<int, uint64_t>, std::deque<Message>> mailbox_;
  size_t mailbox_bytes_ = 0, mailbox_count_ = 0;
  std::array<Handler, 4> handlers_;
  std::map<uint64_t, Gather> gathers_;
  uint64_t next_gather_ = 0;
  std::array<std::weak_ptr<Member>, 2> ring_local_; // by Direction
  std::array<bool, 2> ring_is_local_{};
  std::array<bool, 2> ring_up_{};
  std::array<std::vector<std::function<void()>>, 2> ring_waiting_; // pieces to pass on once there is somebody to pass them to
  bool ring_done_ = false;
  std::string progress_; // what a joining rank waits for
  std::shared_ptr<Error> error_;
  Error told_; // what others hear of it
  std::function<void(const Error &)> on_failure_;
  int failure_running_ = 0;
  std::weak_ptr<Member> pending_child_;
  std::weak_ptr<Member> shrunk_; // that comes about
  std::vector<int> shrunk_of_;   // its members
  uint64_t splits_ = 0;
  std::map<int, Reconnecting> outages_;
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> posted_{0}; // bytes that the service thread has not taken yet
  std::atomic<uint64_t> kept_{0};   // bytes of frames that links keep

  // service thread
  std::map<int, Link> links_;
  Contact next_contact_;
  std::shared_ptr<Dialer> root_dialer_;
  Conn::Ptr root_conn_;
  std::shared_ptr<Root> local_root_;
  uint32_t generation_ = 0;
  bool at_root_ = false; // checked in and not yet in the ring
  Clock::time_point set_up_deadline_;
  uint64_t stagger_timer_ = 0;
  std::optional<bool> left_; // how: everybody was done
  uint64_t linger_timer_ = 0;
  int root_rank_ = -1;
  std::string root_text_;

  Council council_{*this};

  const std::shared_ptr<std::atomic<uint64_t>> queued_ = std::make_shared<std::atomic<uint64_t>>(0);
  const std::shared_ptr<std::atomic<uint64_t>> fds_ = std::make_shared<std::atomic<uint64_t>>(0);
};

} // namespace tutti::boot
