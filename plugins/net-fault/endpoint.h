// tutti/plugins/net-fault/endpoint.h: an endpoint of the plugin inside. Faults strike when messages have been received.
#pragma once
#include "context.h"

namespace tutti::net_fault {

class Endpoint : public plugin::NetObject {
public:
  Endpoint(Context &ctx, tutti_net_ep *inner) : NetObject(ctx.host()), ctx_(ctx), ep_(inner), dice_(ctx.dice()) {}
  ~Endpoint();
  bool ready();
  std::string describe() const;
  tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) { return post(bufs, n, nullptr, cookie, false); }
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
    return post(bufs, n, received, cookie, true);
  }
  tutti_status hand_over(Call &call); // to the plugin inside
  // What to do with a receive that has completed; it is reported, held back or posted again.
  void received(Call &call, tutti_net_completion done);

private:
  tutti_status post(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie, bool receives);
  void say(const Fault &fault, uint64_t message, const std::string &what) const;
  void corrupt(const Fault &fault, const Call &call, uint64_t purpose);
  void fail();

  Context &ctx_;
  tutti_net_ep *ep_; // null once it has been reset
  const Dice dice_;
  uint64_t messages_ = 0; // received so far
  bool silent_ = false;
};

} // namespace tutti::net_fault
