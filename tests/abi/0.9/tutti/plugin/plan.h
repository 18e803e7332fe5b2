/* tutti/plugin/plan.h: the schedule that an algorithm describes and the core checks, draws, and runs.
 *
 * Chunks. Each collective sees IN and OUT as blocks (base.h). A plan cuts every block into the same number K of chunks, so
 * in_chunks = K * (blocks of IN) and out_chunks = K * (blocks of OUT); chunk c is piece c % K of block c / K. With G groups
 * every block is first cut into G shares, one per group, then into K pieces. Shares and pieces are rounded up to 64 bytes;
 * the last ones are shorter or empty. Steps name chunks, never bytes: one plan serves all sizes.
 * Example: allreduce of 10 000 float32 with G = 1, K = 4: pieces of 10 048, 10 048, 10 048 and 9 856 bytes.
 *
 * Blocks of ALL_GATHER and REDUCE_SCATTER may differ in size, also in size 0: every rank knows all sizes, and src, message and
 * dst of a step stand for one place of the collective, so that no plan has to care.
 *
 * Slices. Chunks longer than the run's slice size L (one for the whole run and all ranks) are moved in slices: the executor
 * runs every lane's program for slice 0, then for slice 1, and so on; slice s of a chunk is its bytes [s*L, (s+1)*L).
 * A message exists exactly if its chunk has bytes in that slice; both ends know, so nothing is sent for empty chunks.
 * Lanes of one group are at most `window` slices apart, and every SCRATCH chunk exists `window` times, one slice each.
 *
 * Lanes. A lane is a sequence of steps that run one after the other; lanes run concurrently. A link (peer, conn, direction)
 * belongs to one lane of a plan. Steps of different lanes that touch the same chunk must be ordered by deps.
 *
 * Step. v = src (+) recv(link_1) (+) ... ; v = postop(v); dst = v; send(v) to each send link. Which parts happen is in `ops`.
 * The message size of a step is that of chunk `src` with SRC, else of `dst`: a step that only relays names in `dst` the chunk
 * that sizes the message, without STORE. */
#ifndef TUTTI_PLUGIN_PLAN_H
#define TUTTI_PLUGIN_PLAN_H
#include "base.h"
TUTTI_BEGIN

enum { TUTTI_BUF_IN = 0, TUTTI_BUF_OUT = 1, TUTTI_BUF_SCRATCH = 2 };

/* `count` chunks in a row, the first of which is (first + i * stride) mod modulus at iteration i. modulus 0 = no wrap. */
typedef struct tutti_ref {
  uint16_t buf;   /* TUTTI_BUF_* */
  uint16_t count; /* >= 1; all travel in one message */
  int32_t first;
  int32_t stride;
  uint32_t modulus;
} tutti_ref;

enum {
  TUTTI_STEP_SRC = 1u << 0,    /* there is a local operand */
  TUTTI_STEP_RECV = 1u << 1,   /* there are received operands, one from each receive link of the step */
  TUTTI_STEP_REDUCE = 1u << 2, /* more than one operand: combine them. Without it there is exactly one */
  TUTTI_STEP_POSTOP = 1u << 3, /* where the result is complete: the operation's post-operation belongs here (average) */
  TUTTI_STEP_STORE = 1u << 4,  /* keep v in dst */
  TUTTI_STEP_SEND = 1u << 5,   /* send v on each send link of the step */
  TUTTI_STEP_PREOP = 1u << 6   /* src is a rank's own, raw contribution: the pre-operation belongs here (pre-multiplied sum).
                                  Set it on every step that reads IN of a reduction; costs nothing when there is none */
};

/* Array element: 64 bytes, frozen. */
typedef struct tutti_step {
  uint32_t ops;                    /* TUTTI_STEP_* */
  uint32_t repeat;                 /* iterations, >= 1 */
  tutti_ref src, dst;              /* zero when unused */
  uint16_t recv_first, recv_count; /* positions in the lane's receive-link list */
  uint16_t send_first, send_count; /* in its send-link list */
  int16_t link_stride;             /* added to recv_first and send_first at each iteration */
  uint16_t dep_count;              /* steps that must have finished in this slice before the first iteration */
  uint32_t dep_first;              /* filled by the builder; 0 from the plugin */
  uint16_t src_pos;                /* position of src among the operands, which are src and the receive links in order.
                                      Reductions of several ranks put operands in rank order, or ranks get different bits */
  uint16_t reserved0;              /* 0 */
  uint32_t reserved1;              /* 0 */
} tutti_step;

enum {
  /* A collnet group is at the other end: a rank of its own that reduces. peer is the group's number: that of the channel whose
   * heads (tutti_channel) are its members, and only they may have such links. The k-th message that each sends is combined with
   * the k-th of all others, in rank order, and what results is the k-th message that each receives. REDUCE: only the member of
   * the root's host receives. BROADCAST: only that one sends, and only the others receive. Refused without
   * TUTTI_REQ_COLLNET. */
  TUTTI_LINK_REDUCING = 1u << 0,
  /* One send that every other rank of the communicator reads; peer is the sender. Refused without TUTTI_REQ_MULTICAST. */
  TUTTI_LINK_MULTICAST = 1u << 1
};
/* One FIFO to or from a peer. `conn` tells several between the same two ranks apart; use the channel's number for them, and
 * channels * k + channel when an algorithm needs more than one per channel. Array element: frozen. */
typedef struct tutti_link {
  int32_t peer;
  uint16_t conn;
  uint16_t flags; /* TUTTI_LINK_* */
} tutti_link;

/* All iterations of step `step` of lane `lane` have finished in this slice. Array element: frozen. */
typedef struct tutti_dep {
  uint32_t lane, step;
} tutti_dep;

/* Names a chunk of IN or OUT. Array element: frozen. */
typedef struct tutti_chunk_id {
  uint32_t buf; /* TUTTI_BUF_IN or TUTTI_BUF_OUT */
  uint32_t chunk;
} tutti_chunk_id;

/* In-struct of begin(). */
typedef struct tutti_plan_shape {
  uint32_t struct_size;
  uint32_t features;   /* extensions an executor must know: others are refused. None is defined yet: 0 */
  uint32_t in_chunks;  /* multiples of the blocks of IN and OUT. The same on all ranks, also on those where the */
  uint32_t out_chunks; /* collective gives them no IN or OUT */
  uint32_t scratch_chunks;
  uint32_t groups;                    /* >= 1: the data is cut into `groups` shares */
  uint32_t lanes;                     /* lane() calls that follow */
  uint32_t min_depth;                 /* slots that every link needs at least; >= 2 */
  uint32_t window;                    /* slices that lanes of a group may be apart; 0 = the core's choice */
  uint32_t resident_lanes;            /* lanes that must run at once for progress; 0 = all */
  const tutti_chunk_id *scratch_size; /* scratch_chunks entries: the chunk that sizes each. NULL = scratch chunk c is sized
                                         as OUT chunk c, or IN chunk c when there is no OUT chunk c. Borrowed */
} tutti_plan_shape;

/* Given to algo->plan(), and void when that returns. Calls come as begin, then `lanes` times (lane, its steps...). Arguments
 * are copied. An error, whose reason the builder has attached, is the plan's error: return it. What is too large for any
 * executor is refused: 2^24 chunks, 2^12 groups, 2^16 lanes, links of a lane or slots, 2^20 iterations. [the calling thread
 * only] */
typedef struct tutti_plan_builder {
  uint32_t struct_size;
  uint32_t reserved0;
  void *impl;
  tutti_status (*begin)(void *impl, const tutti_plan_shape *shape) TUTTI_NOEXCEPT;
  /* A lane of group `group` with its receive and send links. */
  tutti_status (*lane)(void *impl, uint32_t group, const tutti_link *recv, uint32_t nrecv, const tutti_link *send,
                       uint32_t nsend) TUTTI_NOEXCEPT;
  /* The next step of the current lane; deps has step->dep_count entries. */
  tutti_status (*step)(void *impl, const tutti_step *step, const tutti_dep *deps) TUTTI_NOEXCEPT;
} tutti_plan_builder;

TUTTI_END
#endif
