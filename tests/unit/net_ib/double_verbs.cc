// The calls of the double, with the checks that libibverbs and its drivers make.
#include "double.h"
#include <cerrno>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

namespace tutti::net_ib::test {

using Lock = std::lock_guard<std::recursive_mutex>;

namespace {

DoubleQp &real(ibv_qp *qp) {
  return *reinterpret_cast<DoubleQp *>(qp);
}
DoubleContext &real(ibv_context *c) {
  return *reinterpret_cast<DoubleContext *>(c);
}
void wake(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof one);
}
void drain(int fd) { // of one event
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd, &count, sizeof count);
}
bool of_queue(const ibv_async_event &e) {
  return e.event_type <= IBV_EVENT_PATH_MIG_ERR && e.event_type != IBV_EVENT_CQ_ERR;
}
template <class T> T *refuse(int err) {
  errno = err;
  return nullptr;
}

} // namespace

int DoubleVerbs::fault(const char *call) {
  ++host_.calls[call];
  if (fabric_.steps_inside) fabric_.run(static_cast<int>(fabric_.below(fabric_.steps_inside + 1)));
  for (auto f = host_.faults.begin(); f != host_.faults.end(); ++f) {
    if (f->call != call || --f->n > 0) continue;
    const int err = f->err;
    host_.faults.erase(f);
    return err;
  }
  return 0;
}

std::vector<std::string> DoubleVerbs::devices() {
  std::vector<std::string> out;
  for (const DoubleDevice &d : host_.devices) out.push_back(d.name);
  return out;
}

ibv_context *DoubleVerbs::open(const std::string &device) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("open")) return refuse<ibv_context>(err);
  for (DoubleDevice &d : host_.devices)
    if (d.name == device) {
      auto made = std::make_unique<DoubleContext>();
      made->device = &d;
      made->pub.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
      ibv_context *key = &made->pub;
      fabric_.contexts_[key] = std::move(made);
      return key;
    }
  return refuse<ibv_context>(ENODEV);
}

int DoubleVerbs::close(ibv_context *context) {
  const Lock lock(fabric_.mutex);
  ::close(context->async_fd);
  fabric_.contexts_.erase(context);
  return 0;
}

int DoubleVerbs::query_device(ibv_context *context, ibv_device_attr *out) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("query_device")) return err;
  const DoubleDevice &d = *real(context).device;
  *out = {};
  out->max_qp = d.max_qp;
  out->max_qp_wr = 16384;
  out->max_cqe = d.max_cqe;
  out->max_cq = out->max_mr = out->max_pd = 100000;
  out->max_qp_rd_atom = out->max_qp_init_rd_atom = d.reads;
  out->phys_port_cnt = static_cast<uint8_t>(d.ports.size());
  return 0;
}

int DoubleVerbs::query_port(ibv_context *context, uint8_t port, ibv_port_attr *out) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("query_port")) return err;
  const DoubleDevice &d = *real(context).device;
  if (port < 1 || port > d.ports.size()) return EINVAL;
  const DoublePort &p = d.ports[port - 1u];
  *out = {};
  out->state = p.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->max_mtu = out->active_mtu = p.mtu;
  out->max_msg_sz = p.largest;
  out->gid_tbl_len = 2;
  out->pkey_tbl_len = 1;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  out->active_width = 2;
  out->active_speed = 4;
  return 0;
}

int DoubleVerbs::query_gid(ibv_context *context, uint8_t port, uint32_t index, ibv_gid_entry *out) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("query_gid")) return err;
  const DoubleDevice &d = *real(context).device;
  if (port < 1 || port > d.ports.size() || index > 1) return EINVAL;
  if (index == 1 || !d.ports[port - 1u].has_gid) return ENODATA;
  *out = {};
  out->gid = d.ports[port - 1u].gid;
  out->gid_index = index;
  out->port_num = port;
  out->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}

int DoubleVerbs::query_pkey(ibv_context *, uint8_t, int index, uint16_t *out) {
  *out = 0xffff;
  return index == 0 ? 0 : EINVAL;
}

ibv_pd *DoubleVerbs::alloc_pd(ibv_context *context) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("alloc_pd")) return refuse<ibv_pd>(err);
  auto *pd = new ibv_pd{};
  pd->context = context;
  fabric_.pds_.insert(pd);
  return pd;
}

int DoubleVerbs::dealloc_pd(ibv_pd *pd) {
  const Lock lock(fabric_.mutex);
  for (const auto &[key, mr] : fabric_.mrs_)
    if (mr->pub.pd == pd) return EBUSY;
  fabric_.pds_.erase(pd);
  delete pd;
  return 0;
}

ibv_mr *DoubleVerbs::reg_mr(ibv_pd *pd, void *addr, size_t bytes, unsigned access) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("reg_mr")) return refuse<ibv_mr>(err);
  auto made = std::make_unique<DoubleMr>();
  made->pub.context = pd->context;
  made->pub.pd = pd;
  made->pub.addr = addr;
  made->pub.length = bytes;
  made->pub.lkey = made->pub.rkey = fabric_.next_key_++;
  made->access = access;
  ibv_mr *out = &made->pub;
  fabric_.mrs_[out->lkey] = std::move(made);
  return out;
}

ibv_mr *DoubleVerbs::reg_dmabuf_mr(ibv_pd *pd, uint64_t, size_t bytes, uint64_t addr, int fd, unsigned access) {
  if (fd < 0) return refuse<ibv_mr>(EBADF);
  return reg_mr(pd, reinterpret_cast<void *>(addr), bytes, access);
}

int DoubleVerbs::dereg_mr(ibv_mr *mr) {
  const Lock lock(fabric_.mutex);
  fabric_.mrs_.erase(mr->lkey);
  return 0;
}

ibv_comp_channel *DoubleVerbs::create_comp_channel(ibv_context *context) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("create_comp_channel")) return refuse<ibv_comp_channel>(err);
  auto made = std::make_unique<DoubleChannel>();
  made->pub.context = context;
  made->pub.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  ibv_comp_channel *key = &made->pub;
  fabric_.channels_[key] = std::move(made);
  return key;
}

int DoubleVerbs::destroy_comp_channel(ibv_comp_channel *channel) {
  const Lock lock(fabric_.mutex);
  ::close(channel->fd);
  fabric_.channels_.erase(channel);
  return 0;
}

int DoubleVerbs::get_cq_event(ibv_comp_channel *channel, ibv_cq **cq) {
  const Lock lock(fabric_.mutex);
  DoubleChannel &c = *fabric_.channels_.at(channel);
  if (c.events.empty()) return errno = EAGAIN, -1;
  *cq = c.events.front();
  c.events.pop_front();
  drain(channel->fd);
  return 0;
}

ibv_cq *DoubleVerbs::create_cq(ibv_context *context, int entries, ibv_comp_channel *channel) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("create_cq")) return refuse<ibv_cq>(err);
  if (entries < 1 || entries > real(context).device->max_cqe) return refuse<ibv_cq>(EINVAL);
  auto made = std::make_unique<DoubleCq>();
  made->pub.context = context;
  made->pub.cqe = made->capacity = entries;
  made->channel = channel ? fabric_.channels_.at(channel).get() : nullptr;
  made->device = real(context).device;
  ibv_cq *key = &made->pub;
  fabric_.cqs_[key] = std::move(made);
  return key;
}

int DoubleVerbs::resize_cq(ibv_cq *cq, int entries) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("resize_cq")) return err;
  DoubleCq &c = *fabric_.cqs_.at(cq);
  if (!c.device->resizes) return ENOSYS;
  if (entries > c.device->max_cqe || entries < static_cast<int>(c.entries.size())) return EINVAL;
  c.capacity = cq->cqe = entries;
  return 0;
}

int DoubleVerbs::destroy_cq(ibv_cq *cq) {
  const Lock lock(fabric_.mutex);
  DoubleCq &c = *fabric_.cqs_.at(cq);
  if (c.users > 0) return EBUSY;
  if (c.channel) std::erase(c.channel->events, cq);
  fabric_.cqs_.erase(cq);
  return 0;
}

int DoubleVerbs::req_notify_cq(ibv_cq *cq) {
  const Lock lock(fabric_.mutex);
  fabric_.cqs_.at(cq)->armed = true;
  return 0;
}

int DoubleVerbs::poll_cq(ibv_cq *cq, int n, ibv_wc *out) {
  const Lock lock(fabric_.mutex);
  if (fault("poll_cq")) return -1;
  fabric_.run(fabric_.steps_per_poll);
  DoubleCq &c = *fabric_.cqs_.at(cq);
  int got = 0;
  if (fabric_.steps_inside) n = static_cast<int>(fabric_.below(static_cast<uint64_t>(n) + 1));
  for (; got < n && !c.entries.empty(); ++got) {
    const DoubleCq::Entry &e = c.entries.front();
    out[got] = e.wc;
    if (DoubleQp *qp = fabric_.find(e.wc.qp_num); qp && qp->identity == e.qp) qp->slots -= e.frees;
    c.entries.pop_front();
  }
  return got;
}

ibv_qp *DoubleVerbs::create_qp(ibv_pd *pd, ibv_qp_init_attr *init) {
  const Lock lock(fabric_.mutex);
  if (const int err = fault("create_qp")) return refuse<ibv_qp>(err);
  const DoubleDevice &d = *real(pd->context).device;
  if (init->qp_type != IBV_QPT_RC || init->cap.max_inline_data > static_cast<uint32_t>(d.max_inline))
    return refuse<ibv_qp>(EINVAL);
  auto made = std::make_unique<DoubleQp>();
  made->pub.context = pd->context;
  made->pub.pd = pd;
  made->pub.qp_num = fabric_.next_qpn_++;
  made->identity = fabric_.next_identity_++;
  made->context = &real(pd->context);
  made->send_cq = fabric_.cqs_.at(init->send_cq).get();
  made->recv_cq = fabric_.cqs_.at(init->recv_cq).get();
  ++made->send_cq->users;
  ++made->recv_cq->users;
  made->cap = init->cap;
  made->attr.qp_state = IBV_QPS_RESET;
  ibv_qp *out = &made->pub;
  fabric_.qps_[out->qp_num] = std::move(made);
  return out;
}

int DoubleVerbs::modify_qp(ibv_qp *pub, ibv_qp_attr *attr, int mask) {
  const Lock lock(fabric_.mutex);
  static const std::map<int, const char *> names = {{IBV_QPS_RESET, "to_reset"},
                                                    {IBV_QPS_INIT, "to_init"},
                                                    {IBV_QPS_RTR, "to_rtr"},
                                                    {IBV_QPS_RTS, "to_rts"},
                                                    {IBV_QPS_ERR, "to_err"}};
  if (!(mask & IBV_QP_STATE) || !names.count(attr->qp_state)) return EINVAL;
  if (const int err = fault(names.at(attr->qp_state))) return err;
  DoubleQp &qp = real(pub);
  const ibv_qp_state from = qp.attr.qp_state, to = attr->qp_state;
  if (to == IBV_QPS_ERR) return fabric_.to_error(qp), 0;
  if (to == IBV_QPS_RESET) {
    qp.sends.clear();
    qp.receives.clear();
    qp.transmitted = qp.slots = qp.unreported = 0;
    qp.tries = qp.rnr_tries = 0;
    qp.identity = fabric_.next_identity_++;
    if (qp.flow) qp.flow->from = nullptr; // what is on its way stays there
    qp.flow = nullptr;
    qp.attr.qp_state = to;
    return 0;
  }
  if (to == IBV_QPS_INIT) {
    constexpr int needs = IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    if (from != IBV_QPS_RESET || (mask & needs) != needs) return EINVAL;
    if (attr->port_num < 1 || attr->port_num > qp.context->device->ports.size()) return EINVAL;
    qp.port = &qp.context->device->ports[attr->port_num - 1u];
    qp.attr.qp_access_flags = attr->qp_access_flags;
  } else if (to == IBV_QPS_RTR) {
    constexpr int needs =
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (from != IBV_QPS_INIT || (mask & needs) != needs || !attr->ah_attr.is_global) return EINVAL;
    if (!qp.port->has_gid) return ENODATA;
    if (attr->path_mtu > qp.port->mtu || attr->max_dest_rd_atomic > qp.context->device->reads) return EINVAL;
    qp.attr.path_mtu = attr->path_mtu;
    qp.attr.ah_attr = attr->ah_attr;
    qp.attr.dest_qp_num = attr->dest_qp_num;
    qp.expected_psn = attr->rq_psn;
  } else if (to == IBV_QPS_RTS) {
    constexpr int needs = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    if (from != IBV_QPS_RTR || (mask & needs) != needs) return EINVAL;
    qp.attr.retry_cnt = attr->retry_cnt;
    qp.attr.rnr_retry = attr->rnr_retry;
    qp.next_psn = attr->sq_psn;
  }
  qp.pub.state = qp.attr.qp_state = to;
  return 0;
}

// As libibverbs has it: events that nobody has taken go with the queue pair, and those that somebody has taken are waited for.
int DoubleVerbs::destroy_qp(ibv_qp *pub) {
  std::unique_lock lock(fabric_.mutex);
  DoubleQp &qp = real(pub);
  const auto of_it = [&](const ibv_async_event &e) { return of_queue(e) && e.element.qp == pub; };
  for (size_t gone = std::erase_if(qp.context->events, of_it); gone > 0; gone--) drain(qp.context->pub.async_fd);
  fabric_.acknowledged.wait(lock, [&] { return qp.unacknowledged == 0; });
  const auto purge = [&](DoubleCq &cq) {
    std::erase_if(cq.entries, [&](const DoubleCq::Entry &e) { return e.qp == qp.identity; });
  };
  if (qp.context->device->purges) purge(*qp.send_cq), purge(*qp.recv_cq);
  fabric_.drop_qp(qp);
  return 0;
}

int DoubleVerbs::check_send(const DoubleQp &qp, const ibv_send_wr &wr) const {
  if (qp.attr.qp_state != IBV_QPS_RTS && qp.attr.qp_state != IBV_QPS_ERR) return EINVAL;
  if (wr.num_sge > 1 || wr.num_sge < 0) return EINVAL;
  if (wr.opcode != IBV_WR_RDMA_WRITE && wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM && wr.opcode != IBV_WR_RDMA_READ) return EINVAL;
  const uint32_t bytes = wr.num_sge ? wr.sg_list->length : 0;
  if ((wr.send_flags & IBV_SEND_INLINE) && (bytes > qp.cap.max_inline_data || wr.opcode == IBV_WR_RDMA_READ)) return EINVAL;
  if (qp.context->device->strict_sends && qp.slots >= qp.cap.max_send_wr) return ENOMEM;
  return 0;
}

int DoubleVerbs::post_send(ibv_qp *pub, ibv_send_wr *wr, ibv_send_wr **bad) {
  const Lock lock(fabric_.mutex);
  DoubleQp &qp = real(pub);
  for (; wr; wr = wr->next) {
    int err = fault("post_send");
    if (!err) err = check_send(qp, *wr);
    if (err) {
      *bad = wr;
      return err;
    }
    DoubleQp::Send s{*wr, {}, {}, 0, 1};
    if (wr->num_sge) s.part = *wr->sg_list;
    if ((wr->send_flags & IBV_SEND_INLINE) && s.part.length) {
      const auto *from = reinterpret_cast<const uint8_t *>(s.part.addr);
      s.data.assign(from, from + s.part.length);
    }
    const uint32_t mtu = 128u << qp.attr.path_mtu;
    s.packets = std::max(1u, (s.part.length + mtu - 1) / mtu);
    s.psn = qp.next_psn;
    qp.next_psn = (qp.next_psn + s.packets) & 0xffffff;
    qp.sends.push_back(std::move(s));
    ++qp.slots;
  }
  return 0;
}

int DoubleVerbs::post_recv(ibv_qp *pub, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const Lock lock(fabric_.mutex);
  DoubleQp &qp = real(pub);
  for (; wr; wr = wr->next) {
    int err = fault("post_recv");
    if (!err && qp.attr.qp_state == IBV_QPS_RESET) err = EINVAL;
    if (!err && qp.receives.size() >= qp.cap.max_recv_wr) err = ENOMEM;
    if (err) {
      *bad = wr;
      return err;
    }
    if (qp.attr.qp_state != IBV_QPS_ERR || qp.context->device->flushes_late) qp.receives.push_back(wr->wr_id);
  }
  return 0;
}

int DoubleVerbs::get_async_event(ibv_context *context, ibv_async_event *out) {
  const Lock lock(fabric_.mutex);
  DoubleContext &c = real(context);
  if (c.events.empty()) return errno = EAGAIN, -1;
  *out = c.events.front();
  c.events.pop_front();
  if (of_queue(*out)) real(out->element.qp).unacknowledged++;
  drain(context->async_fd);
  return 0;
}

void DoubleVerbs::ack_async_event(ibv_async_event *event) {
  if (!of_queue(*event)) return;
  {
    const Lock lock(fabric_.mutex);
    real(event->element.qp).unacknowledged--;
  }
  fabric_.acknowledged.notify_all();
}

void Fabric::event(DoubleContext &context, ibv_event_type type, int port, DoubleQp *qp) {
  ibv_async_event e{};
  e.event_type = type;
  if (qp)
    e.element.qp = &qp->pub;
  else
    e.element.port_num = port;
  context.events.push_back(e);
  wake(context.pub.async_fd);
}

void Fabric::push(DoubleCq &cq, const ibv_wc &wc, const DoubleQp &qp, uint32_t frees) {
  if (static_cast<int>(cq.entries.size()) >= cq.capacity) {
    ++overflows; // and the completion is lost
    return;
  }
  cq.entries.push_back({wc, qp.identity, frees});
  if (!std::exchange(cq.armed, false) || !cq.channel) return;
  cq.channel->events.push_back(&cq.pub);
  wake(cq.channel->pub.fd);
}

} // namespace tutti::net_ib::test
