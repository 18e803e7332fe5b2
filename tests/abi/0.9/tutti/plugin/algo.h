/* tutti/plugin/algo.h: an algorithm describes schedules; it never sends, waits or allocates communication memory. */
#ifndef TUTTI_PLUGIN_ALGO_H
#define TUTTI_PLUGIN_ALGO_H
#include "entry.h"
#include "plan.h"
TUTTI_BEGIN
#define TUTTI_ALGO "tutti.algo/1"

enum {
  TUTTI_REQ_NONUNIFORM = 1u << 0,  /* blocks differ in size and a rank knows only those of its own IN and OUT: no relaying */
  TUTTI_REQ_MANY_SLICES = 1u << 1, /* chunks will be longer than a slice: separate send and receive lanes pay */
  TUTTI_REQ_IN_PLACE = 1u << 2,    /* IN and OUT are the same memory where the collective allows it */
  TUTTI_REQ_MULTICAST = 1u << 3,   /* all ranks share memory, so MULTICAST links may be used */
  TUTTI_REQ_COLLNET = 1u << 4      /* every channel has a collnet group of its heads: REDUCING links may be used */
};

/* What was searched for one channel. Passed as an array of channel_stride-byte elements. Trees are told only across hosts, of
 * all channels or of none; each rank is told its own place. Channels 2i and 2i+1 have complementary trees: an inner host of one
 * is a leaf of the other. */
typedef struct tutti_channel {
  const int32_t *order;         /* nranks entries: the ring, each rank once; the same on all ranks */
  const int32_t *tree_children; /* tree_nchildren entries; NULL when there are none */
  uint32_t tree_nchildren;
  int32_t tree_parent; /* -1 = top of the tree; with no children: no tree was searched */
  int32_t head;        /* the rank that talks to the in-network reduction for this rank's host, -1 = none */
  int32_t rail;        /* of this rank's host, -1 = none */
} tutti_channel;

/* In-struct. All pointers are borrowed for the call. */
typedef struct tutti_algo_request {
  uint32_t struct_size;
  tutti_coll coll;
  int32_t rank, nranks; /* 0 <= rank < nranks; nranks >= 2 */
  int32_t root;         /* -1 for collectives without one */
  uint32_t channels;    /* >= 1; the plan may use fewer, by fewer groups */
  uint32_t flags;       /* TUTTI_REQ_* */
  uint32_t max_lanes;   /* 0 = no limit; else fewer channels, and fewer lanes for each, must do */
  uint32_t node_count;
  uint32_t channel_stride;
  const int32_t *node_of_rank;  /* nranks entries, 0 .. node_count - 1: the host of each rank */
  const tutti_channel *channel; /* `channels` elements */
} tutti_algo_request;

typedef struct tutti_algo_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name; /* "ring": what settings and explanations show; owned by the plugin */
  /* TUTTI_OK, or TUTTI_ERR_UNSUPPORTED with the reason in set_error(): shown when a user asks why not. The same answer on every
   * rank, and what is supported can be planned. Asked at set-up for every collective, and may be for every size; cheap. [any]
   */
  tutti_status (*supports)(void *plugin, const tutti_algo_request *req) TUTTI_NOEXCEPT;
  /* A pure function of *req: no I/O, no clock, no state; the checker calls it for every rank in one process. The plans of all
   * ranks fit together: what one sends another receives, in the same order on each link. Called once for each shape of request
   * and kept, so that milliseconds do no harm. [any] */
  tutti_status (*plan)(void *plugin, const tutti_algo_request *req, const tutti_plan_builder *out) TUTTI_NOEXCEPT;
  /* Optional (NULL). rounds: messages that must follow one another for one slice; bytes_per_byte: bytes this rank sends for
   * each byte of its larger buffer. Up to 16 ranks the core counts both in the plans; in larger jobs it plans for a few ranks
   * only and asks them here. Without it, or with an error or a number <= 0, it goes by those plans, and by how rounds grow from
   * 8 to 16 ranks. [any] */
  tutti_status (*estimate)(void *plugin, const tutti_algo_request *req, double *rounds, double *bytes_per_byte) TUTTI_NOEXCEPT;
} tutti_algo_v1;

/* ---- host service: compose plans from other algorithms' plans ----------------------------------------------------- */
#define TUTTI_HOST_PLAN "tutti.host.plan/1"

/* One stage: algorithm `algo` runs `coll` among `members`; stages follow one another chunk by chunk. Array element with a
 * passed stride. */
typedef struct tutti_stage {
  const char *algo;       /* name of a loaded algorithm */
  const int32_t *members; /* global ranks; the stage's rank i is members[i]. A rank that is not among them passes the stage by,
                             and knows how it cuts the data. Borrowed */
  int32_t nmembers;
  int32_t root; /* position in members, -1 = none */
  tutti_coll coll;
  uint32_t reserved0; /* 0 */
} tutti_stage;

typedef struct tutti_host_plan_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Emits to `out` the plan for `req` that runs `stages` in order. IN feeds the first, the last fills OUT; between them the
   * output of a stage is the input of the next. Chunk counts are multiplied until all stages fit; pre- and post-operation move
   * to the first and last reduction. UNSUPPORTED names the stage that does not fit. [any] */
  tutti_status (*compose)(const tutti_host *host, const tutti_algo_request *req, const tutti_stage *stages, uint32_t nstages,
                          uint32_t stage_stride, const tutti_plan_builder *out) TUTTI_NOEXCEPT;
} tutti_host_plan_v1;

TUTTI_END
#endif
