/* tutti/plugin/tuner.h: rates the ways to run a collective. Called at set-up on rank 0 only; the core broadcasts the table,
 * so ranks cannot disagree, and the hot path is a table look-up. */
#ifndef TUTTI_PLUGIN_TUNER_H
#define TUTTI_PLUGIN_TUNER_H
#include "base.h"
TUTTI_BEGIN
#define TUTTI_TUNER "tutti.tuner/1"

/* What is asked: one collective in one size bucket. In-struct. */
typedef struct tutti_tune_query {
  uint32_t struct_size;
  tutti_coll coll;
  uint64_t bytes; /* upper edge of the bucket: buckets are powers of two. The larger of a rank's IN and OUT */
  int32_t nranks;
  int32_t nnodes;     /* hosts */
  int32_t max_ppn;    /* most ranks on one host */
  int32_t min_cores;  /* fewest CPU cores that a host offers the job's ranks on it */
  uint32_t flags;     /* TUTTI_TUNE_* */
  uint32_t transport; /* slowest link class in use: TUTTI_LINK_CLASS_* */
} tutti_tune_query;
enum { TUTTI_LINK_CLASS_LOCAL = 0, TUTTI_LINK_CLASS_SHM = 1, TUTTI_LINK_CLASS_NET = 2 };
enum {
  TUTTI_TUNE_OVERSUBSCRIBED = 1u << 0, /* some host has more ranks than cores */
  /* The user asked for the same bits in every run (coll.deterministic): answer from the query and the options alone, not from
   * clocks, load or measurements; a tuner that cannot returns TUTTI_ERR_UNSUPPORTED. Cores and transport are made up. */
  TUTTI_TUNE_REPRODUCIBLE = 1u << 1
};

/* One way to run it. Passed as an array of `candidate_size`-byte elements. In and out. */
typedef struct tutti_candidate {
  const char *algo; /* names, not numbers: the set is open. Owned by the core */
  const char *proto;
  double cost_us;    /* in: the core's estimate, or 0 = it has none; out: the tuner's; < 0 = do not use. The lowest cost
                        wins; of equals the first */
  uint32_t channels; /* in: proposal; out: choice, clamped to [min_channels, max_channels] */
  uint32_t min_channels;
  uint32_t max_channels;
  uint32_t slot_bytes; /* payload of one FIFO slot; in: proposal; out: choice, rounded up to 64 and clamped to what memory
                          allows */
  uint32_t depth;      /* slots per link, a power of two >= 2; in: proposal; out: choice, halved as memory demands */
  uint32_t flags;      /* out: TUTTI_CAND_* */
  const char *note;    /* out: where the rating comes from ("cluster.toml:12"), for explanations; NULL = nothing to say.
                          Owned by the plugin, valid until its next rate() or its close() */
} tutti_candidate;
enum {
  TUTTI_CAND_NONTEMPORAL = 1u << 0, /* store the user's output past the caches */
  TUTTI_CAND_ORDER_ONLY = 1u << 1,  /* cost_us is a place in an order of preference, not a time */
  TUTTI_CAND_SHARED_ONLY = 1u << 2, /* DESCRIPTOR: between processes lend shared memory only, stage what is private */
  TUTTI_CAND_MEASURED = 1u << 3     /* cost_us was measured in this very class, not computed */
};

typedef struct tutti_tuner_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name; /* owned by the plugin */
  /* Rates `n` candidates in place; must not read or write beyond candidate_size bytes of each. An error leaves the core's
   * own order in force and is logged once. [setup] */
  tutti_status (*rate)(void *plugin, const tutti_tune_query *query, tutti_candidate *candidates, uint32_t n,
                       uint32_t candidate_size) TUTTI_NOEXCEPT;
} tutti_tuner_v1;

TUTTI_END
#endif
