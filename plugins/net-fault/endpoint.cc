// tutti/plugins/net-fault/endpoint.cc
#include "endpoint.h"

namespace tutti::net_fault {

Endpoint::~Endpoint() {
  if (ep_) ctx_.net().ep_destroy(ep_);
  ctx_.end(this, TUTTI_ERR_CANCELLED);
}

bool Endpoint::ready() {
  if (!ep_) plugin::fail(TUTTI_ERR_REMOTE, "the connection was reset by an injected fault");
  const tutti_status s = ctx_.net().ep_ready(ep_);
  if (s < 0) throw plugin::Error(s, "");
  return s == TUTTI_OK;
}

std::string Endpoint::describe() const {
  char text[256] = "";
  if (!ep_ || ctx_.net().ep_describe(ep_, text, sizeof text) != TUTTI_OK) return "fault: an endpoint that was reset";
  return plugin::text("fault: ", text);
}

tutti_status Endpoint::post(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie, bool receives) {
  if (!ep_) plugin::fail(TUTTI_ERR_REMOTE, "the connection was reset by an injected fault");
  if (n > Call::max_batch) plugin::fail(TUTTI_ERR_INVALID, "a call with ", n, " buffers");
  Call *call = ctx_.new_call();
  call->ep = this;
  call->receives = receives;
  call->cookie = cookie;
  call->n = n;
  call->received = received;
  for (uint32_t i = 0; i < n; ++i) {
    call->bufs[i] = bufs[i];
    if (bufs[i].mr) call->bufs[i].mr = reinterpret_cast<Mr *>(bufs[i].mr)->mr;
  }
  const tutti_status s = hand_over(*call);
  if (s != TUTTI_OK) ctx_.done_with(call);
  return s;
}

tutti_status Endpoint::hand_over(Call &call) {
  const auto cookie = reinterpret_cast<uint64_t>(&call);
  if (!call.receives) return ctx_.net().send(ep_, call.bufs, call.n, cookie);
  return ctx_.net().recv(ep_, call.bufs, call.n, call.lengths, cookie);
}

void Endpoint::say(const Fault &fault, uint64_t message, const std::string &what) const {
  if (host().logs(TUTTI_LOG_DEBUG))
    host().debug("injected ", name_of(fault.kind), ": seed ", dice_.seed, ", rank ", dice_.rank, ", endpoint ", dice_.endpoint,
                 ", message ", message, what, " (", describe(), ")");
}

// A byte of the first 16 of the call, where the core's header is, or of what comes behind it.
void Endpoint::corrupt(const Fault &fault, const Call &call, uint64_t purpose) {
  constexpr uint64_t header = 16;
  uint64_t all = 0;
  for (uint32_t i = 0; i < call.n; ++i) all += call.lengths[i];
  const uint64_t from = fault.header ? 0 : header, to = fault.header ? std::min(all, header) : all;
  if (to <= from) return;
  const uint64_t r = dice_.roll(call.first, purpose + 1000);
  uint64_t at = from + r % (to - from);
  say(fault, call.first, plugin::text(", byte ", at, " of ", all));
  for (uint32_t i = 0; i < call.n; at -= call.lengths[i++])
    if (at < call.lengths[i]) {
      static_cast<uint8_t *>(call.bufs[i].addr)[at] ^= static_cast<uint8_t>(1u << (r >> 32) % 8);
      return;
    }
}

void Endpoint::fail() {
  ctx_.net().ep_destroy(std::exchange(ep_, nullptr)); // what is outstanding there is reported by the plugin inside
  host().set_error(TUTTI_ERR_REMOTE, "the connection was reset by an injected fault");
  ctx_.end(this, TUTTI_ERR_REMOTE);
}

void Endpoint::received(Call &call, tutti_net_completion done) {
  call.first = messages_;
  messages_ += call.n;
  auto until = Clock::time_point::min();
  if (silent_) until = Clock::time_point::max();
  uint64_t purpose = 0;
  for (const Fault &fault : ctx_.faults()) {
    ++purpose;
    bool strikes = false;
    for (uint32_t i = 0; i < call.n && !strikes; ++i) strikes = dice_.strikes(fault, call.first + i, purpose);
    if (!strikes || done.status != TUTTI_OK) continue;
    if (fault.kind != Kind::corrupt) say(fault, call.first, "");
    switch (fault.kind) {
    case Kind::delay:
      until = std::max(until, Clock::now() + fault.time);
      break;
    case Kind::drop:
      return ctx_.post_again(&call);
    case Kind::corrupt:
      corrupt(fault, call, purpose);
      break;
    case Kind::cut: {
      uint64_t &last = call.lengths[call.n - 1];
      const uint64_t gone = last == 0 ? 0 : 1 + dice_.roll(call.first, purpose + 2000) % last;
      last -= gone;
      done.bytes -= gone;
      break;
    }
    case Kind::reset:
      ctx_.hold(&call, done, Clock::time_point::max());
      return fail();
    case Kind::half_open:
      silent_ = true;
      until = Clock::time_point::max();
      break;
    }
  }
  ctx_.hold(&call, done, until);
}

} // namespace tutti::net_fault
