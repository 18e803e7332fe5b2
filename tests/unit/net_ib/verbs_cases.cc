#include "verbs_cases.h"
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <poll.h>
#include <thread>

namespace tutti::net_ib::test {
namespace {

using plugin::text;
using Clock = std::chrono::steady_clock;

constexpr auto patience = std::chrono::seconds(20); // an emulated machine takes its time
constexpr auto quiet = std::chrono::milliseconds(100);

template <class... Parts> void require(bool holds, const Parts &...parts) {
  if (!holds) throw std::runtime_error(text(parts...));
}
template <class T> T *made(T *p, const char *call) {
  require(p != nullptr, call, ": ", std::strerror(errno));
  return p;
}

// A device with a queue pair, opened and closed in the order that verbs want.
struct End {
  Verbs &v;
  Port port;
  ibv_context *context;
  ibv_pd *pd;
  ibv_comp_channel *channel;
  ibv_cq *cq;
  ibv_qp *qp = nullptr;
  std::vector<ibv_mr *> mrs;
  std::vector<ibv_wc> seen; // not asked for yet
  uint32_t psn = 0x123450;

  End(Verbs &verbs, const std::string &device) : v(verbs) {
    context = made(v.open(device), "open");
    pd = made(v.alloc_pd(context), "alloc_pd");
    channel = made(v.create_comp_channel(context), "create_comp_channel");
    cq = made(v.create_cq(context, 128, channel), "create_cq");
    port.device = device;
    ibv_port_attr attr{};
    require(v.query_port(context, 1, &attr) == 0, "query_port");
    port.ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.lid = attr.lid;
    port.mtu = attr.active_mtu;
    std::string why;
    require(choose_gid(Settings{}, v, context, port, why), why);
    make_qp();
  }
  End(const End &) = delete;
  ~End() {
    if (qp) v.destroy_qp(qp);
    for (ibv_mr *mr : mrs) v.dereg_mr(mr);
    v.destroy_cq(cq);
    v.destroy_comp_channel(channel);
    v.dealloc_pd(pd);
    v.close(context);
  }
  void make_qp() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = init.cap.max_recv_wr = 32;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = 64;
    qp = made(v.create_qp(pd, &init), "create_qp");
    to_init();
  }
  void to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    require(v.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0, "to INIT");
  }
  void wire(const End &peer, uint8_t rnr_retry = 7, uint32_t came = 0, uint8_t timeout = 12) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = std::min(port.mtu, peer.port.mtu);
    attr.dest_qp_num = peer.qp->qp_num;
    attr.rq_psn = peer.psn + came;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = peer.port.lid;
    if (port.needs_grh(peer.port.gid)) {
      attr.ah_attr.is_global = 1;
      attr.ah_attr.grh.dgid = peer.port.gid;
      attr.ah_attr.grh.sgid_index = port.sgid_index();
      attr.ah_attr.grh.hop_limit = 64;
    }
    int err = v.modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    require(err == 0, "to RTR: ", std::strerror(err));
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psn;
    attr.timeout = timeout;
    attr.retry_cnt = 3;
    attr.rnr_retry = rnr_retry;
    err = v.modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC);
    require(err == 0, "to RTS: ", std::strerror(err));
  }
  void to(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    require(v.modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to state ", static_cast<int>(state));
  }
  ibv_mr *reg(std::vector<uint8_t> &m,
              unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) {
    mrs.push_back(made(v.reg_mr(pd, m.data(), m.size(), access), "reg_mr"));
    return mrs.back();
  }
  void recv(uint64_t id, int n = 1) {
    for (int i = 0; i < n; ++i) {
      ibv_recv_wr wr{}, *bad = nullptr;
      wr.wr_id = id + static_cast<uint64_t>(i);
      require(v.post_recv(qp, &wr, &bad) == 0, "post_recv");
    }
  }
  struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    const void *from = nullptr;
    uint32_t bytes = 0, lkey = 0;
    const void *to = nullptr;
    uint32_t rkey = 0, imm = 0;
    unsigned flags = IBV_SEND_SIGNALED;
  };
  int post(uint64_t id, const Request &r) {
    ibv_sge part{reinterpret_cast<uint64_t>(r.from), r.bytes, r.lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.opcode = r.opcode;
    wr.send_flags = r.flags;
    wr.imm_data = htonl(r.imm);
    wr.sg_list = &part;
    wr.num_sge = r.bytes ? 1 : 0;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(r.to);
    wr.wr.rdma.rkey = r.rkey;
    return v.post_send(qp, &wr, &bad);
  }
  void send(uint64_t id, const Request &r) { require(post(id, r) == 0, "post_send"); }
  void look() {
    ibv_wc wc[16];
    const int n = v.poll_cq(cq, 16, wc);
    require(n >= 0, "poll_cq");
    seen.insert(seen.end(), wc, wc + n);
  }
  // The completion of this request, in whatever order they come.
  ibv_wc wait(uint64_t id, ibv_wc_status status, ibv_wc_status other = IBV_WC_SUCCESS) {
    for (const auto end = Clock::now() + patience; Clock::now() < end; std::this_thread::yield()) {
      look();
      for (size_t i = 0; i < seen.size(); ++i) {
        if (seen[i].wr_id != id) continue;
        const ibv_wc wc = seen[i];
        seen.erase(seen.begin() + static_cast<std::ptrdiff_t>(i));
        require(wc.status == status || (other != IBV_WC_SUCCESS && wc.status == other), "request ", id,
                " completed with status ", static_cast<int>(wc.status), ", expected ", static_cast<int>(status));
        return wc;
      }
    }
    throw std::runtime_error(text("request ", id, " did not complete"));
  }
  void nothing() {
    for (const auto end = Clock::now() + quiet; Clock::now() < end;) look();
    require(seen.empty(), "a completion of ", seen.empty() ? 0 : seen[0].wr_id, " with status ",
            seen.empty() ? 0 : static_cast<int>(seen[0].status), ", expected none");
  }
};

struct Wired {
  End a, b;
  explicit Wired(const VerbsPair &p, uint8_t rnr_retry = 7, uint8_t timeout = 12)
      : a(p.a_verbs, p.a_device), b(p.b_verbs, p.b_device) {
    b.psn = 0x654320;
    a.wire(b, rnr_retry, 0, timeout);
    b.wire(a, rnr_retry, 0, timeout);
  }
};

constexpr uint8_t stale = 0x11;
std::vector<uint8_t> numbers(size_t n) {
  std::vector<uint8_t> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<uint8_t>(i * 7 + 3);
  return v;
}

void imm_after_data(const VerbsPair &p) {
  Wired w(p);
  std::vector<uint8_t> out = numbers(300000), in(300000, stale);
  const ibv_mr *from = w.a.reg(out), *to = w.b.reg(in);
  w.b.recv(70, 2);
  w.a.send(1, {IBV_WR_RDMA_WRITE, out.data(), 200000, from->lkey, in.data(), to->rkey, 0, 0});
  w.a.send(2,
           {IBV_WR_RDMA_WRITE_WITH_IMM, out.data() + 200000, 100000, from->lkey, in.data() + 200000, to->rkey, 0xabcd1234, 0});
  w.a.send(3, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 5, IBV_SEND_SIGNALED});
  const ibv_wc wc = w.b.wait(70, IBV_WC_SUCCESS);
  require(in == out, "the immediate came before all data of the writes before it and its own");
  require(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && (wc.wc_flags & IBV_WC_WITH_IMM), "opcode ", static_cast<int>(wc.opcode));
  require(ntohl(wc.imm_data) == 0xabcd1234, "immediate ", ntohl(wc.imm_data));
  require(wc.byte_len == 100000, "byte_len ", wc.byte_len, " of a write of 100000");
  const ibv_wc next = w.b.wait(71, IBV_WC_SUCCESS);
  require(ntohl(next.imm_data) == 5 && next.byte_len == 0, "an empty write came with ", next.byte_len, " bytes");
  w.a.wait(3, IBV_WC_SUCCESS);
  w.a.nothing(); // those that were not signalled
}

void imm_order(const VerbsPair &p) {
  Wired w(p);
  std::vector<uint8_t> out = numbers(64), in(64, stale);
  const ibv_mr *from = w.a.reg(out), *to = w.b.reg(in);
  w.b.recv(0, 20);
  for (uint32_t i = 0; i < 20; ++i)
    w.a.send(i, {IBV_WR_RDMA_WRITE_WITH_IMM, out.data(), i % 3 * 8, from->lkey, in.data(), to->rkey, i,
                 i == 19 ? unsigned{IBV_SEND_SIGNALED} : 0u});
  for (uint32_t i = 0; i < 20; ++i) require(ntohl(w.b.wait(i, IBV_WC_SUCCESS).imm_data) == i, "immediates came out of order");
  w.a.wait(19, IBV_WC_SUCCESS);
}

void inline_is_copied(const VerbsPair &p) {
  Wired w(p);
  std::vector<uint8_t> out = numbers(60), in(60, stale);
  const std::vector<uint8_t> before = out;
  const ibv_mr *to = w.b.reg(in);
  w.b.recv(1);
  w.a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, out.data(), 60, 0, in.data(), to->rkey, 9, IBV_SEND_SIGNALED | IBV_SEND_INLINE});
  std::fill(out.begin(), out.end(), uint8_t{0});
  require(w.b.wait(1, IBV_WC_SUCCESS).byte_len == 60, "byte_len");
  require(in == before, "what was sent inline changed with its buffer");
  w.a.wait(1, IBV_WC_SUCCESS);
}

void empty_write(const VerbsPair &p) {
  Wired w(p);
  w.a.send(1, {});
  w.a.wait(1, IBV_WC_SUCCESS);
  w.b.nothing();
}

void reads(const VerbsPair &p) {
  Wired w(p);
  std::vector<uint8_t> there = numbers(100000), here(100000, stale);
  const ibv_mr *from = w.b.reg(there), *to = w.a.reg(here);
  for (uint32_t i = 0; i < 4; ++i)
    w.a.send(i, {IBV_WR_RDMA_READ, here.data() + i * 25000, 25000, to->lkey, there.data() + i * 25000, from->rkey, 0,
                 IBV_SEND_SIGNALED});
  for (uint32_t i = 0; i < 4; ++i) w.a.wait(i, IBV_WC_SUCCESS);
  require(here == there, "a read brought something else");
}

void flushes(const VerbsPair &p) {
  Wired w(p);
  w.a.recv(10, 3);
  w.a.to(IBV_QPS_ERR);
  for (uint64_t i = 10; i < 13; ++i) w.a.wait(i, IBV_WC_WR_FLUSH_ERR);
  w.a.send(1, {IBV_WR_RDMA_WRITE, nullptr, 0, 0, nullptr, 0, 0, 0}); // not signalled, and reported all the same
  w.a.recv(20); // flushed as well, but not by all devices: nothing may wait for it
  w.a.wait(1, IBV_WC_WR_FLUSH_ERR);
}

void refused(const VerbsPair &p, size_t offset, uint32_t wrong_key) {
  Wired w(p);
  std::vector<uint8_t> out = numbers(64), in(64, stale);
  const ibv_mr *from = w.a.reg(out), *to = w.b.reg(in);
  w.b.recv(5);
  w.a.send(1, {IBV_WR_RDMA_WRITE, out.data(), 64, from->lkey, in.data() + offset, to->rkey ^ wrong_key, 0, 0});
  w.a.send(2, {IBV_WR_RDMA_WRITE, nullptr, 0, 0, nullptr, 0, 0, 0});
  w.a.wait(1, IBV_WC_REM_ACCESS_ERR);
  w.a.wait(2, IBV_WC_WR_FLUSH_ERR);
  w.b.wait(5, IBV_WC_WR_FLUSH_ERR);
  require(std::all_of(in.begin(), in.end(), [](uint8_t b) { return b == stale; }), "a write that was refused changed memory");
}
void wrong_key(const VerbsPair &p) {
  refused(p, 0, 0x5500);
}
void beyond_region(const VerbsPair &p) {
  refused(p, 1, 0);
}

void local_key(const VerbsPair &p) {
  Wired w(p);
  std::vector<uint8_t> out = numbers(64), in(64, stale);
  const ibv_mr *from = w.a.reg(out), *to = w.b.reg(in);
  w.a.send(1, {IBV_WR_RDMA_WRITE, out.data(), 64, from->lkey ^ 0x5500, in.data(), to->rkey, 0, 0});
  w.a.wait(1, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR);
}

void not_ready_waits(const VerbsPair &p) {
  Wired w(p, 7, 18); // the answers of a device in software may take longer than 17 ms
  w.a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 8, IBV_SEND_SIGNALED});
  w.a.nothing();
  w.b.recv(3);
  require(ntohl(w.b.wait(3, IBV_WC_SUCCESS).imm_data) == 8, "immediate");
  w.a.wait(1, IBV_WC_SUCCESS);
}
void not_ready_fails(const VerbsPair &p) {
  Wired w(p, 1);
  w.a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 8, IBV_SEND_SIGNALED});
  w.a.wait(1, IBV_WC_RNR_RETRY_EXC_ERR);
}

void peer_gone(const VerbsPair &p) {
  Wired w(p);
  w.b.v.destroy_qp(std::exchange(w.b.qp, nullptr));
  w.a.send(1, {});
  w.a.send(2, {});
  w.a.wait(1, IBV_WC_RETRY_EXC_ERR);
  w.a.wait(2, IBV_WC_WR_FLUSH_ERR);
}

// What is sent before the peer can receive comes once it can, while the sender's tries last.
void peer_late(const VerbsPair &p) {
  End a(p.a_verbs, p.a_device), b(p.b_verbs, p.b_device);
  b.psn = 0x654320;
  a.wire(b);
  b.recv(4);
  a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 3, IBV_SEND_SIGNALED});
  b.wire(a);
  require(ntohl(b.wait(4, IBV_WC_SUCCESS).imm_data) == 3, "immediate");
  a.wait(1, IBV_WC_SUCCESS);
}

// A sender that begins anew with the number of a packet that has arrived: acknowledged, and not carried out again.
void said_again(const VerbsPair &p) {
  Wired w(p);
  w.b.recv(1, 4);
  w.a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 21, IBV_SEND_SIGNALED});
  w.b.send(2, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 22, IBV_SEND_SIGNALED}); // needs no receive yet: RNR
  w.a.recv(9);
  w.b.wait(1, IBV_WC_SUCCESS);
  w.b.wait(2, IBV_WC_SUCCESS);
  w.a.wait(1, IBV_WC_SUCCESS);
  w.a.wait(9, IBV_WC_SUCCESS);
  w.a.to(IBV_QPS_RESET);
  w.a.to_init();
  w.a.recv(10, 2);
  w.a.wire(w.b, 7, 1); // one packet of the peer's has come
  w.a.send(5, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 21, IBV_SEND_SIGNALED});
  w.a.wait(5, IBV_WC_SUCCESS);
  w.b.nothing();
  w.a.send(6, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 23, IBV_SEND_SIGNALED});
  require(ntohl(w.b.wait(2, IBV_WC_SUCCESS).imm_data) == 23, "the next message after a repeated one");
  w.a.wait(6, IBV_WC_SUCCESS);
  w.b.send(7, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 24, IBV_SEND_SIGNALED});
  require(ntohl(w.a.wait(10, IBV_WC_SUCCESS).imm_data) == 24, "a message to a queue pair that began anew");
}

void notifies(const VerbsPair &p) {
  Wired w(p);
  const auto readable = [&](int ms) {
    pollfd f{w.b.channel->fd, POLLIN, 0};
    return ::poll(&f, 1, ms) > 0;
  };
  require(w.b.v.req_notify_cq(w.b.cq) == 0, "req_notify_cq");
  w.b.recv(1, 2);
  require(!readable(50), "an event though nothing has come");
  w.a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 1, IBV_SEND_SIGNALED});
  w.a.wait(1, IBV_WC_SUCCESS);
  require(readable(5000), "no event though a message has come");
  ibv_cq *cq = nullptr;
  require(w.b.v.get_cq_event(w.b.channel, &cq) == 0 && cq == w.b.cq, "get_cq_event");
  w.b.v.ack_cq_events(cq, 1);
  errno = 0;
  require(w.b.v.get_cq_event(w.b.channel, &cq) == -1 && errno == EAGAIN, "a second event, or a call that blocks");
  w.b.wait(1, IBV_WC_SUCCESS);
}

void resizes(const VerbsPair &p) {
  Wired w(p);
  w.b.recv(1, 2);
  w.a.send(1, {IBV_WR_RDMA_WRITE_WITH_IMM, nullptr, 0, 0, nullptr, 0, 1, IBV_SEND_SIGNALED});
  w.a.wait(1, IBV_WC_SUCCESS);
  const int err = w.b.v.resize_cq(w.b.cq, 512);
  require(err == 0 || err == ENOSYS || err == EOPNOTSUPP, "resize_cq: ", std::strerror(err));
  w.b.wait(1, IBV_WC_SUCCESS);
}

// RESET takes work away, and nothing of it is reported.
void reset_forgets(const VerbsPair &p) {
  Wired w(p);
  w.a.recv(1, 3);
  w.a.to(IBV_QPS_RESET);
  w.a.nothing();
}

} // namespace

const std::vector<VerbsCase> &verbs_cases() {
  static const std::vector<VerbsCase> all = {
      {"an immediate comes after all data of its own write and of those before it, with the length of its own", imm_after_data},
      {"immediates come in the order of their writes", imm_order},
      {"what is sent inline may be changed at once", inline_is_copied},
      {"an empty write needs neither address nor key, and completes", empty_write},
      {"reads bring what is there", reads},
      {"a queue pair in ERR flushes what is posted, and what is sent then", flushes},
      {"a write with a wrong key ends both queue pairs and changes nothing", wrong_key},
      {"a write beyond its region ends both queue pairs and changes nothing", beyond_region},
      {"a local key that is wrong is a local error", local_key},
      {"a write with immediate waits for a receive, for ever with rnr_retry 7", not_ready_waits},
      {"a write with immediate gives up without a receive, with rnr_retry 1", not_ready_fails},
      {"a peer whose queue pair is gone uses up the tries", peer_gone},
      {"what was sent before the peer could receive comes while the tries last", peer_late},
      {"a queue pair may begin anew and repeat its first packet, which counts once", said_again},
      {"an armed completion queue gives one event", notifies},
      {"a completion queue may be resized, or says that it cannot be", resizes},
      {"a queue pair that is reset forgets its work", reset_forgets},
  };
  return all;
}

} // namespace tutti::net_ib::test
