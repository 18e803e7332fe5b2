/* tutti/plugin/collnet.h: reduction inside the network. DRAFT: loads only in a core of the same minor version, and its id will
 * change when it leaves draft. A plan reaches a group through a link with the flag REDUCING: the k-th send to it pairs with the
 * k-th receive. */
#ifndef TUTTI_PLUGIN_COLLNET_H
#define TUTTI_PLUGIN_COLLNET_H
#include "net.h"
TUTTI_BEGIN
#define TUTTI_COLLNET_DRAFT "tutti.draft.collnet/0"
typedef struct tutti_collnet_group tutti_collnet_group;

/* What a group can do, known once it is ready. Out-struct. */
typedef struct tutti_collnet_caps {
  uint32_t struct_size;
  uint32_t colls;           /* bit 1 << tutti_coll */
  uint64_t dtype_ops;       /* bit (dtype * 4 + op): combinations it reduces */
  uint64_t max_bytes;       /* of one post */
  uint32_t alignment;       /* of buffers and sizes, bytes */
  uint32_t max_outstanding; /* posts granted and reserved for this group */
  tutti_mem_kind mem_kinds;
  uint32_t tree_depth;     /* hops to the root and back / 2 */
  uint64_t bandwidth_mbps; /* of the aggregators together */
  uint64_t order_id;       /* hash of member order, tree shape and accumulation type: equal = same bits; 0 = not fixed */
} tutti_collnet_caps;

/* What is asked of a new group. In-struct. */
typedef struct tutti_collnet_config {
  uint32_t struct_size;
  uint32_t outstanding;  /* posts wanted in flight */
  uint64_t window_bytes; /* bytes wanted in flight */
  uint64_t job_id;
  int32_t rail;
  uint32_t deadline_ms; /* ready or failed by then */
} tutti_collnet_config;

/* In-struct. */
typedef struct tutti_collnet_op {
  uint32_t struct_size;
  tutti_coll coll;
  tutti_dtype dtype;
  tutti_redop op;
  tutti_net_buf send, recv;
  uint64_t offset; /* of this piece in the whole vector, bytes */
} tutti_collnet_op;

typedef struct tutti_collnet_v0 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name;
  /* As listen() of tutti.net/1. [control] */
  tutti_status (*listen)(tutti_net_ctx *ctx, void *addr, uint32_t *addr_bytes, tutti_net_listener **out) TUTTI_NOEXCEPT;
  /* addrs: nmembers addresses, addr_stride bytes apart, in member order. Waits for nobody. [control] */
  tutti_status (*group_create)(tutti_net_listener *listener, const void *addrs, uint32_t addr_stride, int32_t nmembers,
                               int32_t member, const tutti_collnet_config *config, tutti_collnet_group **out) TUTTI_NOEXCEPT;
  /* TUTTI_AGAIN until all members are in; then caps are filled. Refusals say who holds what was asked for. [control] */
  tutti_status (*group_ready)(tutti_collnet_group *group, tutti_collnet_caps *caps) TUTTI_NOEXCEPT;
  void (*group_destroy)(tutti_collnet_group *group) TUTTI_NOEXCEPT; /* never waits for members. [control] */
  /* Same order on all members. TUTTI_AGAIN: quota full. Completes through progress() of tutti.net/1. [progress] */
  tutti_status (*post)(tutti_collnet_group *group, const tutti_collnet_op *op, uint64_t cookie) TUTTI_NOEXCEPT;
} tutti_collnet_v0;

TUTTI_END
#endif
