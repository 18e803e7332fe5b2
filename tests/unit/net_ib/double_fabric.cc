// What happens between the calls: the steps of the double.
#include "double.h"
#include <arpa/inet.h>
#include <cstring>

namespace tutti::net_ib::test {

using Lock = std::lock_guard<std::recursive_mutex>;

namespace {

constexpr uint32_t psn_mask = 0xffffff;
constexpr uint32_t header_bytes = 58; // Ethernet, IPv4, UDP, BTH, ICRC of RoCEv2
constexpr uint32_t reth_bytes = 16, imm_bytes = 4, aeth_bytes = 4;

bool older(uint32_t a, uint32_t b) {
  return ((a - b) & psn_mask) > psn_mask / 2;
}
bool carries_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

} // namespace

Fabric::~Fabric() {
  for (ibv_pd *pd : pds_) delete pd; // of processes that were killed
}

Machine &Fabric::host(const std::string &name, const std::vector<std::string> &devices) {
  Machine &h = hosts.emplace_back(*this, name);
  for (const std::string &d : devices) {
    DoubleDevice &made = h.devices.emplace_back();
    made.name = d;
    made.host = &h;
    DoublePort port;
    const uint8_t number = static_cast<uint8_t>(hosts.size()), rail = static_cast<uint8_t>(h.devices.size());
    const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, rail, 0, number};
    std::memcpy(port.gid.raw, gid, sizeof gid);
    made.ports.push_back(port);
  }
  return h;
}

std::vector<uint32_t> Fabric::queue_pairs(const DoubleDevice &device) const {
  std::vector<uint32_t> out;
  for (const auto &[qpn, qp] : qps_)
    if (qp->context->device == &device) out.push_back(qpn);
  return out;
}

DoubleQp *Fabric::find(uint32_t qpn) {
  const auto it = qps_.find(qpn);
  return it == qps_.end() ? nullptr : it->second.get();
}

Flow &Fabric::flow_of(DoubleQp &qp) {
  if (qp.flow) return *qp.flow;
  Flow &f = flows_.emplace_back();
  f.from = &qp;
  f.from_qpn = qp.pub.qp_num;
  f.to_qpn = qp.attr.dest_qp_num;
  f.from_gid = qp.port->gid;
  f.to_gid = qp.attr.ah_attr.grh.dgid;
  f.port = qp.port;
  return *(qp.flow = &f);
}

void Fabric::collect(std::vector<Action> &out) {
  out.clear();
  for (auto &[qpn, qp] : qps_) {
    if (qp->attr.qp_state == IBV_QPS_RTS && qp->transmitted < qp->sends.size())
      out.push_back({Action::transmit, qp.get(), nullptr});
    if (qp->attr.qp_state != IBV_QPS_ERR) continue;
    if (!qp->sends.empty()) out.push_back({Action::flush_send, qp.get(), nullptr});
    if (!qp->receives.empty()) out.push_back({Action::flush_receive, qp.get(), nullptr});
  }
  for (auto it = flows_.begin(); it != flows_.end();) {
    const bool waits = it->port->slow && below(16);
    if (!it->letters.empty() && !waits) out.push_back({Action::deliver, nullptr, &*it});
    if (!it->acks.empty() && !waits) out.push_back({Action::ack, nullptr, &*it});
    it = !it->from && it->letters.empty() && it->acks.empty() ? flows_.erase(it) : std::next(it);
  }
}

bool Fabric::step() {
  const Lock lock(mutex);
  collect(actions_);
  if (actions_.empty()) return false;
  const Action a = actions_[below(actions_.size())];
  switch (a.kind) {
  case Action::transmit:
    transmit(*a.qp);
    break;
  case Action::deliver:
    deliver(*a.flow);
    break;
  case Action::ack:
    acknowledge(*a.flow);
    break;
  case Action::flush_send:
    flush_send(*a.qp);
    break;
  case Action::flush_receive:
    flush_receive(*a.qp);
    break;
  }
  return true;
}

uint8_t *Fabric::reach(const DoubleQp &qp, uint32_t key, uint64_t addr, uint64_t bytes, unsigned access, bool remote) {
  const auto it = mrs_.find(key);
  if (it == mrs_.end()) return nullptr;
  const DoubleMr &mr = *it->second;
  const auto start = reinterpret_cast<uint64_t>(mr.pub.addr);
  if (mr.pub.pd != qp.pub.pd || (mr.access & access) != access) return nullptr;
  if (remote && (qp.attr.qp_access_flags & access) != access) return nullptr;
  if (addr < start || bytes > mr.pub.length || addr - start > mr.pub.length - bytes) return nullptr;
  return reinterpret_cast<uint8_t *>(addr);
}

void Fabric::transmit(DoubleQp &qp) {
  DoubleQp::Send &s = qp.sends[qp.transmitted];
  if (!qp.port->up && qp.context->device->send_fails_when_down) return fail_send(qp, IBV_WC_LOC_QP_OP_ERR);
  const uint32_t bytes = s.part.length;
  const bool read = s.wr.opcode == IBV_WR_RDMA_READ, is_inline = s.wr.send_flags & IBV_SEND_INLINE;
  const uint8_t *from = nullptr;
  if (bytes && !is_inline &&
      !(from = reach(qp, s.part.lkey, s.part.addr, bytes, read ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u, false)))
    return fail_send(qp, IBV_WC_LOC_PROT_ERR);
  Letter l;
  l.opcode = s.wr.opcode;
  if (is_inline)
    l.data = s.data;
  else if (bytes && !read)
    l.data.assign(from, from + bytes);
  l.bytes = bytes;
  l.remote = s.wr.wr.rdma.remote_addr;
  l.rkey = s.wr.wr.rdma.rkey;
  l.imm = s.wr.imm_data;
  l.psn = s.psn;
  l.packets = s.packets;
  ++letters;
  packets += read ? 1 : l.packets;
  wire_bytes += (read ? header_bytes : l.packets * header_bytes + bytes) + reth_bytes + (carries_imm(l.opcode) ? imm_bytes : 0);
  flow_of(qp).letters.push_back(std::move(l));
  ++qp.transmitted;
}

bool Fabric::connected(const Flow &f, DoubleQp *to) const {
  if (!to || to->context->device->host->dead) return false;
  if (to->attr.qp_state != IBV_QPS_RTR && to->attr.qp_state != IBV_QPS_RTS) return false;
  if (!f.port->up || f.port->drops || !to->port->up || to->port->drops) return false;
  const auto same = [](const ibv_gid &a, const ibv_gid &b) { return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0; };
  return to->attr.dest_qp_num == f.from_qpn && same(to->port->gid, f.to_gid) && same(to->attr.ah_attr.grh.dgid, f.from_gid);
}

// All that was not acknowledged is sent again, unless the tries are used up.
void Fabric::lose(Flow &f) {
  f.letters.clear();
  if (!f.from) return;
  DoubleQp &qp = *f.from;
  f.acks.clear();
  if (qp.attr.qp_state != IBV_QPS_RTS || qp.sends.empty()) return;
  qp.transmitted = 0;
  if (++qp.tries > qp.attr.retry_cnt) fail_send(qp, IBV_WC_RETRY_EXC_ERR);
}

void Fabric::deliver(Flow &f) {
  Letter &l = f.letters.front();
  DoubleQp *to = find(f.to_qpn);
  if (!connected(f, to) || below(1000) < loss) return lose(f);
  const bool read = l.opcode == IBV_WR_RDMA_READ;
  if (l.psn != to->expected_psn) {
    if (!older(l.psn, to->expected_psn)) return lose(f); // one before it is missing
    ++duplicates;
    if (!read) { // known: acknowledged, and not carried out
      if (f.from) f.acks.push_back({l.psn, {}, IBV_WC_SUCCESS});
      f.letters.pop_front();
      return;
    }
  }
  if (!f.from) ++late_letters;
  const auto refuse = [&](ibv_wc_status status) {
    event(*to->context, IBV_EVENT_QP_ACCESS_ERR, 0, to);
    to_error(*to);
    if (f.from) f.acks.push_back({l.psn, {}, status});
    f.letters.clear();
  };
  uint8_t *at = nullptr;
  const unsigned access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if (l.bytes && !(at = reach(*to, l.rkey, l.remote, l.bytes, access, true))) return refuse(IBV_WC_REM_ACCESS_ERR);
  if (!read && l.landed < l.bytes) { // some packets
    const uint64_t mtu = 128u << to->attr.path_mtu, left = l.bytes - l.landed;
    const uint64_t now = std::min(left, mtu * (1 + below(l.packets)));
    std::memcpy(at + l.landed, l.data.data() + l.landed, now);
    l.landed += now;
    if (l.landed < l.bytes || below(2)) return; // what completes it comes later
  }
  if (carries_imm(l.opcode) && to->receives.empty()) {
    ++rnr;
    if (f.from && f.from->attr.rnr_retry != 7 && ++f.from->rnr_tries > f.from->attr.rnr_retry) {
      DoubleQp &qp = *f.from;
      f.letters.clear();
      fail_send(qp, IBV_WC_RNR_RETRY_EXC_ERR);
    }
    return;
  }
  if (carries_imm(l.opcode)) {
    ibv_wc wc{};
    wc.wr_id = to->receives.front();
    to->receives.pop_front();
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.byte_len = static_cast<uint32_t>(l.bytes);
    wc.imm_data = l.imm;
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.qp_num = to->pub.qp_num;
    push(*to->recv_cq, wc, *to, 0);
  }
  if (l.psn == to->expected_psn) to->expected_psn = (to->expected_psn + l.packets) & psn_mask;
  Ack ack{l.psn, {}, IBV_WC_SUCCESS};
  if (read && l.bytes) ack.data.assign(at, at + l.bytes);
  ++packets;
  wire_bytes += header_bytes + aeth_bytes;
  if (f.from) f.acks.push_back(std::move(ack));
  f.letters.pop_front();
}

void Fabric::acknowledge(Flow &f) {
  DoubleQp *qp = f.from;
  if (!qp || qp->attr.qp_state != IBV_QPS_RTS) return f.acks.clear();
  if (!qp->port->up || qp->port->drops || below(1000) < loss) {
    const bool only = f.letters.empty();
    f.acks.clear();
    return only ? lose(f) : void();
  }
  Ack a = std::move(f.acks.front());
  f.acks.pop_front();
  qp->tries = qp->rnr_tries = 0;
  if (a.status != IBV_WC_SUCCESS) {
    while (!qp->sends.empty() && qp->sends.front().psn != a.psn) complete_send(*qp, IBV_WC_SUCCESS);
    return fail_send(*qp, a.status);
  }
  if (std::none_of(qp->sends.begin(), qp->sends.end(), [&](const auto &s) { return s.psn == a.psn; })) return;
  for (bool last = false; !last;) { // an acknowledgement stands for those before it; reads have answers of their own
    DoubleQp::Send &s = qp->sends.front();
    last = s.psn == a.psn;
    if (s.wr.opcode == IBV_WR_RDMA_READ) {
      if (!last) return lose(f); // its answer was lost: again
      if (s.part.length) {
        uint8_t *to = reach(*qp, s.part.lkey, s.part.addr, s.part.length, IBV_ACCESS_LOCAL_WRITE, false);
        if (!to) return fail_send(*qp, IBV_WC_LOC_PROT_ERR);
        std::memcpy(to, a.data.data(), s.part.length);
      }
    }
    complete_send(*qp, IBV_WC_SUCCESS);
  }
}

void Fabric::complete_send(DoubleQp &qp, ibv_wc_status status) {
  const DoubleQp::Send &s = qp.sends.front();
  ++qp.unreported;
  if (status != IBV_WC_SUCCESS || (s.wr.send_flags & IBV_SEND_SIGNALED)) {
    ibv_wc wc{};
    wc.wr_id = s.wr.wr_id;
    wc.status = status;
    wc.opcode = s.wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
    wc.qp_num = qp.pub.qp_num;
    wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x81;
    push(*qp.send_cq, wc, qp, std::exchange(qp.unreported, 0));
  }
  qp.sends.pop_front();
  if (qp.transmitted) --qp.transmitted;
}

void Fabric::fail_send(DoubleQp &qp, ibv_wc_status status) {
  if (!qp.sends.empty()) complete_send(qp, status);
  to_error(qp);
}

void Fabric::to_error(DoubleQp &qp) {
  qp.pub.state = qp.attr.qp_state = IBV_QPS_ERR;
  if (!qp.flow) return;
  qp.flow->from = nullptr; // what is on its way stays there
  qp.flow->acks.clear();
  qp.flow = nullptr;
}

void Fabric::flush_send(DoubleQp &qp) {
  complete_send(qp, IBV_WC_WR_FLUSH_ERR);
}

void Fabric::flush_receive(DoubleQp &qp) {
  ibv_wc wc{};
  wc.wr_id = qp.receives.front();
  qp.receives.pop_front();
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qp.pub.qp_num;
  push(*qp.recv_cq, wc, qp, 0);
}

void Fabric::drop_qp(DoubleQp &qp) {
  if (qp.flow) qp.flow->from = nullptr;
  --qp.send_cq->users;
  --qp.recv_cq->users;
  qps_.erase(qp.pub.qp_num);
}

void Fabric::set_link(DoubleDevice &device, size_t port, bool up) {
  const Lock lock(mutex);
  device.ports[port].up = up;
  for (auto &[key, context] : contexts_)
    if (context->device == &device)
      event(*context, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, static_cast<int>(port + 1), nullptr);
}

void Fabric::kill(Machine &host) {
  const Lock lock(mutex);
  host.dead = true;
  for (auto &[qpn, qp] : qps_)
    if (qp->context->device->host == &host) {
      qp->sends.clear();
      qp->receives.clear();
      qp->transmitted = 0;
      if (qp->flow) qp->flow->from = nullptr;
      qp->flow = nullptr;
      qp->pub.state = qp->attr.qp_state = IBV_QPS_RESET;
    }
}

void Fabric::break_qp(uint32_t qpn) {
  const Lock lock(mutex);
  if (DoubleQp *qp = find(qpn)) fail_send(*qp, IBV_WC_RETRY_EXC_ERR);
}

} // namespace tutti::net_ib::test
