// tutti/plugins/net-ib/listener.cc
#include "listener.h"

namespace tutti::net_ib {

Listener::Listener(Context &ctx, plugin::Address &addr) : NetObject(ctx.host()), ep_(std::make_unique<Endpoint>(ctx, true)) {
  Card card{};
  ep_->offer(card);
  addr.set(card);
}

std::unique_ptr<Endpoint> Listener::accept(const plugin::Address &answer) {
  if (!ep_) plugin::fail(TUTTI_ERR_INVALID, "this listener has accepted its endpoint");
  if (answer.size == 0) return nullptr; // nobody has connected
  const Card card = answer.get<Card>();
  if (!genuine(card)) plugin::fail(TUTTI_ERR_INVALID, "this is no answer of net-ib to a listener");
  ep_->accept(card);
  return std::move(ep_);
}

} // namespace tutti::net_ib
