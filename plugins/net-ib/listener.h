// tutti/plugins/net-ib/listener.h: the accepting side before it knows its peer. Nothing listens on a network: its queue pairs
// take packets only from those that the answer names.
#pragma once
#include "endpoint.h"

namespace tutti::net_ib {

class Listener final : public plugin::NetObject {
public:
  Listener(Context &ctx, plugin::Address &addr);
  std::unique_ptr<Endpoint> accept(const plugin::Address &answer); // null: nobody yet

private:
  std::unique_ptr<Endpoint> ep_; // until it is accepted
};

} // namespace tutti::net_ib
