// tutti/plugins/net-ib/endpoint_state.cc: what the two sides of an endpoint tell each other about themselves, in mailboxes.
//
// A state is whole and newer ones say more: it does not matter which of them arrive. Each path has a mailbox of its own, so
// that one which arrives late, over a path that has failed, cannot harm a newer one. A mailbox that is written while it is read
// has a wrong checksum, and another immediate is on its way.
#include "endpoint.h"

namespace tutti::net_ib {

using plugin::text;

constexpr auto end_time = std::chrono::seconds(1); // what the peer knows to have arrived is found by then

void Endpoint::publish() {
  for (Path &p : paths_)
    if (p.published < version_ && usable(p) && !p.state_posted && p.control->room() > 1) post_state(p, false);
}

uint32_t Endpoint::write_state(uint8_t *to, bool closing) {
  StateHead head{};
  const WindowShape &shape = window_->shape();
  uint8_t *at = to + sizeof head;
  for (const Path &p : paths_) {
    const PathState s{p.epoch, p.phase, {}, card_of(*p.rail)};
    std::memcpy(at, &s, sizeof s);
    at += sizeof s;
  }
  for (Path &p : paths_) {
    uint32_t qpns[1 + max_shares]{};
    p.each_queue([&](const QueuePair &qp) { qpns[qp.place().index] = qp.number(); });
    std::memcpy(at, qpns, (shape.queues + 1) * sizeof *qpns);
    at += (shape.queues + 1) * sizeof *qpns;
  }
  head.version = version_;
  head.done = done();
  head.credits_seen = receives_data_ ? 0 : sends_.credits_seen();
  head.arrived = receives_data_ ? receives_.write_arrived(at) : 0;
  at += head.arrived * sizeof(uint64_t);
  head.failed = failed_;
  head.failed_at = failed_at_;
  head.failed_bytes = failed_bytes_;
  head.closing = closing;
  head.bytes = static_cast<uint32_t>(at - to);
  std::memcpy(to, &head, sizeof head);
  head.checksum = checksum(to + sizeof head.checksum, head.bytes - sizeof head.checksum);
  std::memcpy(to, &head.checksum, sizeof head.checksum);
  return head.bytes;
}

void Endpoint::post_state(Path &path, bool closing) {
  if (closing) changed();
  uint8_t *from = window_->at(window_->shape().outbox(path.index, closing));
  const uint32_t bytes = write_state(from, closing);
  path.published = version_;
  path.state_posted = true;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htonl(Tag::note(Note::state).imm());
  wr.wr.rdma.remote_addr = peer_.window + window_->shape().mailbox(path.index);
  wr.wr.rdma.rkey = window_rkey(*path.control);
  path.control->add(wr, from, bytes, window_->mr().lkey(*path.rail), true, {0, Work::state, closing});
  path.control->flush();
}

void Endpoint::read_state(Path &path) {
  const uint8_t *from = window_->at(window_->shape().mailbox(path.index));
  const WindowShape &shape = window_->shape();
  StateHead head;
  std::memcpy(&head, from, sizeof head);
  const size_t fixed = sizeof head + shape.paths * (sizeof(PathState) + (shape.queues + 1) * sizeof(uint32_t));
  if (head.bytes > shape.state() || head.bytes != fixed + size_t{head.arrived} * sizeof(uint64_t)) return;
  std::vector<uint8_t> &copy = theirs_.copy;
  copy.assign(from, from + head.bytes);
  if (std::memcmp(copy.data(), &head, sizeof head) != 0 ||
      head.checksum != checksum(copy.data() + sizeof head.checksum, head.bytes - sizeof head.checksum))
    return;
  if (head.version <= theirs_.head.version) return;
  theirs_.head = head;
  const uint8_t *at = copy.data() + sizeof head;
  std::memcpy(theirs_.paths.data(), at, shape.paths * sizeof(PathState));
  at += shape.paths * sizeof(PathState);
  std::memcpy(theirs_.qpns.data(), at, theirs_.qpns.size() * sizeof(uint32_t));
  at += theirs_.qpns.size() * sizeof(uint32_t);
  theirs_.arrived.resize(head.arrived);
  std::memcpy(theirs_.arrived.data(), at, head.arrived * sizeof(uint64_t));
  if (head.failed != TUTTI_OK || head.closing) begin_end();
  ctx_.look_soon();
}

// What the peer says about a path.
void Endpoint::apply_path(Path &path, Time now) {
  const PathState &theirs = theirs_.paths[path.index];
  if (theirs.epoch > path.epoch) { // it has drained this one, knowing that this side has, too
    if (path.phase < Phase::draining) fail_path(path, text(path_text(path), ": the peer has given up this path"));
    if (path.phase == Phase::drained && !path.settled) settle(path);
    if (path.phase != Phase::drained || theirs.epoch != path.epoch + 1 || !works()) return;
    if (theirs.phase >= Phase::draining) { // and again, before this side had begun
      path.epoch = theirs.epoch;
      path.settled = false;
      changed();
    } else if (now < path.again_at || !path.rail->up || !make_again(path)) {
      return;
    }
  }
  if (theirs.epoch != path.epoch) return;
  if (theirs.phase >= Phase::draining) {
    if (path.phase < Phase::draining) fail_path(path, text(path_text(path), ": it failed at the peer"));
    if (theirs.phase == Phase::drained && path.phase == Phase::drained && !path.settled) settle(path);
    return;
  }
  if (path.epoch == 0) return; // as the cards say
  if (theirs.phase >= Phase::wired) path.peer_wired = true;
  if (path.phase == Phase::offered) wire(path, theirs.port, &theirs_.qpns[path.index * (window_->shape().queues + 1)]);
}

void Endpoint::begin_end() {
  if (!works() || end_limit_) return;
  if (!receives_data_) sends_.all_arrived(theirs_.head.done);
  end_limit_ = ctx_.now() + end_time;
}

// The peer has ended. What it knows to have arrived here shall complete before the rest fails.
void Endpoint::look_for_end(Time now) {
  const StateHead &head = theirs_.head;
  if (!end_limit_ || (receives_data_ && receives_.done() < head.done && now < *end_limit_)) return;
  if (head.failed == TUTTI_ERR_TRUNCATED)
    fail(TUTTI_ERR_TRUNCATED, text("peer ", describe(), " has a message of ", head.failed_bytes, " bytes for a buffer of ",
                                   receives_.room_of(head.failed_at), ": the ranks disagree about the operation"));
  else if (head.failed != TUTTI_OK)
    fail(TUTTI_ERR_REMOTE, text("the peer of ", describe(), " has failed, with status ", head.failed));
  else
    fail(TUTTI_ERR_REMOTE, text("the peer of ", describe(), " has closed the connection"));
}

} // namespace tutti::net_ib
