// tutti/plugins/net-ib/endpoint.h: one direction of data between two contexts, over one or more paths.
#pragma once
#include "explain.h"
#include "path.h"
#include "reads.h"
#include "receives.h"
#include "sends.h"

namespace tutti::net_ib {

// Memory of an endpoint that the peer writes into, and what it writes into the peer's from.
class Window {
public:
  Window(Context &ctx, const WindowShape &shape);
  const WindowShape &shape() const { return shape_; }
  uint8_t *at(size_t offset) const { return memory_.get() + offset; }
  const Mr &mr() const { return *mr_; }

private:
  struct Free {
    void operator()(uint8_t *p) const { std::free(p); }
  };
  WindowShape shape_;
  std::unique_ptr<uint8_t[], Free> memory_;
  std::unique_ptr<Mr> mr_;
};

// What both sides publish, and what the peer's said last.
struct PeerState {
  StateHead head{};
  std::vector<PathState> paths;
  std::vector<uint32_t> qpns; // by path
  std::vector<uint64_t> arrived;
  std::vector<uint8_t> copy; // that is checked before it is believed
};

class Endpoint final : public plugin::NetObject, public QueueOwner {
public:
  Endpoint(Context &ctx, bool receives);
  ~Endpoint() override;
  Endpoint(const Endpoint &) = delete;

  // The listener's side: its card; then the peer's.
  void offer(Card &card);
  void accept(const Card &answer);
  // The connecting side: its answer.
  void connect(const Card &card, Card &answer);

  bool ready();
  std::string describe() const;
  tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie);
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie);
  tutti_status get(const tutti_net_buf &to, uint64_t remote, const plugin::NetKey &key, uint64_t cookie);

  // From the context.
  void look_after(Time now) noexcept; // timers
  void pump() noexcept;               // posts what can be
  void rail_changed(const Rail &rail, bool up) noexcept;
  void device_failed(const Hca &hca, const std::string &why) noexcept;
  void queue_failed(const Hca &hca, uint32_t qp_num, const std::string &why) noexcept; // 0: any
  bool waits() const { return !ready_ || busy(); }                                     // needs look_after() soon

  // From the parts.
  Context &ctx() { return ctx_; }
  bool works() const { return failed_ == TUTTI_OK; }
  const Reason &why() const { return why_; } // null while it works
  void fail(tutti_status status, const std::string &why) noexcept;
  void too_long(uint64_t number, uint64_t bytes) noexcept; // message `number` has no room in the buffer granted for it
  static constexpr uint32_t control_reserve = 16;          // work requests that credits leave to the rest
  const Card &peer() const { return peer_; }
  uint32_t piece() const { return std::min(mine_.piece, peer_.piece); }                      // largest work request
  uint64_t largest() const { return std::min(max_message, uint64_t{max_pieces} * piece()); } // of one message or read
  uint32_t share_limit() const { return static_cast<uint32_t>(carriers_.size()); }           // queue pairs that carry data now
  // The next queue pair for data that has room for n work requests; null: none.
  QueuePair *next_queue(uint32_t n) const;
  QueuePair *data_queue(uint32_t turn) const; // by turn, of those that carry data; null: none
  uint32_t lightest() const;                  // turn of the one that has carried least: long and short messages may alternate
  QueuePair *credit_queue();                  // of the path that credits take; null: none now
  uint8_t peer_port(const QueuePair &qp) const { return peer_.path_port[qp.place().path]; }
  Window &window() { return *window_; }
  uint64_t peer_window() const { return peer_.window; }
  uint32_t window_rkey(const QueuePair &qp) const { return peer_.rkey[peer_port(qp)]; }

private:
  friend class Farewell;
  // QueueOwner
  void acknowledged(QueuePair &qp, const Posted &p) override;
  void lost(QueuePair &qp, const Posted &p) override;
  void unposted(QueuePair &qp, const Posted &p) override;
  void arrived(QueuePair &qp, Tag tag, uint32_t bytes) override;
  void broken(QueuePair &qp, const ibv_wc &wc) override;
  void refused(QueuePair &qp, int err) override;

  // paths (endpoint_paths.cc)
  void open(const WindowShape &shape);
  void begin(); // both cards are known
  Card card_of_self();
  static PortCard card_of(const Rail &rail);
  Ends ends(const Path &path) const;
  void make_queues(Path &path);
  void wire(Path &path, const PortCard &port, const uint32_t *qpns);
  void greet(Path &path);                               // hello on each of its queue pairs
  void greeted(Path &path);                             // all were acknowledged
  void not_greeted(Path &path, const std::string &why); // the first ones of a path were not heard
  void greet_again(Path &path, Time now);
  void wire_first(Path &path, Time now);
  void fail_path(Path &path, const std::string &why) noexcept;
  void settle(Path &path); // both sides have drained it
  void drive_path(Path &path, Time now);
  void probe(Path &path, Time now);
  void check_paths(Time now);
  static bool usable(const Path &path) { return path.phase == Phase::up && !path.held(); }
  bool any_usable() const { return std::any_of(paths_.begin(), paths_.end(), usable); }
  bool make_again(Path &path) noexcept; // the next epoch of a settled path
  void drained(Path &path);
  std::string first_why() const;
  std::string all_down(nanoseconds how_long) const;
  std::string path_text(const Path &path) const;
  void choose_queues(); // that carry data

  // states (endpoint_state.cc)
  void changed() { ++version_; }
  void publish();
  uint32_t write_state(uint8_t *to, bool closing);
  void post_state(Path &path, bool closing);
  void read_state(Path &path);
  void apply_path(Path &path, Time now);
  void begin_end(); // the peer has ended
  void look_for_end(Time now);

  // Messages below it have arrived (of a receiver) or are known to have: not those that failure has completed.
  uint64_t done() const { return !works() ? done_ : receives_data_ ? receives_.done() : sends_.done(); }
  bool busy() const { return sends_.busy() || receives_.busy() || reads_.busy(); }

  Context &ctx_;
  const bool receives_data_;
  bool ready_ = false, connected_ = false; // connected: both cards are known
  Time begun_{};                           // to become ready
  tutti_status failed_ = TUTTI_OK;
  Reason why_; // it has failed
  uint64_t failed_at_ = 0, failed_bytes_ = 0;
  uint64_t done_ = 0; // when it failed
  Card mine_{}, peer_{};
  std::unique_ptr<Window> window_;
  std::vector<Path> paths_;
  std::vector<QueuePair *> carriers_; // data queue pairs in use
  size_t completions_ = 0;            // that the context has room for
  uint64_t version_ = 0;              // of the state; each path carries the newest
  Home credit_home_;                  // the path that credits take
  PeerState theirs_;
  Time dark_since_{}; // no path has been usable since
  bool dark_ = false;
  std::optional<Time> end_limit_; // the peer has ended: what had arrived by then is waited for until here
  Sends sends_;
  Receives receives_;
  Reads reads_;
};

// The control queue pairs of a destroyed endpoint, until its peer has been told, or could not be in time.
class Farewell final : public QueueOwner {
public:
  Farewell(Endpoint &ep, Time limit);
  bool over(Time now) const { return told_ || left_ == 0 || now >= limit_; }

private:
  void acknowledged(QueuePair &, const Posted &) override;
  void lost(QueuePair &, const Posted &) override;
  void unposted(QueuePair &, const Posted &) override;
  void arrived(QueuePair &, Tag, uint32_t) override {}
  void broken(QueuePair &, const ibv_wc &) override {}
  void refused(QueuePair &, int) override {}
  std::unique_ptr<Window> window_; // goes after the queue pairs, which write into it
  std::vector<std::unique_ptr<QueuePair>> queues_;
  Time limit_;
  uint32_t left_ = 0;
  bool told_ = false;
};

} // namespace tutti::net_ib
