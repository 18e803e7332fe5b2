// tutti/core/transport/link_message.h: what ranks say to each other about their links, over the control plane.
#pragma once
#include "bootstrap/bootstrap.h"
#include "transport/ring.h"

namespace tutti {

// Followed, for a net link, by the net's address in a grant and by what connect() answered in an answer.
struct LinkMessage {
  enum Type : uint32_t {
    request = 1,
    grant = 2,
    region_ask = 3, // for the region `id`
    region_give = 4,
    region_gone = 5,
    answer = 6, // to a grant of a net link
  };
  uint32_t type;
  uint32_t conn; // of a region that is given without a descriptor: errno, why
  Geometry geometry;
  uint64_t id; // of the block, for ends in one process; of a region
};
inline const uint64_t kLinkTag = make_tag(MsgKind::link, 0);

} // namespace tutti
