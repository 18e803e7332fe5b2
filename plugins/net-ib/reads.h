// tutti/plugins/net-ib/reads.h: RDMA READs of what lies registered at the peer (net.rma).
#pragma once
#include "path.h"
#include "split.h"

namespace tutti::net_ib {

class Endpoint;

// What mr_key() gives: the region, and its rkey by port of the side that registered it.
struct ReadKey {
  uint64_t addr, bytes;
  uint32_t ports, reserved;
  uint32_t rkey[max_paths];
};
static_assert(sizeof(ReadKey) <= 64);

class Reads {
public:
  explicit Reads(Endpoint &ep) : ep_(ep) {}
  void open(uint32_t calls, uint32_t most_shares);
  tutti_status post(const tutti_net_buf &to, uint64_t remote, const ReadKey &key, uint64_t cookie);
  void acknowledged(uint64_t number, uint8_t share);
  void unposted(uint64_t number, uint8_t share);
  void replay(const Path &path); // this side's queue pairs of it are gone: what they had not read is read again
  void pump();
  void finish(tutti_status status);
  bool busy() const { return busy_ != 0; }

private:
  struct Read {
    tutti_net_buf to{};
    uint64_t remote = 0, cookie = 0, missing = 0;
    ReadKey key{};
    Split split;
    bool used = false;
  };
  struct Share {
    uint64_t number;
    uint8_t share;
  };
  bool post_share(const Share &s);

  Endpoint &ep_;
  std::vector<Read> reads_;
  std::vector<Home> homes_;
  uint32_t most_ = 1, busy_ = 0;
  std::vector<Share> again_; // not posted, in order
};

} // namespace tutti::net_ib
