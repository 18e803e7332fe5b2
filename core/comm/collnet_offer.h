// tutti/core/comm/collnet_offer.h: what a rank tells the others about groups of a collnet.
#pragma once
#include "bootstrap/bootstrap.h"
#include "tutti/plugin/collnet.h"
#include <map>
#include <string>

namespace tutti {

// Groups that this rank is in, with an address each in the first round, and caps once they are ready.
struct CollnetOffer {
  struct Head {
    tutti_collnet_reason reason = TUTTI_COLLNET_FINE; // of `why`, where a plugin gave one
    uint32_t mbps = 0;
    uint32_t ready = 0; // 1: all of its groups
  } head;
  std::string why;           // against it; "" = nothing
  std::string where, device; // the plugin, and the way into its network
  std::map<uint32_t, Bytes> of_group;

  bool refuses() const { return !why.empty(); }
  // Who found out for itself what is wrong has more to say than who saw another one go, or waited in vain.
  int weight() const {
    switch (head.reason) {
    case TUTTI_COLLNET_TIMEOUT:
      return 1;
    case TUTTI_COLLNET_MEMBER_LOST:
      return 2;
    default:
      return 3;
    }
  }
  Bytes encode() const;
  static Result<CollnetOffer> decode(std::span<const std::byte> in, int rank);
};

} // namespace tutti
