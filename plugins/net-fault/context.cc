// tutti/plugins/net-fault/context.cc
#include "endpoint.h"

namespace tutti::net_fault {

using plugin::Error;

constexpr uint32_t batch = 32;

Context::Context(const Host &host, const Inner &inner, const Wanted &wanted, uint32_t dev, const tutti_net_ctx_config &config)
    : NetObject(host), inner_(inner), seed_(wanted.seed), rank_(static_cast<uint64_t>(config.rank)) {
  if (wanted.rank < 0 || wanted.rank == config.rank) faults_ = wanted.faults;
  tutti_net_ctx_config mine = config;
  mine.struct_size = sizeof mine;
  if (const tutti_status s = net().ctx_create(inner.state(), dev, &mine, &ctx_); s < 0) throw Error(s, "");
}

Context::~Context() {
  net().ctx_destroy(ctx_);
}

std::unique_ptr<Listener> Context::listen(plugin::Address &addr) {
  tutti_net_listener *l = nullptr;
  addr.size = sizeof addr.bytes;
  if (const tutti_status s = net().listen(ctx_, addr.bytes, &addr.size, &l); s < 0) throw Error(s, "");
  return std::make_unique<Listener>(*this, l);
}

std::unique_ptr<Endpoint> Context::connect(const plugin::Address &addr, plugin::Address &answer) {
  tutti_net_ep *ep = nullptr;
  answer.size = sizeof answer.bytes;
  if (const tutti_status s = net().connect(ctx_, addr.bytes, addr.size, answer.bytes, &answer.size, &ep); s < 0)
    throw Error(s, "");
  return std::make_unique<Endpoint>(*this, ep);
}

std::unique_ptr<Endpoint> Listener::accept(const plugin::Address &answer) {
  tutti_net_ep *ep = nullptr;
  const tutti_status s = ctx_.net().accept(inner_, answer.size ? answer.bytes : nullptr, answer.size, &ep);
  if (s < 0) throw Error(s, "");
  return s == TUTTI_OK ? std::make_unique<Endpoint>(ctx_, ep) : nullptr;
}

std::unique_ptr<Mr> Context::mr_register(const tutti_region &region) {
  tutti_net_mr *mr = nullptr;
  tutti_region mine = region;
  mine.struct_size = sizeof mine;
  if (const tutti_status s = net().mr_register(ctx_, &mine, &mr); s < 0) throw Error(s, "");
  return std::unique_ptr<Mr>(new Mr{inner_, mr});
}

Call *Context::new_call() {
  if (spare_.empty()) {
    calls_.push_back(std::make_unique<Call>());
    return calls_.back().get();
  }
  Call *call = spare_.back();
  spare_.pop_back();
  return call;
}

void Context::end(Endpoint *ep, tutti_status status) {
  const auto of_ep = [ep](const Call *c) { return c->ep == ep; };
  for (const Held &h : held_)
    if (of_ep(h.call)) report(h.call->cookie, 0, h.done.status < 0 ? h.done.status : status), done_with(h.call);
  std::erase_if(held_, [&](const Held &h) { return of_ep(h.call); });
  for (Call *c : again_)
    if (of_ep(c)) report(c->cookie, 0, status), done_with(c);
  std::erase_if(again_, of_ep);
  // What the plugin inside still has it reports as cancelled; then nobody is to be asked any more.
  for (const auto &c : calls_)
    if (c->ep == ep) c->ep = nullptr, c->received = nullptr, c->ended = status;
}

// In order for each endpoint: what is held for good holds what comes behind it.
void Context::release_held() {
  const auto now = Clock::now();
  for (size_t i = 0; i < held_.size();) {
    const Held &h = held_[i];
    const bool first = std::none_of(held_.begin(), held_.begin() + static_cast<long>(i),
                                    [&](const Held &before) { return before.call->ep == h.call->ep; });
    if (!first || h.until > now) {
      ++i;
      continue;
    }
    for (uint32_t k = 0; h.call->received && k < h.call->n; ++k) h.call->received[k] = h.call->lengths[k];
    ready_.push_back({h.call->cookie, h.done.bytes, h.done.status, 0});
    done_with(h.call);
    held_.erase(held_.begin() + static_cast<long>(i));
  }
}

void Context::deliver(const tutti_net_completion &done) {
  Call &call = *reinterpret_cast<Call *>(done.cookie);
  if (call.receives && call.ep && done.status == TUTTI_OK) return call.ep->received(call, done);
  const bool was_reset = !call.ep && done.status == TUTTI_ERR_CANCELLED;
  report(call.cookie, done.bytes, was_reset ? call.ended : done.status);
  if (call.receives && call.ep && call.received) std::copy_n(call.lengths, call.n, call.received);
  done_with(&call);
}

void Context::repost() {
  for (size_t i = 0; i < again_.size();) {
    Call *call = again_[i];
    const tutti_status s = call->ep->hand_over(*call);
    if (s == TUTTI_AGAIN) {
      ++i;
      continue;
    }
    again_.erase(again_.begin() + static_cast<long>(i));
    if (s == TUTTI_OK) continue;
    report(call->cookie, 0, s);
    done_with(call);
  }
}

int32_t Context::progress(tutti_net_completion *out, uint32_t cap) {
  if (!again_.empty()) repost();
  tutti_net_completion done[batch];
  const int32_t n = net().progress(ctx_, done, batch);
  if (n < 0) return n;
  for (int32_t i = 0; i < n; ++i) deliver(done[i]);
  if (!held_.empty()) release_held();
  uint32_t given = 0;
  for (; given < cap && !ready_.empty(); ++given) {
    out[given] = ready_.front();
    ready_.pop_front();
  }
  return static_cast<int32_t>(given);
}

int Context::event_fd() {
  int32_t fd = -1;
  if (!TUTTI_HAS(tutti_net_v1, &net(), event_fd)) plugin::unsupported("the plugin inside is polled");
  if (const tutti_status s = net().event_fd(ctx_, &fd); s < 0) throw Error(s, "");
  return fd;
}

// What is held back for a time has no descriptor: nobody sleeps meanwhile.
bool Context::arm() {
  const auto timed = [](const Held &h) { return h.until != Clock::time_point::max(); };
  if (!ready_.empty() || !again_.empty() || std::any_of(held_.begin(), held_.end(), timed)) return false;
  const tutti_status s = net().arm(ctx_);
  if (s < 0) throw Error(s, "");
  return s == TUTTI_OK;
}

} // namespace tutti::net_fault
