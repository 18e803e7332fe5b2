// tutti/plugins/net-ib/queue_pair.cc
#include "queue_pair.h"
#include "context.h"
#include "explain.h"
#include <bit>
#include <cerrno>

namespace tutti::net_ib {

namespace {

constexpr uint32_t sequence_bits = 24, sequence_mask = (1u << sequence_bits) - 1;
constexpr uint64_t receive_bit = uint64_t{1} << 63;
constexpr uint8_t hop_limit = 64;
constexpr uint64_t request_cost = 64; // bytes of the wire, about, beside the data of a request

} // namespace

QueuePair::QueuePair(Context &ctx, Rail &rail, QueueOwner &owner, Place place, const QueueShape &shape)
    : ctx_(ctx), rail_(rail), owner_(&owner), place_(place), shape_(shape), posted_(std::bit_ceil(shape.sends)) {
  const uint32_t entries = shape_.sends + shape_.receives;
  completions_ = &rail.hca->reserve(entries);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = completions_->cq;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = shape_.sends;
  init.cap.max_recv_wr = shape_.receives;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  // There is no way to ask how much goes inline but to try.
  for (uint32_t bytes = shape_.inline_bytes;; bytes /= 2) {
    init.cap.max_inline_data = bytes;
    ibv_qp_init_attr attempt = init;
    qp_ = ctx_.verbs().create_qp(rail.hca->pd(), &attempt);
    if (qp_) inline_ = std::min(attempt.cap.max_inline_data, shape_.inline_bytes);
    if (qp_ || bytes == 0 || (errno != EINVAL && errno != ENOMEM)) break;
  }
  const int err = qp_ ? 0 : errno;
  const auto undo = [&] {
    disown();
    if (qp_) ctx_.verbs().destroy_qp(qp_);
    rail.hca->release(*completions_, entries);
  };
  int started = 0;
  try {
    if (qp_) slot_ = ctx_.enter(this);
    if (qp_) started = start_again();
  } catch (...) { // more of them than the context counts
    undo();
    throw;
  }
  if (qp_ && started == 0) return;
  undo();
  if (started) plugin::fail(TUTTI_ERR_SYSTEM, explain_modify_qp(started, IBV_QPS_INIT, {&rail.port, "", 0}));
  plugin::fail(err == ENOMEM ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_SYSTEM,
               explain_create_qp(err, rail.port, shape_.sends, shape_.receives, shape_.inline_bytes));
}

void QueuePair::disown() {
  if (slot_ != nowhere) ctx_.leave(std::exchange(slot_, nowhere));
}

QueuePair::~QueuePair() {
  disown();
  ctx_.verbs().destroy_qp(qp_);
  rail_.hca->release(*completions_, shape_.sends + shape_.receives);
}

uint64_t QueuePair::id(bool receive, uint32_t sequence) const {
  return (receive ? receive_bit : 0) | slot_ << sequence_bits | (sequence & sequence_mask);
}

int QueuePair::start_again() {
  ibv_qp_attr attr{};
  if (stopped_) {
    attr.qp_state = IBV_QPS_RESET;
    if (const int err = ctx_.verbs().modify_qp(qp_, &attr, IBV_QP_STATE)) return err;
    disown();
    slot_ = ctx_.enter(this);
    stopped_ = broken_ = wired_ = false;
    used_up_ = 0;
  }
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = rail_.port.port;
  attr.pkey_index = rail_.port.pkey_index;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (const int err = ctx_.verbs().modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS))
    return err;
  return stock(shape_.receives);
}

int QueuePair::wire(const Peer &peer, ibv_qp_state &step) {
  const Settings &s = ctx_.settings();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(rail_.port.mtu, static_cast<ibv_mtu>(peer.port.mtu));
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = (psn_of(*peer.card, peer.qpn) + arrivals_) & 0xffffff; // what came before it started again came once
  attr.max_dest_rd_atomic = std::min(peer.mine->reads_in, peer.card->reads_out);
  attr.min_rnr_timer = s.min_rnr_timer;
  attr.ah_attr.port_num = rail_.port.port;
  attr.ah_attr.sl = s.service_level;
  attr.ah_attr.dlid = peer.port.lid;
  if (rail_.port.needs_grh(peer.port.gid)) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer.port.gid;
    attr.ah_attr.grh.sgid_index = rail_.port.sgid_index();
    attr.ah_attr.grh.hop_limit = hop_limit;
    attr.ah_attr.grh.traffic_class = s.traffic_class;
  }
  step = IBV_QPS_RTR;
  int err = ctx_.verbs().modify_qp(qp_, &attr,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (err) return err;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn_of(*peer.mine, number());
  attr.timeout = s.timeout;
  attr.retry_cnt = s.retry_count;
  attr.rnr_retry = s.rnr_retry;
  attr.max_rd_atomic = std::min(peer.mine->reads_out, peer.card->reads_in);
  step = IBV_QPS_RTS;
  err = ctx_.verbs().modify_qp(qp_, &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                   IBV_QP_MAX_QP_RD_ATOMIC);
  wired_ = err == 0;
  return err;
}

void QueuePair::stop() noexcept {
  if (std::exchange(stopped_, true)) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ctx_.verbs().modify_qp(qp_, &attr, IBV_QP_STATE);
}

int QueuePair::stock(uint32_t n) {
  ibv_recv_wr list[restock]{};
  while (n > 0) {
    const uint32_t now = std::min(n, restock);
    for (uint32_t i = 0; i < now; ++i) {
      list[i].wr_id = id(true, 0);
      list[i].next = i + 1 < now ? &list[i + 1] : nullptr;
    }
    ibv_recv_wr *bad = nullptr;
    const int err = ctx_.verbs().post_recv(qp_, list, &bad);
    stocked_ += err == 0 ? now : bad ? static_cast<uint32_t>(bad - list) : 0;
    if (err) return err;
    n -= now;
  }
  return 0;
}

void QueuePair::add(ibv_send_wr &wr, const void *addr, uint32_t bytes, uint32_t lkey, bool may_inline, const Posted &p) {
  ibv_sge &part = parts_[running_];
  part = {reinterpret_cast<uint64_t>(addr), bytes, lkey};
  carried_ += bytes + request_cost;
  wr.wr_id = id(false, tail_);
  wr.sg_list = bytes ? &part : nullptr;
  wr.num_sge = bytes ? 1 : 0;
  wr.send_flags = may_inline && bytes && bytes <= inline_ ? IBV_SEND_INLINE : 0;
  run_[running_++] = wr;
  posted_[tail_++ & (posted_.size() - 1)] = p;
  if (running_ == chain) flush();
}

void QueuePair::flush() {
  if (running_ == 0) return;
  const uint32_t n = std::exchange(running_, 0);
  for (uint32_t i = 0; i < n; ++i) run_[i].next = i + 1 < n ? &run_[i + 1] : nullptr;
  run_[n - 1].send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr *bad = nullptr;
  const int err = stopped_ ? EINVAL : ctx_.verbs().post_send(qp_, run_, &bad);
  if (err == 0) return;
  const uint32_t done = bad ? static_cast<uint32_t>(bad - run_) : 0;
  const uint32_t end = std::exchange(tail_, tail_ - (n - done));
  for (uint32_t i = tail_; i != end; ++i) owner_->unposted(*this, posted_[i & (posted_.size() - 1)]);
  owner_->refused(*this, err);
}

void QueuePair::completed(const ibv_wc &wc) {
  const bool ok = wc.status == IBV_WC_SUCCESS;
  if (!ok && !std::exchange(broken_, true)) owner_->broken(*this, wc);
  if (wc.wr_id & receive_bit) {
    --stocked_;
    if (!ok) return;
    ++arrivals_;
    const Tag tag = Tag::from(ntohl(wc.imm_data));
    if (tag.imm() != Tag::note(Note::hello).imm()) fresh_ = false;
    owner_->arrived(*this, tag, wc.byte_len);
    if (stopped_ || ++used_up_ < restock) return;
    if (const int err = stock(std::exchange(used_up_, 0))) owner_->refused(*this, err);
    return;
  }
  const uint32_t ahead = (static_cast<uint32_t>(wc.wr_id) - head_) & sequence_mask;
  if (ahead >= tail_ - head_) return;
  for (uint32_t i = 0; i <= ahead; ++i) {
    const Posted p = posted_[head_++ & (posted_.size() - 1)];
    if (ok || i < ahead)
      owner_->acknowledged(*this, p);
    else
      owner_->lost(*this, p);
  }
}

} // namespace tutti::net_ib
