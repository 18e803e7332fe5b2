/* tutti/plugin/profiler.h: receives what happened, in batches. DRAFT: loads only in a core of the same minor version, and its
 * id will change when it leaves draft. */
#ifndef TUTTI_PLUGIN_PROFILER_H
#define TUTTI_PLUGIN_PROFILER_H
#include "base.h"
TUTTI_BEGIN
#define TUTTI_PROFILER_DRAFT "tutti.draft.profiler/0"
enum { TUTTI_EVENT_OP = 0, TUTTI_EVENT_STEP = 1, TUTTI_EVENT_NET = 2, TUTTI_EVENT_CONNECT = 3, TUTTI_EVENT_ERROR = 4 };
enum { TUTTI_PHASE_BEGIN = 0, TUTTI_PHASE_END = 1, TUTTI_PHASE_INSTANT = 2 };

/* Array element: 64 bytes, frozen once out of draft. */
typedef struct tutti_event {
  uint64_t time_ns; /* CLOCK_MONOTONIC */
  uint64_t id;      /* equal in the BEGIN and END of one thing */
  uint64_t parent;  /* id of what it happened in, 0 = nothing */
  uint32_t kind, phase;
  int32_t rank, peer; /* peer -1 = none */
  uint64_t arg[3];    /* OP: collective | dtype << 8 | op << 16, bytes, sequence. STEP: lane << 32 | step, bytes, slice */
} tutti_event;

typedef struct tutti_profiler_v0 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name;
  uint64_t (*kinds)(void *plugin) TUTTI_NOEXCEPT; /* bit 1 << TUTTI_EVENT_*: what it wants; read at set-up. [setup] */
  /* n events of one thread, oldest first; `dropped` were lost before them. [progress] */
  void (*events)(void *plugin, const tutti_event *events, uint32_t n, uint64_t dropped) TUTTI_NOEXCEPT;
} tutti_profiler_v0;

TUTTI_END
#endif
