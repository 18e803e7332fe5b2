// tutti/plugins/net-ib/endpoint.cc: posts, completions, failure and the end.
#include "endpoint.h"
#include <cstdlib>

namespace tutti::net_ib {

using plugin::text;

constexpr auto farewell_limit = std::chrono::seconds(2);
// Errors of what was asked, not of the way: the same would happen on another path.
static bool is_for_good(ibv_wc_status status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_ACCESS_ERR ||
         status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
         status == IBV_WC_REM_INV_RD_REQ_ERR;
}

constexpr auto grace = std::chrono::seconds(2); // to be ready with fewer paths than there could be

Window::Window(Context &ctx, const WindowShape &shape) : shape_(shape) {
  constexpr size_t page = 4096;
  const size_t bytes = (shape.bytes() + page - 1) / page * page;
  memory_.reset(static_cast<uint8_t *>(std::aligned_alloc(page, bytes)));
  if (!memory_) plugin::fail(TUTTI_ERR_NO_MEMORY, "no memory for ", bytes, " bytes of credits");
  std::memset(memory_.get(), 0, bytes);
  tutti_region region{};
  region.struct_size = sizeof region;
  region.kind = TUTTI_MEM_HOST;
  region.addr = memory_.get();
  region.bytes = bytes;
  region.device = region.dmabuf_fd = -1;
  mr_ = std::make_unique<Mr>(ctx, region, false); // what is written last must not pass what is written first
}

Endpoint::Endpoint(Context &ctx, bool receives)
    : NetObject(ctx.host()), ctx_(ctx), receives_data_(receives), sends_(*this), receives_(*this), reads_(*this) {}

Endpoint::~Endpoint() {
  ctx_.remove(this);
  ctx_.empty_graves();                   // its own are among them
  for (Path &p : paths_) p.data.clear(); // nothing is written into posted buffers, or read from them, any more
  auto farewell = std::make_unique<Farewell>(*this, ctx_.now() + farewell_limit);
  if (!farewell->over(ctx_.now())) ctx_.add(std::move(farewell));
  sends_.finish(TUTTI_ERR_CANCELLED);
  receives_.finish(TUTTI_ERR_CANCELLED);
  reads_.finish(TUTTI_ERR_CANCELLED);
  ctx_.release_completions(completions_);
}

bool Endpoint::ready() {
  if (failed_ == TUTTI_OK && !ready_ && connected_) {
    const Time now = ctx_.now();
    look_after(now);
    const auto carries = [](const Path &p) { return !p.spare && usable(p); };
    const auto active = std::count_if(paths_.begin(), paths_.end(), [](const Path &p) { return !p.spare; });
    const auto up = std::count_if(paths_.begin(), paths_.end(), carries);
    const auto hopeless =
        std::count_if(paths_.begin(), paths_.end(), [](const Path &p) { return !p.spare && p.phase >= Phase::draining; });
    if (up == active || (any_usable() && (up + hopeless == active || now >= begun_ + grace))) {
      ready_ = true;
      pump();
    } else if (now - begun_ >= ctx_.settings().connect_timeout) { // which may be longer than the clock goes
      fail(TUTTI_ERR_TIMEOUT, text("no connection in time: ", describe(), first_why()));
    }
  }
  if (failed_ != TUTTI_OK) throw plugin::Error(failed_, *why_);
  return ready_;
}

std::string Endpoint::describe() const {
  return paths_.empty() ? "not connected" : path_text(paths_.front());
}

tutti_status Endpoint::send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) {
  if (receives_data_) plugin::fail(TUTTI_ERR_INVALID, "the accepting side of ", describe(), " only receives");
  if (failed_ != TUTTI_OK) throw plugin::Error(failed_, *why_);
  return sends_.post(bufs, n, cookie);
}

tutti_status Endpoint::recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
  if (!receives_data_) plugin::fail(TUTTI_ERR_INVALID, "the connecting side of ", describe(), " only sends");
  if (failed_ != TUTTI_OK) throw plugin::Error(failed_, *why_);
  return receives_.post(bufs, n, received, cookie);
}

tutti_status Endpoint::get(const tutti_net_buf &to, uint64_t remote, const plugin::NetKey &key, uint64_t cookie) {
  if (failed_ != TUTTI_OK) throw plugin::Error(failed_, *why_);
  return reads_.post(to, remote, key.get<ReadKey>(), cookie);
}

void Endpoint::pump() noexcept {
  try {
    if (works() && ready_) {
      if (sends_.busy()) sends_.pump();
      if (receives_.busy()) receives_.grant();
      if (reads_.busy()) reads_.pump();
    }
    publish();
  } catch (const plugin::Error &e) {
    fail(e.code(), e.what());
  } catch (const std::exception &e) {
    fail(TUTTI_ERR_INTERNAL, e.what());
  }
}

void Endpoint::look_after(Time now) noexcept {
  try {
    if (!connected_) return;
    for (Path &p : paths_) drive_path(p, now);
    if (works()) check_paths(now);
    if (works()) look_for_end(now);
    publish();
  } catch (const plugin::Error &e) {
    fail(e.code(), e.what());
  } catch (const std::exception &e) {
    fail(TUTTI_ERR_INTERNAL, e.what());
  }
}

QueuePair *Endpoint::data_queue(uint32_t turn) const {
  return carriers_.empty() ? nullptr : carriers_[turn % carriers_.size()];
}

uint32_t Endpoint::lightest() const {
  const auto less = [](const QueuePair *a, const QueuePair *b) { return a->carried() < b->carried(); };
  return static_cast<uint32_t>(std::min_element(carriers_.begin(), carriers_.end(), less) - carriers_.begin());
}

QueuePair *Endpoint::next_queue(uint32_t n) const {
  const uint32_t first = lightest();
  for (uint32_t i = 0; i < share_limit(); ++i)
    if (QueuePair *qp = data_queue(first + i); qp->room() >= n) return qp;
  return nullptr;
}

QueuePair *Endpoint::credit_queue() {
  for (bool spare : {false, true})
    for (Path &p : paths_) {
      if (!usable(p) || p.spare != spare) continue;
      if (credit_home_.path == Home{}.path) credit_home_ = Home::of(*p.control);
      if (credit_home_.at(p)) return p.control->room() > control_reserve ? p.control.get() : nullptr;
    }
  return nullptr;
}

void Endpoint::acknowledged(QueuePair &qp, const Posted &p) {
  Path &path = paths_[qp.place().path];
  path.heard = true;
  if (p.work == Work::data)
    sends_.acknowledged(p.number, p.share);
  else if (p.work == Work::read)
    reads_.acknowledged(p.number, p.share);
  else if (p.work == Work::hello && path.unheard > 0 && --path.unheard == 0)
    greeted(path);
  else if (p.work == Work::state)
    path.state_posted = false;
  else if (p.work == Work::probe)
    path.probing = false;
}

// Data that is lost waits until its path is settled; the rest is told anew.
void Endpoint::lost(QueuePair &, const Posted &) {}

void Endpoint::unposted(QueuePair &, const Posted &p) {
  if (p.work == Work::data) sends_.unposted(p.number, p.share);
  if (p.work == Work::read) reads_.unposted(p.number, p.share);
}

void Endpoint::arrived(QueuePair &qp, Tag tag, uint32_t bytes) {
  Path &path = paths_[qp.place().path];
  path.heard = true;
  if (tag.shares != 0) {
    if (receives_data_ && works()) receives_.arrived(tag, bytes, piece());
    return;
  }
  switch (static_cast<Note>(tag.share)) {
  case Note::hello:
    if (qp.place().index == 0) path.peer_wired = true;
    break;
  case Note::state:
    read_state(path);
    break;
  case Note::credits:
    if (!receives_data_ && works()) sends_.credits(tag.whole(sends_.credits_seen()));
    break;
  }
}

void Endpoint::broken(QueuePair &qp, const ibv_wc &wc) {
  if (qp.stopped()) return; // by this side
  Path &path = paths_[qp.place().path];
  const char *request = wc.wr_id >> 63 ? "a receive" : qp.place().index == 0 ? "a control write" : "a write or read";
  const std::string why = explain(wc, request, ends(path), ctx_.settings());
  if (is_for_good(wc.status))
    fail(status_of(wc.status), why);
  else if (path.phase == Phase::wired && path.epoch == 0)
    not_greeted(path, why);
  else
    fail_path(path, why);
}

void Endpoint::refused(QueuePair &qp, int err) {
  Path &path = paths_[qp.place().path];
  if (!qp.stopped()) fail_path(path, text(path_text(path), ": cannot post: ", std::generic_category().message(err)));
}

void Endpoint::too_long(uint64_t number, uint64_t bytes) noexcept {
  failed_at_ = number;
  failed_bytes_ = bytes;
  fail(TUTTI_ERR_TRUNCATED, text("message ", number, " of ", bytes, " bytes is longer than the buffer that peer ", describe(),
                                 " posted for it: the ranks disagree about the operation"));
}

void Endpoint::fail(tutti_status status, const std::string &why) noexcept {
  if (failed_ != TUTTI_OK) return;
  done_ = done();
  failed_ = status;
  why_ = std::make_shared<const std::string>(why);
  host().set_error(status, why.c_str());
  host().debug(why);
  carriers_.clear();
  for (Path &p : paths_) {
    for (auto &qp : p.data) {
      qp->stop();
      ctx_.bury(std::move(qp));
    }
    p.data.clear();
  }
  sends_.finish(status);
  receives_.finish(status);
  reads_.finish(status);
  changed(); // the peer is told
}

Farewell::Farewell(Endpoint &ep, Time limit) : limit_(limit) {
  for (Path &p : ep.paths_) {
    const bool can = ep.connected_ && (p.phase == Phase::wired || p.phase == Phase::up) && p.control && !p.control->stopped() &&
                     p.control->room() > 0 && !p.held();
    if (!can) continue;
    p.control->give_to(*this);
    ++left_;
    ep.post_state(p, true);
    queues_.push_back(std::move(p.control));
  }
  for (Path &p : ep.paths_) p.control.reset();
  window_ = std::move(ep.window_);
}

void Farewell::acknowledged(QueuePair &, const Posted &p) {
  if (p.work == Work::state && p.share == 1) told_ = true;
}
void Farewell::lost(QueuePair &, const Posted &p) {
  if (p.work == Work::state && p.share == 1) --left_;
}
void Farewell::unposted(QueuePair &qp, const Posted &p) {
  lost(qp, p);
}

} // namespace tutti::net_ib
