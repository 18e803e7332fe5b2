/* tutti/plugin/collnet.h: reduction inside the network: what all members of a group send comes back reduced.
 *
 * A collnet plugin stands on its own: contexts, registrations, completions and the descriptor to sleep on are in this table and
 * mean what they mean in net.h, without messages between ranks. Hardware that offers both interfaces offers both ids. So a
 * plugin for a switch, or for a daemon, need not pretend to be a network, and a cookie of one interface never shows up in the
 * other.
 *
 * Groups. Every member calls listen(), the core brings all addresses to all members, and each calls group_create() with all of
 * them, in member order, and with the same config; the group is alive at once and becomes ready later. Until group_ready() has
 * returned TUTTI_OK the core calls it over and over, and progress() between, and posts nothing; the plugin may advance in
 * either. The wait is bounded by the deadline that the core gives. What a ready group was granted is reserved for it. The core
 * lets all ranks of a communicator agree: when one member's group fails, all destroy theirs. Each host is one member of a
 * group; a communicator has several where its hosts use several network devices side by side, also of one context.
 *
 * Posts. All members post the same operations in the same order; the k-th post of every member is one operation, and all of its
 * tutti_collnet_op but the buffers is the same. A member's own posts may be of different sizes and kinds. An aggregator that
 * sees two members differ fails the group with MISMATCH; one that does not may do anything to the buffers of such a post, and
 * nothing outside them. What an op points to belongs to the plugin until its completion has been reported; several posts may
 * send from the same memory at once.
 * A plan reaches a group through a link with the flag REDUCING: the k-th send to it and the k-th receive from it are one post.
 *
 * Completion. Every post() that returned TUTTI_OK is reported by progress() exactly once with its cookie, those of one group in
 * the order of the posts: with TUTTI_OK the result is in the receive buffer, and both buffers are the caller's again. Where a
 * member receives nothing, of a REDUCE and a BROADCAST, that may be before others have posted; of a BARRIER it never is.
 *
 * Failure. What happened to one member happens to the group: every post that is not completed, and every later one, fails on
 * all members, and group_why() says why. It does so
 * - within 5 s, where a member's process or an aggregator died and its kernel or device closes what it had open;
 * - within progress_ms of the caps, where posts are outstanding and nothing of them moves: a member does not post, or does not
 *   take its results, a process is stopped, a host or a link is silent. A plugin that finds the last sooner says so then.
 * Nothing has to be found while no post is outstanding, however long that is. Receive buffers of failed posts hold anything.
 * Other groups are not disturbed. A post is never carried out twice. */
#ifndef TUTTI_PLUGIN_COLLNET_H
#define TUTTI_PLUGIN_COLLNET_H
#include "base.h"
TUTTI_BEGIN
#define TUTTI_COLLNET "tutti.collnet/1"

typedef struct tutti_collnet_ctx tutti_collnet_ctx;
typedef struct tutti_collnet_listener tutti_collnet_listener;
typedef struct tutti_collnet_group tutti_collnet_group;
typedef struct tutti_collnet_mr tutti_collnet_mr;

enum { TUTTI_COLLNET_ADDR_BYTES = 256 }; /* largest address of a listener */

enum {
  TUTTI_COLLNET_NEEDS_MR = 1u << 0, /* of a device: every buffer of more than 0 bytes needs a registration; otherwise mr may be
                                       NULL */
  TUTTI_COLLNET_IN_PLACE = 1u << 1, /* of a device and of a group: recv may be where send is; else they are disjoint */
  TUTTI_COLLNET_AVERAGES = 1u << 2  /* of a group: takes posts with AVERAGE, of each type that it sums */
};

/* A way into an aggregating network. Out-struct of device_info(). */
typedef struct tutti_collnet_dev {
  uint32_t struct_size;
  tutti_mem_kind mem_kinds; /* set of memory kinds that it can send from and receive into, TUTTI_MEM_HOST among them */
  char name[64];            /* "mlx5_0:1", "aggd1:4797,aggd2:4797"; unique within the plugin; NUL-terminated, as pci is */
  char pci[64];             /* sysfs path of the adapter it goes through, as in tutti_net_dev; "" when unknown or none */
  uint64_t guid;            /* as in tutti_net_dev: equal for devices that share one physical port; 0 = unknown */
  uint32_t speed_mbps;      /* of this host's link; 0 = unknown: the core takes that of the host's network */
  uint32_t flags;           /* TUTTI_COLLNET_NEEDS_MR, IN_PLACE */
  int32_t numa_node;        /* -1 = unknown */
  int32_t rail;             /* devices of one rail reach the same aggregators; -1 = all devices do. See ctx_create() */
} tutti_collnet_dev;

/* How a context will be used. In-struct. */
typedef struct tutti_collnet_ctx_config {
  uint32_t struct_size;
  int32_t traffic_class; /* -1 = not set */
  uint64_t comm_id;      /* for log lines */
  int32_t rank;          /* for log lines */
  int32_t nranks;
} tutti_collnet_ctx_config;

/* What is asked for a new group; the same on all members. A plugin may grant less of everything. In-struct. */
typedef struct tutti_collnet_config {
  uint32_t struct_size;
  uint32_t outstanding;  /* posts wanted in flight; 0 = the plugin's choice */
  uint64_t window_bytes; /* bytes wanted in flight; 0 = the plugin's choice */
  uint64_t job_id;       /* equal for all groups of communicators split from one: quotas count by it, and it is named to
                            others */
  uint64_t mbps;         /* wanted, Mbit/s per member; 0 = what there is */
  uint32_t deadline_ms;  /* ready or failed by then, at most 1 s later; > 0 */
  uint32_t progress_ms;  /* what holds up an operation for longer ends the group; 0 = the plugin's choice */
} tutti_collnet_config;

/* What arithmetic is done in, for the floats of 16 and 8 bits. Those of 32 and 64 are rounded at every addition, integers wrap.
 */
typedef uint32_t tutti_collnet_accumulate;
enum {
  TUTTI_COLLNET_ACC_ELEMENT = 0,      /* rounded at every addition */
  TUTTI_COLLNET_ACC_FLOAT32_HOPS = 1, /* in float32, rounded at every hop of the tree */
  TUTTI_COLLNET_ACC_FLOAT32 = 2       /* in float32, rounded once, at the end */
};
/* What stays the same in the bits of a result. */
typedef uint32_t tutti_collnet_repeat;
enum {
  TUTTI_COLLNET_REPEAT_NONE = 0, /* they may depend on who came first */
  TUTTI_COLLNET_REPEAT_RUN = 1,  /* the same posts of a group with the same order_id have the same bits */
  TUTTI_COLLNET_REPEAT_SIZE = 2  /* and an element's bits do not depend on where it stands, nor on how the data is cut */
};

/* What a group can do and was granted, known once it is ready, and the same from then on; but for progress_ms it is the same on
 * all members. Out-struct. */
typedef struct tutti_collnet_caps {
  uint32_t struct_size;
  uint32_t colls;           /* bit 1 << tutti_coll: ALL_REDUCE, and any of REDUCE, BROADCAST, BARRIER */
  uint64_t dtype_ops;       /* bit dtype * 4 + op: combinations that ALL_REDUCE and REDUCE may have; see tutti_collnet_op */
  uint64_t max_bytes;       /* of one post; > 0, and whole elements of every type */
  uint64_t window_bytes;    /* granted: bytes of posts taken and not completed, each counted once; 0 = no limit of bytes */
  uint32_t max_outstanding; /* granted: posts taken and not completed; > 0, and the core can do nothing with fewer than 2 */
  uint32_t alignment;       /* of the addresses of buffers and of bytes, which the caller keeps; a power of two, 1 = any */
  uint32_t max_members;     /* of a group of this kind, for messages; 0 = unknown */
  tutti_mem_kind mem_kinds; /* as of its device, or fewer */
  tutti_collnet_accumulate accumulate;
  tutti_collnet_repeat repeat;
  uint32_t flags;          /* TUTTI_COLLNET_IN_PLACE, AVERAGES */
  uint32_t tree_depth;     /* aggregators between a member and the root, the root included */
  uint32_t aggregators;    /* taking part */
  uint32_t latency_ns;     /* of a small post, without the members' links; 0 = unknown */
  uint64_t bandwidth_mbps; /* into the aggregators together: N members get bandwidth / N each, no more than their own link;
                              0 = unknown. Groups of one communicator through devices of one rail share it */
  uint64_t order_id;       /* hash of member order, shape of the tree and kind of arithmetic; 0 = not fixed */
  uint32_t progress_ms;    /* granted, and what the plugin adds to notice and to tell: see "Failure" above; > 0 */
  uint32_t reserved0;      /* 0 */
} tutti_collnet_caps;

typedef uint32_t tutti_collnet_reason;
enum {
  TUTTI_COLLNET_FINE = 0,
  TUTTI_COLLNET_UNSUPPORTED = 1,     /* it cannot serve this */
  TUTTI_COLLNET_NO_RESOURCE = 2,     /* limit, in_use; the text says who holds it */
  TUTTI_COLLNET_UNREACHABLE = 3,     /* an aggregator does not answer */
  TUTTI_COLLNET_AUTH = 4,            /* a key does not fit */
  TUTTI_COLLNET_VERSION = 5,         /* no version in common */
  TUTTI_COLLNET_MISMATCH = 6,        /* members asked for different things: member, field */
  TUTTI_COLLNET_MEMBER_LOST = 7,     /* member */
  TUTTI_COLLNET_AGGREGATOR_LOST = 8, /* it died, was ended, or its link is gone */
  TUTTI_COLLNET_TIMEOUT = 9          /* member: the first of those that are missing, limit: expected, in_use: there */
};
typedef uint32_t tutti_collnet_field;
enum {
  TUTTI_COLLNET_FIELD_NONE = 0,
  TUTTI_COLLNET_FIELD_COLL = 1,
  TUTTI_COLLNET_FIELD_DTYPE = 2,
  TUTTI_COLLNET_FIELD_OP = 3,
  TUTTI_COLLNET_FIELD_BYTES = 4,
  TUTTI_COLLNET_FIELD_ROOT = 5,
  TUTTI_COLLNET_FIELD_TAG = 6,
  TUTTI_COLLNET_FIELD_ORDER = 7,
  TUTTI_COLLNET_FIELD_MEMBERS = 8,
  TUTTI_COLLNET_FIELD_AVERAGE = 9
};
/* Why a group failed, the first reason where there are several. Members may have different ones: the core tells one, a
 * MEMBER_LOST or TIMEOUT only where nobody knows more. Out-struct. */
typedef struct tutti_collnet_why {
  uint32_t struct_size;
  tutti_collnet_reason reason;
  tutti_collnet_field field; /* of a MISMATCH; NONE: it is not known which */
  int32_t member;            /* whom it is about; -1 = nobody */
  uint64_t limit, in_use;    /* of a NO_RESOURCE or TIMEOUT */
  char text[512];            /* the sentence that set_error() got; what it names (daemon, switch, other job) is the plugin's */
} tutti_collnet_why;

/* A side of a post. */
typedef struct tutti_collnet_buf {
  void *addr;           /* NULL where this member sends, or receives, nothing; may be NULL when bytes is 0 */
  tutti_collnet_mr *mr; /* of a region that holds [addr, addr + bytes), or NULL where allowed */
} tutti_collnet_buf;

enum {
  TUTTI_COLLNET_AVERAGE = 1u << 0 /* of a SUM of ALL_REDUCE or REDUCE, in groups with AVERAGES: divided by the number of members
                                     as tutti_divide_fn does it, narrow floats before they are rounded where accumulate says
                                     FLOAT32. Cores of 0.9 divide by themselves */
};
/* One operation; all but the buffers is the same on all members. In-struct.
 * ALL_REDUCE: all members send and receive. REDUCE: all send, only root receives.
 * BROADCAST: only root sends, all others receive, bit for bit what it sent. No arithmetic: op is SUM, and dtype any that the
 * group has with SUM, which a plugin may look past.
 * BARRIER: nobody sends or receives; bytes, dtype and op are 0. Cores of 0.9 post an ALL_REDUCE of 8 bytes instead. */
typedef struct tutti_collnet_op {
  uint32_t struct_size;
  tutti_coll coll;
  tutti_dtype dtype;
  tutti_redop op;
  int32_t root;   /* member number of a REDUCE or BROADCAST; else -1 */
  uint32_t flags; /* TUTTI_COLLNET_AVERAGE; UNSUPPORTED: a bit that the plugin does not know */
  uint64_t bytes; /* of either buffer: whole elements; 0 is allowed and still is an operation */
  tutti_collnet_buf send, recv;
  uint64_t tag; /* what the members should agree on beyond this, as the place of a piece in the whole vector. Compared by
                   aggregators that compare anything, at least by a hash of 32 bits, else ignored */
} tutti_collnet_op;

/* Array element: frozen. */
typedef struct tutti_collnet_completion {
  uint64_t cookie;
  tutti_status status; /* TUTTI_OK, or why the post failed; set_error() has the text of the first failure of a group */
  uint32_t reserved0;  /* 0 */
} tutti_collnet_completion;

typedef struct tutti_collnet_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name; /* "aggd": what TUTTI_COLLNET selects by; owned by the plugin */
  /* devices */
  /* Usable devices now; 0 with TUTTI_OK when there are none (set_error() may say why). [setup] */
  tutti_status (*device_count)(void *plugin, uint32_t *count) TUTTI_NOEXCEPT;
  /* INVALID, here and in ctx_create(): dev is not below the count. [setup] */
  tutti_status (*device_info)(void *plugin, uint32_t dev, tutti_collnet_dev *out) TUTTI_NOEXCEPT;
  /* A member opens one device: of several the nearest to the network device that its channel goes through, by guid, pci, rail
   * or NUMA node, else the first. May take the time that drivers take. [setup] */
  tutti_status (*ctx_create)(void *plugin, uint32_t dev, const tutti_collnet_ctx_config *config,
                             tutti_collnet_ctx **out) TUTTI_NOEXCEPT;
  /* The core has destroyed groups, listeners and registrations of the context before. [setup] */
  void (*ctx_destroy)(tutti_collnet_ctx *ctx) TUTTI_NOEXCEPT;
  /* groups: nothing waits for other members */
  /* *addr_bytes in: room at addr, at least TUTTI_COLLNET_ADDR_BYTES; out: bytes written, 1 to TUTTI_COLLNET_ADDR_BYTES. The
   * address reaches the other members over the core's authenticated channel. [control] */
  tutti_status (*listen)(tutti_collnet_ctx *ctx, void *addr, uint32_t *addr_bytes, tutti_collnet_listener **out) TUTTI_NOEXCEPT;
  void (*listener_destroy)(tutti_collnet_listener *listener) TUTTI_NOEXCEPT; /* before or after group_create(). [control] */
  /* addrs: those of all nmembers listeners, addr_stride bytes apart, in member order; `listener` is that of `member`. What lies
   * behind a shorter address is 0. Borrowed. One group of a listener. At least 1 member; a group of 1 may be UNSUPPORTED.
   * [control] */
  tutti_status (*group_create)(tutti_collnet_listener *listener, const void *addrs, uint32_t addr_stride, int32_t nmembers,
                               int32_t member, const tutti_collnet_config *config, tutti_collnet_group **out) TUTTI_NOEXCEPT;
  /* TUTTI_AGAIN, at once: not all members are in; caps is untouched. TUTTI_OK, with the same caps, for as long as the group
   * works. Any error is final. [control] */
  tutti_status (*group_ready)(tutti_collnet_group *group, tutti_collnet_caps *caps) TUTTI_NOEXCEPT;
  /* Why the group failed; FINE while it has not. [control] */
  tutti_status (*group_why)(tutti_collnet_group *group, tutti_collnet_why *out) TUTTI_NOEXCEPT;
  /* Text for messages: "member 3 of 8 at aggd1:4797"; at most cap bytes with the NUL, cap >= 1; longer ones are cut. In every
   * state of the group. [control] */
  tutti_status (*group_describe)(tutti_collnet_group *group, char *text, uint32_t cap) TUTTI_NOEXCEPT;
  /* On return no posted buffer is touched again; what was outstanding is reported once as TUTTI_ERR_CANCELLED by the next
   * progress(), or as TUTTI_OK where it was done before. Allowed in every state; never waits for members or aggregators.
   * Between operations this is how a member leaves: the others' groups work until they post. With posts outstanding it is a
   * failure of the group, which the others are told. [control] */
  void (*group_destroy)(tutti_collnet_group *group) TUTTI_NOEXCEPT;
  /* memory: as in net.h */
  tutti_status (*mr_register)(tutti_collnet_ctx *ctx, const tutti_region *region, tutti_collnet_mr **out) TUTTI_NOEXCEPT;
  void (*mr_release)(tutti_collnet_mr *mr) TUTTI_NOEXCEPT; /* [control] */
  /* data */
  /* TUTTI_AGAIN: nothing was posted. What was granted is taken without waiting for other members: AGAIN comes when
   * max_outstanding posts are taken, or more bytes than the window with this one, or it passes while progress() is called. A
   * group takes any post when it has none. UNSUPPORTED or INVALID: the op is not one of its caps; nothing was posted, the group
   * works on. Any other error: nothing was posted, and the group has failed. [progress] */
  tutti_status (*post)(tutti_collnet_group *group, const tutti_collnet_op *op, uint64_t cookie) TUTTI_NOEXCEPT;
  /* Drives all groups and collects up to `cap` completions; returns how many, or a negative status when the whole context is
   * broken. [progress] */
  int32_t (*progress)(tutti_collnet_ctx *ctx, tutti_collnet_completion *out, uint32_t cap) TUTTI_NOEXCEPT;
  /* Optional, both or neither (NULL): as in net.h. */
  tutti_status (*event_fd)(tutti_collnet_ctx *ctx, int32_t *fd) TUTTI_NOEXCEPT; /* [control] */
  tutti_status (*arm)(tutti_collnet_ctx *ctx) TUTTI_NOEXCEPT;                   /* [progress] */
} tutti_collnet_v1;

TUTTI_END
#endif
