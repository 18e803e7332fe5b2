// tutti/plugins/net-ib/endpoint_paths.cc: paths are made, used, given up and made anew.
//
// A path that fails on one side is stopped there: its queue pairs go to ERR, what was posted on them comes back, and then they
// are gone, so that nothing of it can arrive late. Each side tells the other over its other paths how far it is, and what had
// arrived. Only when both have drained a path is it settled: what the peer has not got is sent again over the others, and the
// path may begin its next epoch, with new queue pairs.
#include "endpoint.h"

namespace tutti::net_ib {

using plugin::text;

namespace {

constexpr uint32_t data_sends = 128;                 // work requests of a data queue pair; more than max_pieces
constexpr uint32_t control_sends = 128, notes = 32;  // of a control queue pair; receives for what is no credit
constexpr auto drain_time = std::chrono::seconds(1); // a device that has not flushed a queue by then does not any more
constexpr auto probe_time = std::chrono::seconds(1); // of silence before the peer is asked for a sign of life
constexpr auto longest_pause = std::chrono::seconds(5);
constexpr auto first_pause = std::chrono::milliseconds(100);

} // namespace

Ends Endpoint::ends(const Path &path) const {
  const PortCard &peer = peer_.port[peer_.path_port[path.index]];
  const bool known = peer_.ports != 0;
  if (!known) return {&path.rail->port, "", 0};
  return {&path.rail->port, peer.ethernet ? gid_text(peer.gid) : text("LID ", peer.lid),
          mtu_bytes(static_cast<ibv_mtu>(peer.mtu))};
}

std::string Endpoint::path_text(const Path &path) const {
  return net_ib::describe(ends(path));
}

std::string Endpoint::first_why() const {
  for (const Path &p : paths_)
    if (!p.why.empty()) return text(": ", p.why);
  return "";
}

Card Endpoint::card_of_self() {
  Card c{};
  c.token = peer_.token;
  c.psn = static_cast<uint32_t>(random_number());
  c.window = reinterpret_cast<uint64_t>(window_->at(0));
  c.messages = window_->shape().messages;
  c.paths = static_cast<uint8_t>(paths_.size());
  c.active = static_cast<uint8_t>(std::count_if(paths_.begin(), paths_.end(), [](const Path &p) { return !p.spare; }));
  c.queues = static_cast<uint8_t>(window_->shape().queues);
  c.piece = 1u << 30;
  c.reads_in = c.reads_out = 255;
  std::vector<Rail> &rails = ctx_.rails();
  c.ports = static_cast<uint8_t>(rails.size());
  for (size_t i = 0; i < rails.size(); ++i) {
    c.piece = std::min(c.piece, rails[i].largest);
    c.port[i] = card_of(rails[i]);
    c.rkey[i] = window_->mr().rkey(rails[i]);
    const ibv_device_attr &a = rails[i].hca->attributes();
    c.reads_in = static_cast<uint8_t>(std::clamp<int>(a.max_qp_rd_atom, 0, c.reads_in));
    c.reads_out = static_cast<uint8_t>(std::clamp<int>(a.max_qp_init_rd_atom, 0, c.reads_out));
  }
  size_t at = 0;
  for (Path &p : paths_) {
    c.path_port[p.index] = static_cast<uint8_t>(p.rail - rails.data());
    p.each_queue([&](const QueuePair &qp) { c.qpn[at++] = qp.number(); });
  }
  seal(c);
  return c;
}

PortCard Endpoint::card_of(const Rail &rail) {
  PortCard p{};
  p.gid = rail.port.gid;
  p.lid = rail.port.lid;
  p.mtu = static_cast<uint8_t>(rail.port.mtu);
  p.ethernet = rail.port.ethernet;
  return p;
}

void Endpoint::open(const WindowShape &shape) {
  const uint32_t calls = std::min(ctx_.settings().max_inflight, max_calls);
  window_ = std::make_unique<Window>(ctx_, shape);
  const uint32_t most = std::min(max_shares, shape.paths * shape.queues);
  if (receives_data_)
    receives_.open(calls);
  else
    sends_.open(calls, most, shape.messages);
  reads_.open(calls, most);
  theirs_.paths.resize(shape.paths);
  theirs_.qpns.resize(size_t{shape.paths} * (shape.queues + 1));
  theirs_.arrived.reserve(shape.messages);
  completions_ = 2 * calls; // messages and reads
  ctx_.reserve_completions(completions_);
  for (Path &p : paths_) make_queues(p);
  carriers_.reserve(size_t{shape.paths} * shape.queues);
}

void Endpoint::offer(Card &card) {
  std::vector<Rail> &rails = ctx_.rails();
  const auto n = static_cast<uint32_t>(rails.size());
  const uint32_t queues = std::min({ctx_.settings().qps_per_connection, card_qpns / n - 1, max_shares / n});
  for (uint32_t i = 0; i < n; ++i) {
    Path p;
    p.index = static_cast<uint8_t>(i);
    p.spare = i >= ctx_.own();
    p.rail = &rails[i];
    paths_.push_back(std::move(p));
  }
  const uint32_t messages = std::min(ctx_.settings().max_inflight, max_calls) * max_batch;
  open({messages, n, n, std::max(1u, queues)});
  peer_.token = random_number();
  mine_ = card = card_of_self();
}

void Endpoint::connect(const Card &card, Card &answer) {
  peer_ = card;
  std::vector<Rail> &rails = ctx_.rails();
  const auto own = ctx_.own(), spares = static_cast<uint32_t>(rails.size()) - own;
  for (uint32_t i = 0; i < card.paths; ++i) {
    Path p;
    p.index = static_cast<uint8_t>(i);
    p.spare = i >= card.active;
    p.rail = p.spare && spares ? &rails[own + (i - card.active) % spares] : &rails[i % own];
    paths_.push_back(std::move(p));
  }
  open({card.messages, card.ports, card.paths, card.queues});
  mine_ = answer = card_of_self();
  begin();
}

void Endpoint::accept(const Card &answer) {
  if (answer.token != mine_.token || answer.paths != mine_.paths || answer.queues != mine_.queues ||
      answer.messages != mine_.messages)
    plugin::fail(TUTTI_ERR_INVALID, "this is the answer to another listener");
  peer_ = answer;
  for (Path &p : paths_) p.peer_wired = true; // the connecting side is, before it answers
  begin();
}

void Endpoint::begin() {
  begun_ = ctx_.now();
  ctx_.add(this);
  connected_ = true;
  for (Path &p : paths_) wire_first(p, begun_);
}

// With the queue pairs of the cards. A peer whose address cannot be resolved yet is tried again.
void Endpoint::wire_first(Path &path, Time now) {
  const size_t each = window_->shape().queues + 1;
  wire(path, peer_.port[peer_.path_port[path.index]], peer_.qpn + path.index * each);
  path.again_at = now + first_pause;
}

void Endpoint::make_queues(Path &path) {
  const uint32_t messages = window_->shape().messages, bytes = ctx_.settings().inline_bytes;
  QueueShape control{control_sends, notes + (receives_data_ ? 0 : messages), bytes};
  QueueShape data{data_sends, notes + (receives_data_ ? messages : 0), bytes};
  if (receives_data_) control.inline_bytes = std::max<uint32_t>(bytes, static_cast<uint32_t>(credit_bytes(max_paths)));
  try {
    path.control = std::make_unique<QueuePair>(ctx_, *path.rail, *this, QueuePair::Place{path.index, 0, path.epoch}, control);
    for (uint32_t i = 0; i < window_->shape().queues; ++i)
      path.data.push_back(std::make_unique<QueuePair>(
          ctx_, *path.rail, *this, QueuePair::Place{path.index, static_cast<uint8_t>(i + 1), path.epoch}, data));
  } catch (...) {
    path.control.reset();
    path.data.clear();
    throw;
  }
}

void Endpoint::wire(Path &path, const PortCard &port, const uint32_t *qpns) {
  if (const std::string odd = mismatch(path.rail->port, {port.ethernet != 0, port.gid}); !odd.empty())
    return fail_path(path, text(path_text(path), ": ", odd));
  int err = 0;
  ibv_qp_state step = IBV_QPS_RTR;
  path.each_queue([&](QueuePair &qp) {
    if (err == 0 && !qp.wired()) err = qp.wire({&mine_, &peer_, port, qpns[qp.place().index]}, step);
  });
  if (err == 0) {
    path.phase = Phase::wired;
    changed();
    if (path.peer_wired) greet(path);
    return;
  }
  path.why = explain_modify_qp(err, step, ends(path));
  host().debug(path.why);
  if (path.epoch > 0 || !worth_retrying(err, step)) fail_path(path, std::string(path.why));
}

void Endpoint::greet(Path &path) {
  path.greeted = true;
  path.each_queue([&](const QueuePair &) { ++path.unheard; });
  path.each_queue([&](QueuePair &qp) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(Tag::note(Note::hello).imm());
    qp.add(wr, nullptr, 0, 0, false, {0, Work::hello, 0});
    qp.flush();
  });
}

void Endpoint::greeted(Path &path) {
  if (path.phase != Phase::wired) return;
  path.phase = Phase::up;
  if (path.epoch > 0) host().debug(path_text(path), ": works again");
  path.why.clear();
  path.pause = first_pause;
  path.probe_at = ctx_.now() + probe_time;
  changed();
  choose_queues();
}

// Before anything else was sent the same may be said again: the peer takes a packet with a number that it knows for the same
// one.
void Endpoint::not_greeted(Path &path, const std::string &why) {
  path.why = why;
  path.each_queue([](QueuePair &qp) { qp.stop(); });
}

void Endpoint::greet_again(Path &path, Time now) {
  bool fresh = true;
  path.each_queue([&](const QueuePair &qp) { fresh = fresh && qp.fresh(); });
  if (!fresh) return fail_path(path, std::string(path.why));
  int err = 0;
  path.each_queue([&](QueuePair &qp) { err = err ? err : qp.start_again(); });
  path.greeted = false;
  path.unheard = 0;
  path.phase = Phase::offered;
  if (err)
    fail_path(path, text(path_text(path), ": a queue pair cannot be reset: ", std::generic_category().message(err)));
  else
    wire_first(path, now);
}

void Endpoint::choose_queues() {
  carriers_.clear();
  if (!works()) return;
  for (bool spare : {false, true}) {
    for (Path &p : paths_)
      if (p.spare == spare && usable(p))
        for (const auto &qp : p.data) carriers_.push_back(qp.get());
    for (QueuePair *qp : carriers_) qp->carry_anew();
    if (!carriers_.empty()) return;
  }
}

void Endpoint::fail_path(Path &path, const std::string &why) noexcept {
  if (path.phase >= Phase::draining) return;
  path.phase = Phase::draining;
  path.settled = false;
  path.why = why;
  path.drain_limit = ctx_.now() + drain_time;
  path.each_queue([](QueuePair &qp) { qp.stop(); });
  host().debug(why);
  if (credit_home_.at(path)) receives_.revoke();
  changed();
  ctx_.look_soon(); // whether another path works is asked there: who posts on this one's queue pairs may go through them now
  choose_queues();
}

void Endpoint::drained(Path &path) {
  path.control.reset();
  path.data.clear();
  path.state_posted = path.probing = path.greeted = false;
  path.unheard = 0;
  path.phase = Phase::drained;
  reads_.replay(path);
  changed();
}

void Endpoint::settle(Path &path) {
  path.settled = true;
  path.again_at = ctx_.now() + path.pause;
  path.pause = std::min<std::chrono::milliseconds>(path.pause * 2, longest_pause);
  if (!works()) return;
  if (!receives_data_) sends_.replay(path, theirs_.head.done, theirs_.arrived);
  if (credit_home_.at(path)) {
    credit_home_ = {};
    receives_.grant_again(theirs_.head.credits_seen);
  }
}

bool Endpoint::make_again(Path &path) noexcept {
  try {
    if (!ctx_.refresh(*path.rail)) return false;
    ++path.epoch;
    make_queues(path);
    path.phase = Phase::offered;
    path.settled = path.peer_wired = false;
    path.published = 0;
    changed();
    return true;
  } catch (const std::exception &e) {
    host().debug(e.what());
    if (!path.control) --path.epoch;
    path.again_at = ctx_.now() + longest_pause;
    return false;
  }
}

void Endpoint::drive_path(Path &path, Time now) {
  if (path.phase == Phase::draining && (path.quiet() || now >= path.drain_limit)) {
    if (!path.quiet()) ctx_.poll(); // the last chance to hear what had arrived
    drained(path);
  }
  if (path.epoch == 0 && path.phase == Phase::offered && now >= path.again_at) wire_first(path, now);
  if (path.phase == Phase::wired && path.peer_wired && !path.greeted) greet(path);
  if (path.phase == Phase::wired && path.control->stopped() && path.quiet() && now >= path.again_at && works())
    greet_again(path, now);
  if (theirs_.head.version) apply_path(path, now);
  if (path.phase == Phase::drained && path.settled && now >= path.again_at && path.rail->up && works() && any_usable())
    make_again(path);
  if (usable(path) && busy() && now >= path.probe_at) probe(path, now);
}

void Endpoint::probe(Path &path, Time now) {
  path.probe_at = now + probe_time;
  if (std::exchange(path.heard, false) || path.probing || path.control->room() == 0) return;
  path.probing = true;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  path.control->add(wr, nullptr, 0, 0, false, {0, Work::probe, 0});
  path.control->flush();
}

void Endpoint::check_paths(Time now) {
  const bool was = std::exchange(dark_, !any_usable());
  if (!dark_) {
    for (Path &p : paths_)
      if (p.phase == Phase::up && p.held()) fail_path(p, text(path_text(p), ": the port is down"));
    return;
  }
  if (!was) dark_since_ = now;
  const auto alive = [](const Path &p) { return p.phase == Phase::up; };
  const auto hope = [](const Path &p) { return p.phase == Phase::wired || (p.epoch == 0 && p.phase == Phase::offered); };
  const bool held = std::any_of(paths_.begin(), paths_.end(), alive);
  if (!held && !std::any_of(paths_.begin(), paths_.end(), hope))
    return fail(TUTTI_ERR_REMOTE, text("no path to the peer works any more", first_why()));
  if (ready_ && now - dark_since_ >= ctx_.settings().link_down_timeout) fail(TUTTI_ERR_TIMEOUT, all_down(now - dark_since_));
}

std::string Endpoint::all_down(nanoseconds how_long) const {
  std::vector<Ends> list;
  for (const Path &p : paths_) list.push_back(ends(p));
  return explain_all_down(list, how_long);
}

void Endpoint::rail_changed(const Rail &rail, bool up) noexcept {
  if (!connected_) return;
  const Time now = ctx_.now();
  for (Path &p : paths_) {
    if (p.rail != &rail) continue;
    p.again_at = now;
    if (!up && p.epoch > 0 && p.phase < Phase::up) fail_path(p, text(path_text(p), ": the port is down"));
  }
  choose_queues();
  if (works() && ready_) check_paths(now);
}

void Endpoint::device_failed(const Hca &hca, const std::string &why) noexcept {
  for (Path &p : paths_)
    if (connected_ && p.rail->hca == &hca) {
      p.rail->up = false;
      fail_path(p, why);
    }
}

void Endpoint::queue_failed(const Hca &hca, uint32_t qp_num, const std::string &why) noexcept {
  for (Path &p : paths_) {
    bool concerned = false;
    p.each_queue([&](const QueuePair &qp) { concerned |= !qp.stopped() && (qp_num == 0 || qp.number() == qp_num); });
    if (connected_ && concerned && p.rail->hca == &hca) fail_path(p, text(path_text(p), ": ", why));
  }
}

} // namespace tutti::net_ib
