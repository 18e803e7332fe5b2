// A double of libibverbs and of the network: hosts whose reliable connections behave as the real ones do, one small step at a
// time, in an order that the test chooses or draws. Everything that the real ones may do late, or not at all, is a step here.
//
// A work request goes through: transmitted (its data is read), landing (piece by piece, in order), delivered (what waits at the
// receiver completes), acknowledged (the sender's completes). Lost packets are sent again until the tries are used up. What is
// on its way when a sender's queue pair goes away stays on its way. Flushes, too, come one at a time.
#pragma once
#include "verbs.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>

namespace tutti::net_ib::test {

class Fabric;
struct Machine;

struct DoublePort {
  ibv_gid gid{};
  bool up = true;      // as the device says
  bool drops = false;  // loses everything, and nobody is told
  bool slow = false;   // what was sent through it stays on its way for long
  bool has_gid = true; // else its table is empty
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t largest = 8 << 20; // message
};
struct DoubleDevice {
  std::string name;
  Machine *host = nullptr;
  std::vector<DoublePort> ports; // counted from 1
  int max_cqe = 4096, max_qp = 100000, max_inline = 256, reads = 4;
  bool resizes = true;              // ibv_resize_cq works
  bool purges = false;              // completions of a queue pair vanish with it
  bool flushes_late = true;         // receives that are posted in ERR; else they are never heard of
  bool strict_sends = true;         // a full send queue is ENOMEM
  bool send_fails_when_down = true; // else the sender's device tries on, as it does when the peer's link is down
};

struct DoubleContext;
struct DoubleQp;
struct DoubleChannel {
  ibv_comp_channel pub{};
  std::deque<ibv_cq *> events;
};
struct DoubleCq {
  ibv_cq pub{};
  struct Entry {
    ibv_wc wc;
    uint64_t qp;    // identity of its queue pair
    uint32_t frees; // entries of the send queue
  };
  std::deque<Entry> entries;
  int capacity = 0;
  bool armed = false;
  DoubleChannel *channel = nullptr;
  DoubleDevice *device = nullptr;
  int users = 0;
};
struct DoubleMr {
  ibv_mr pub{};
  unsigned access = 0;
};
struct DoubleContext {
  ibv_context pub{};
  DoubleDevice *device = nullptr;
  std::deque<ibv_async_event> events;
};

// A work request on its way.
struct Letter {
  ibv_wr_opcode opcode{};
  std::vector<uint8_t> data;
  uint64_t remote = 0, bytes = 0, landed = 0;
  uint32_t rkey = 0, imm = 0, psn = 0, packets = 1;
};
struct Ack {
  uint32_t psn = 0;          // of the first packet of what is acknowledged
  std::vector<uint8_t> data; // of a READ
  ibv_wc_status status = IBV_WC_SUCCESS;
};
// What one queue pair has sent. Outlives it.
struct Flow {
  DoubleQp *from = nullptr;
  uint32_t from_qpn = 0, to_qpn = 0;
  ibv_gid from_gid{}, to_gid{};
  DoublePort *port = nullptr;
  std::deque<Letter> letters;
  std::deque<Ack> acks;
};
struct DoubleQp {
  ibv_qp pub{};
  uint64_t identity = 0;
  uint32_t unacknowledged = 0; // asynchronous events of it that somebody has taken
  DoubleContext *context = nullptr;
  DoubleCq *send_cq = nullptr, *recv_cq = nullptr;
  ibv_qp_cap cap{};
  ibv_qp_attr attr{};
  DoublePort *port = nullptr;
  struct Send {
    ibv_send_wr wr;
    ibv_sge part;
    std::vector<uint8_t> data; // inline
    uint32_t psn = 0, packets = 1;
  };
  std::deque<Send> sends; // not complete
  size_t transmitted = 0; // of them
  std::deque<uint64_t> receives;
  uint32_t slots = 0, unreported = 0; // send queue entries in use; complete without a completion since the last one
  uint32_t next_psn = 0, expected_psn = 0;
  int tries = 0, rnr_tries = 0;
  Flow *flow = nullptr;
};

// The verbs of one host.
class DoubleVerbs final : public Verbs {
public:
  DoubleVerbs(Fabric &fabric, Machine &host) : fabric_(fabric), host_(host) {}
  std::vector<std::string> devices() override;
  ibv_context *open(const std::string &device) override;
  int close(ibv_context *context) override;
  ibv_transport_type transport(const std::string &) override { return IBV_TRANSPORT_IB; }
  uint64_t guid(const std::string &device) override { return std::hash<std::string>()(device) | 1; }
  int query_device(ibv_context *context, ibv_device_attr *out) override;
  int query_port(ibv_context *context, uint8_t port, ibv_port_attr *out) override;
  int query_gid(ibv_context *context, uint8_t port, uint32_t index, ibv_gid_entry *out) override;
  int query_pkey(ibv_context *context, uint8_t port, int index, uint16_t *out) override;
  ibv_pd *alloc_pd(ibv_context *context) override;
  int dealloc_pd(ibv_pd *pd) override;
  ibv_mr *reg_mr(ibv_pd *pd, void *addr, size_t bytes, unsigned access) override;
  ibv_mr *reg_dmabuf_mr(ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t addr, int fd, unsigned access) override;
  int dereg_mr(ibv_mr *mr) override;
  ibv_comp_channel *create_comp_channel(ibv_context *context) override;
  int destroy_comp_channel(ibv_comp_channel *channel) override;
  int get_cq_event(ibv_comp_channel *channel, ibv_cq **cq) override;
  void ack_cq_events(ibv_cq *, unsigned) override {}
  ibv_cq *create_cq(ibv_context *context, int entries, ibv_comp_channel *channel) override;
  int resize_cq(ibv_cq *cq, int entries) override;
  int destroy_cq(ibv_cq *cq) override;
  int req_notify_cq(ibv_cq *cq) override;
  int poll_cq(ibv_cq *cq, int n, ibv_wc *out) override;
  ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *init) override;
  int modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) override;
  int destroy_qp(ibv_qp *qp) override;
  int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) override;
  int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) override;
  int get_async_event(ibv_context *context, ibv_async_event *out) override;
  void ack_async_event(ibv_async_event *) override;

private:
  int fault(const char *call); // what the test wants it to fail with, 0 = nothing
  int check_send(const DoubleQp &qp, const ibv_send_wr &wr) const;
  Fabric &fabric_;
  Machine &host_;
};

struct Machine {
  Machine(Fabric &fabric, std::string called) : name(std::move(called)), verbs(fabric, *this) {}
  std::string name;
  std::deque<DoubleDevice> devices;
  bool dead = false; // its process has ended
  // The n-th call from now on (1 = the next) of this name fails with this errno value; once.
  struct Fault {
    std::string call;
    int n, err;
  };
  std::vector<Fault> faults;
  std::map<std::string, int> calls;
  DoubleVerbs verbs;
};

class Fabric {
public:
  explicit Fabric(uint64_t seed = 1) : random(seed) {}
  ~Fabric();
  Machine &host(const std::string &name, const std::vector<std::string> &devices);

  // One thing of all that could happen now; false: nothing can.
  bool step();
  void run(int steps) {
    for (int i = 0; i < steps && step(); ++i) {
    }
  }
  void set_link(DoubleDevice &device, size_t port, bool up); // with the event
  void kill(Machine &host);                                  // its process ends: queue pairs are gone, nobody says so
  void break_qp(uint32_t qpn);                               // its device gives up on it
  DoubleQp *find(uint32_t qpn);
  std::vector<uint32_t> queue_pairs(const DoubleDevice &device) const;

  // What happened.
  uint64_t rnr = 0, overflows = 0, late_letters = 0, packets = 0, wire_bytes = 0, duplicates = 0, letters = 0;
  uint64_t steps_inside = 0; // up to so many happen within each call, and completions are seen late
  int steps_per_poll = 0;    // taken in each ibv_poll_cq: for tests that do not step themselves
  uint32_t loss = 0;         // of 1000 letters or acknowledgements, so many are lost

  std::mt19937_64 random;
  uint64_t below(uint64_t n) { return random() % n; }
  std::recursive_mutex mutex; // guards everything
  std::condition_variable_any acknowledged;
  std::list<Machine> hosts;

private:
  friend class DoubleVerbs;
  struct Action {
    enum Kind { transmit, deliver, ack, flush_send, flush_receive } kind;
    DoubleQp *qp;
    Flow *flow;
  };
  void collect(std::vector<Action> &out);
  void transmit(DoubleQp &qp);
  void deliver(Flow &flow);
  void acknowledge(Flow &flow);
  void flush_send(DoubleQp &qp);
  void flush_receive(DoubleQp &qp);
  void lose(Flow &flow); // its packets are lost: again, or never
  void fail_send(DoubleQp &qp, ibv_wc_status status);
  void to_error(DoubleQp &qp);
  void complete_send(DoubleQp &qp, ibv_wc_status status);
  void push(DoubleCq &cq, const ibv_wc &wc, const DoubleQp &qp, uint32_t frees);
  uint8_t *reach(const DoubleQp &qp, uint32_t key, uint64_t addr, uint64_t bytes, unsigned access, bool remote);
  bool connected(const Flow &flow, DoubleQp *to) const;
  void event(DoubleContext &context, ibv_event_type type, int port, DoubleQp *qp);
  Flow &flow_of(DoubleQp &qp);
  void drop_qp(DoubleQp &qp);

  std::map<uint32_t, std::unique_ptr<DoubleQp>> qps_;
  std::list<Flow> flows_;
  std::map<uint32_t, std::unique_ptr<DoubleMr>> mrs_; // by key
  std::map<ibv_cq *, std::unique_ptr<DoubleCq>> cqs_;
  std::map<ibv_context *, std::unique_ptr<DoubleContext>> contexts_;
  std::map<ibv_comp_channel *, std::unique_ptr<DoubleChannel>> channels_;
  std::set<ibv_pd *> pds_;
  uint32_t next_qpn_ = 16, next_key_ = 0x100;
  uint64_t next_identity_ = 1;
  std::vector<Action> actions_;
};

} // namespace tutti::net_ib::test
