// tutti/plugins/net-ib/reads.cc
#include "reads.h"
#include "endpoint.h"

namespace tutti::net_ib {

void Reads::open(uint32_t calls, uint32_t most_shares) {
  most_ = most_shares;
  reads_.resize(calls);
  homes_.resize(size_t{calls} * most_);
  again_.reserve(size_t{calls} * most_);
}

tutti_status Reads::post(const tutti_net_buf &to, uint64_t remote, const ReadKey &key, uint64_t cookie) {
  if (busy_ == reads_.size()) return TUTTI_AGAIN;
  const auto *mr = reinterpret_cast<const Mr *>(to.mr);
  if (to.bytes && !(mr && mr->holds(to.addr, to.bytes)))
    plugin::fail(TUTTI_ERR_INVALID, "a read into ", to.bytes, " bytes that are not registered: net-ib needs every buffer so");
  const uint64_t at = remote - key.addr;
  const bool inside = at <= key.bytes && to.bytes <= key.bytes - at && key.ports == ep_.peer().ports;
  if (inside && to.bytes == 0) {
    ep_.ctx().complete(cookie, 0, TUTTI_OK);
    return TUTTI_OK;
  }
  if (!inside || to.bytes > ep_.largest()) {
    const std::string why =
        plugin::text("a read of ", to.bytes, " bytes at ", remote,
                     inside ? ": the largest has " : ", which are not all in the region of the key: it has ",
                     inside ? ep_.largest() : key.bytes, " bytes", inside ? "" : " at ",
                     inside ? std::string() : std::to_string(key.addr), " and ", key.ports, " ports");
    ep_.ctx().complete(cookie, 0, TUTTI_ERR_INVALID, std::make_shared<const std::string>(why));
    return TUTTI_OK;
  }
  const auto number =
      static_cast<uint64_t>(std::find_if(reads_.begin(), reads_.end(), [](const Read &r) { return !r.used; }) - reads_.begin());
  Read &r = reads_[number];
  const Settings &s = ep_.ctx().settings();
  r = {to,  remote, cookie,
       0,   key,    Split::of(to.bytes, s.split_data ? std::min(std::max(1u, ep_.share_limit()), most_) : 1, s.split_min),
       true};
  r.missing = (uint64_t{1} << r.split.count) - 1;
  ++busy_;
  for (uint32_t i = 0; i < r.split.count; ++i) again_.push_back({number, static_cast<uint8_t>(i)});
  pump();
  return TUTTI_OK;
}

bool Reads::post_share(const Share &s) {
  const Read &r = reads_[s.number];
  const uint32_t piece = ep_.piece();
  const uint64_t bytes = r.split.length(s.share), offset = r.split.offset(s.share);
  QueuePair *qp = ep_.next_queue(static_cast<uint32_t>((bytes + piece - 1) / piece));
  if (!qp) return false;
  homes_[s.number * most_ + s.share] = Home::of(*qp);
  const auto *mr = reinterpret_cast<const Mr *>(r.to.mr);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma.rkey = r.key.rkey[ep_.peer_port(*qp)];
  for (uint64_t done = 0; done < bytes; done += piece) {
    const bool last = bytes - done <= piece;
    wr.wr.rdma.remote_addr = r.remote + offset + done;
    qp->add(wr, static_cast<uint8_t *>(r.to.addr) + offset + done,
            static_cast<uint32_t>(std::min<uint64_t>(piece, bytes - done)), mr->lkey(qp->rail()), false,
            {s.number, last ? Work::read : Work::piece, s.share});
  }
  qp->flush();
  return true;
}

void Reads::pump() {
  size_t posted = 0;
  while (posted < again_.size() && ep_.works()) {
    const Share s = again_[posted];
    if (!post_share(s)) break;
    ++posted;
  }
  if (posted) again_.erase(again_.begin(), again_.begin() + static_cast<std::ptrdiff_t>(posted));
}

void Reads::acknowledged(uint64_t number, uint8_t share) {
  Read &r = reads_[number];
  r.missing &= ~(uint64_t{1} << share);
  if (!r.used || r.missing) return;
  r.used = false;
  --busy_;
  ep_.ctx().complete(r.cookie, r.to.bytes, TUTTI_OK);
}

void Reads::unposted(uint64_t number, uint8_t share) {
  homes_[number * most_ + share] = {};
  again_.push_back({number, share});
}

void Reads::replay(const Path &path) {
  for (uint64_t number = 0; number < reads_.size(); ++number)
    for (uint32_t share = 0; reads_[number].used && share < reads_[number].split.count; ++share) {
      Home &home = homes_[number * most_ + share];
      if (!(reads_[number].missing >> share & 1) || !home.at(path)) continue;
      home = {};
      again_.push_back({number, static_cast<uint8_t>(share)});
    }
}

void Reads::finish(tutti_status status) {
  for (Read &r : reads_) {
    if (r.used) ep_.ctx().complete(r.cookie, 0, status, ep_.why());
    r.used = false;
  }
  busy_ = 0;
  again_.clear();
}

} // namespace tutti::net_ib
