/* tutti/plugin/net_rma.h: one-sided reads, beside tutti.net/1 of the same plugin. The core uses them where a reader can fetch
 * what lies ready in a peer's registered memory (protocol `pull`), and does without where a plugin has none. */
#ifndef TUTTI_PLUGIN_NET_RMA_H
#define TUTTI_PLUGIN_NET_RMA_H
#include "net.h"
TUTTI_BEGIN
#define TUTTI_NET_RMA "tutti.net.rma/1"

enum { TUTTI_NET_KEY_BYTES = 64 }; /* largest key of a registration */

typedef struct tutti_net_rma_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* What a peer needs to read the region of `mr` through get(). *key_bytes in: room at key, at least TUTTI_NET_KEY_BYTES; out:
   * bytes written, at least 1. UNSUPPORTED: this memory cannot be read by peers. The key travels over the core's authenticated
   * channel, or in a message of an endpoint, serves every endpoint between the context of `mr` and one of the peer's for the
   * same device, and is void after mr_release(). [control] */
  tutti_status (*mr_key)(tutti_net_mr *mr, void *key, uint32_t *key_bytes) TUTTI_NOEXCEPT;
  /* Reads to->bytes bytes, 0 to max_message_bytes, from `remote`, an address as the peer's region.addr counts, inside the
   * region that `key` belongs to, of the peer of `ep`, whichever side connected, into `to` (one buffer; tag unused). Completes
   * through progress() like a recv, with its cookie; at least max_inflight of them per endpoint beside the other calls, and at
   * most 4096 more, then TUTTI_AGAIN. What the peer wrote there before it sent a message that has arrived here is read. key is
   * borrowed. A read outside of the region, or with a void key, completes with TUTTI_ERR_INVALID or TUTTI_ERR_REMOTE, and the
   * endpoint may be unusable then. [progress] */
  tutti_status (*get)(tutti_net_ep *ep, const tutti_net_buf *to, uint64_t remote, const void *key, uint32_t key_bytes,
                      uint64_t cookie) TUTTI_NOEXCEPT;
} tutti_net_rma_v1;

TUTTI_END
#endif
