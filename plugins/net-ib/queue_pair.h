// tutti/plugins/net-ib/queue_pair.h: an RC queue pair with an account of what is posted on it.
//
// Work requests complete in order, so that the completion of one stands for those before it: only the last of a run that is
// posted together asks for a completion.
#pragma once
#include "hca.h"
#include "wire.h"

namespace tutti::net_ib {

class Context;
class QueuePair;

enum class Work : uint8_t { piece, data, read, credits, state, hello, probe }; // piece: of a share, but not its last one
struct Posted {
  uint64_t number = 0;
  Work work = Work::piece;
  uint8_t share = 0;
};

class QueueOwner {
public:
  virtual ~QueueOwner() = default;
  virtual void acknowledged(QueuePair &qp, const Posted &p) = 0; // the peer's device has it
  virtual void lost(QueuePair &qp, const Posted &p) = 0;         // nobody knows whether the peer's device has it
  virtual void unposted(QueuePair &qp, const Posted &p) = 0;     // the peer's device has it not
  virtual void arrived(QueuePair &qp, Tag tag, uint32_t bytes) = 0;
  virtual void broken(QueuePair &qp, const ibv_wc &wc) = 0; // the first error, before its work is lost()
  virtual void refused(QueuePair &qp, int err) = 0;         // by ibv_post_*
};

struct QueueShape {
  uint32_t sends = 0, receives = 0, inline_bytes = 0;
};

class QueuePair {
public:
  // Which one of an endpoint: path, epoch of the path, 0 for control or 1 + the index of a data queue pair.
  struct Place {
    uint8_t path = 0, index = 0;
    uint32_t epoch = 0;
  };
  static constexpr uint32_t chain = 16;   // work requests posted together, the last of which is signalled
  static constexpr uint32_t restock = 16; // receives used up before they are posted again, together

  // In INIT, with receives posted.
  QueuePair(Context &ctx, Rail &rail, QueueOwner &owner, Place place, const QueueShape &shape);
  ~QueuePair();
  QueuePair(const QueuePair &) = delete;
  QueuePair &operator=(const QueuePair &) = delete;

  Rail &rail() const { return rail_; }
  Place place() const { return place_; }
  uint32_t number() const { return qp_->qp_num; }
  void give_to(QueueOwner &owner) { owner_ = &owner; }
  void disown(); // nobody hears of its completions any more

  // Through RTR to RTS. An errno value, and the step that failed.
  struct Peer {
    const Card *mine, *card;
    PortCard port;
    uint32_t qpn;
  };
  int wire(const Peer &peer, ibv_qp_state &step);
  void stop() noexcept; // to ERR: nothing arrives any more, everything posted is flushed
  int start_again();    // stopped and quiet: back to INIT, to be wired with the same numbers
  // Nothing but a hello has come, so that it is known which packet is next. (What writes without immediate does not show; a
  // peer that was wrong about the next packet finds its queue pair broken, and gives up the path.)
  bool fresh() const { return fresh_; }
  bool quiet() const { return head_ == tail_ && stocked_ == 0; }
  bool stopped() const { return stopped_; }
  bool wired() const { return wired_; }

  uint32_t room() const { return shape_.sends - (tail_ - head_); }
  uint64_t carried() const { return carried_; } // bytes since it began to, with something for each request
  void carry_anew() { carried_ = 0; }
  // The next one of the run; flush() posts it. opcode, addresses and immediate are the caller's.
  void add(ibv_send_wr &wr, const void *addr, uint32_t bytes, uint32_t lkey, bool may_inline, const Posted &p);
  void flush();
  void completed(const ibv_wc &wc);

private:
  int stock(uint32_t n); // an errno value
  uint64_t id(bool receive, uint32_t sequence) const;

  Context &ctx_;
  Rail &rail_;
  QueueOwner *owner_;
  Place place_;
  QueueShape shape_;
  Completions *completions_ = nullptr;
  ibv_qp *qp_ = nullptr;
  static constexpr uint64_t nowhere = ~uint64_t{0};
  uint64_t slot_ = nowhere; // of the context's table, with its generation
  uint32_t inline_ = 0, stocked_ = 0, used_up_ = 0, arrivals_ = 0;
  uint32_t head_ = 0, tail_ = 0; // of posted_
  uint64_t carried_ = 0;
  bool stopped_ = false, broken_ = false, wired_ = false, fresh_ = true;
  std::vector<Posted> posted_; // a ring, size a power of two
  // The run.
  ibv_send_wr run_[chain];
  ibv_sge parts_[chain];
  uint32_t running_ = 0;
};

} // namespace tutti::net_ib
