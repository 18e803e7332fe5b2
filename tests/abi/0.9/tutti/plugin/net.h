/* tutti/plugin/net.h: point-to-point messages between ranks over a network device.
 *
 * A context (ctx) is one device opened for one communicator. Everything made from a context is used by one thread at a
 * time, so a plugin needs no lock inside a context. Two contexts may be used at the same time by two threads, also two of one
 * device, and while [setup] functions of the plugin run. All ranks of a communicator have loaded the same file: the core
 * compares its bytes, so that what two ends tell each other needs no version.
 *
 * Connecting. listen() writes an address, which the core brings to the peer; connect() makes an endpoint (ep) of it at once,
 * and may write an answer, which the core brings back to the listener's side: a device whose two ends must know each other
 * before anything can be sent says ANSWERS, and its accept() is first called with that answer. Both travel over the core's
 * authenticated channel and may hold secrets. accept() gives an endpoint when a peer is there. Until ep_ready() has returned
 * TUTTI_OK the core calls accept() and ep_ready() over and over, and progress() between them, on both sides in no particular
 * order; the plugin may advance its handshake in any of the three. The core does not sleep on event_fd() meanwhile, and posts
 * nothing on an endpoint that is not ready. One end may be ready long before the other: a post may not depend on the peer's
 * being ready. The core bounds the wait; a plugin need not, but should fail as soon as it knows. An accepted endpoint
 * outlives its listener, which the core destroys as soon as accept() has returned TUTTI_OK. A job opens endpoints as it first
 * needs them, so that some are connected while others of the context carry messages.
 *
 * Messages. An endpoint carries messages from the connecting side to the accepting side, or both ways when the device says
 * DUPLEX. The k-th message sent pairs with the k-th buffer posted for receiving. A send may be posted before its
 * receive: the plugin holds it back or buffers it within fixed bounds, without blocking. A buffer may be longer than its
 * message. A longer message completes with TUTTI_ERR_TRUNCATED at its receiver, and nothing is written beyond the buffer; the
 * endpoint is then unusable but for ep_destroy().
 *
 * Posting. The bufs array of a call is the caller's again when the call returns; the plugin copies what it needs. What the
 * bufs point to belongs to the plugin from the post until its completion has been reported: buffers that receive overlap no
 * others, but many sends may read the same memory at once, through several endpoints and with one registration. A plugin takes
 * at least max_inflight calls per endpoint and direction, and at most 4096 more; beyond what it takes it returns TUTTI_AGAIN.
 * The core does not count: it posts until it is told TUTTI_AGAIN, and posts the same call again after progress().
 *
 * Completion. Every send, recv and flush call that returned TUTTI_OK is reported by progress() exactly once, with its cookie,
 * in any order between calls. That of a send says that its buffers may be used again, not that the message has arrived; that of
 * a receive, that the thread which called progress() finds the whole message in host memory. A call of several messages that
 * fails may have moved some of them. Nothing moves by itself: the core calls progress() while anything is outstanding, or
 * sleeps on event_fd().
 *
 * The end. ep_destroy() tells the peer in band, if need be in progress() calls that follow and in ctx_destroy(), which may wait
 * up to 1 s for that. Posts of the peer that this leaves without a counterpart, and later ones, fail with TUTTI_ERR_REMOTE: a
 * recv completes so, a send call returns or completes so, within 5 s during which the peer calls progress(). The plugin reports
 * a peer process that died in the same way, and in that time where its kernel or device closes its endpoints so that the peer
 * sees it. Where nobody says so, as of a host or a link that went silent, it is found as fast as the device can: the core's
 * control plane looks for all of these by itself (socket.dead_after). Other
 * endpoints of the context are not disturbed: where two of opposite directions share a connection that cannot end for one
 * alone, the peer of a receiver may learn its end only when the other endpoint ends too. */
#ifndef TUTTI_PLUGIN_NET_H
#define TUTTI_PLUGIN_NET_H
#include "base.h"
TUTTI_BEGIN
#define TUTTI_NET "tutti.net/1"

typedef struct tutti_net_ctx tutti_net_ctx;
typedef struct tutti_net_listener tutti_net_listener;
typedef struct tutti_net_ep tutti_net_ep;
typedef struct tutti_net_mr tutti_net_mr;

enum { TUTTI_NET_ADDR_BYTES = 1024 }; /* largest address of a listener, and largest answer of a connect() */

enum {
  TUTTI_NET_NEEDS_FLUSH = 1u << 0, /* received device memory is visible only after flush() */
  TUTTI_NET_NEEDS_MR = 1u << 1,    /* every buffer of more than 0 bytes needs a registration; otherwise mr may be NULL */
  TUTTI_NET_DUPLEX = 1u << 2,      /* one endpoint carries both directions */
  TUTTI_NET_LOOPBACK = 1u << 3,    /* reaches only this host: used where nothing else is there */
  TUTTI_NET_ANSWERS = 1u << 4,     /* accept() needs what the peer's connect() answered */
  TUTTI_NET_ENCRYPTS = 1u << 5     /* encrypts all that goes to other hosts where TUTTI_NET_ENCRYPT asks for it */
};

/* A device. Out-struct of device_info(). */
typedef struct tutti_net_dev {
  uint32_t struct_size;
  tutti_mem_kind mem_kinds; /* set of memory kinds it can send from and receive into, TUTTI_MEM_HOST among them */
  char name[64];            /* "eth0", "mlx5_0:1"; unique within the plugin; NUL-terminated, as pci is */
  char pci[64];             /* sysfs path, "/sys/bus/pci/devices/0000:17:00.0": what follows the last '/' is the address of the
                               PCI function; "" when unknown or virtual */
  uint64_t guid;            /* equal for devices that share one physical port; 0 = unknown */
  uint64_t max_message_bytes; /* of one buffer, also of a get(); >= 65536 */
  uint32_t speed_mbps;        /* one direction, of all ports that the device sends through together; 0 = unknown */
  uint32_t latency_ns;        /* one way, small message; 0 = unknown */
  uint32_t max_inflight;      /* calls posted and not completed that are taken, per endpoint and direction; >= 8 */
  uint32_t max_batch;         /* buffers of one send() or recv() call; >= 2 */
  uint32_t flags;             /* TUTTI_NET_* */
  int32_t numa_node;          /* -1 = unknown */
  int32_t rail;               /* devices of one rail reach each other best; -1 = unknown */
  uint32_t reserved0;         /* 0 */
} tutti_net_dev;

/* Of a context. ENCRYPT: whatever leaves the host through it must be encrypted, with keys that only the two ends have, and what
 * comes must be known to be the peer's, or refused: core.security is "encrypted". See host_tls.h for the means. */
enum { TUTTI_NET_ENCRYPT = 1u << 0 };

/* How a context will be used. In-struct. */
typedef struct tutti_net_ctx_config {
  uint32_t struct_size;
  int32_t traffic_class; /* 0..255: the traffic class byte of the IP header or of the GRH, DSCP * 4; -1 = not set: the plugin's
                            own choice. The same on all ranks */
  uint64_t comm_id;      /* for log lines */
  int32_t rank;          /* for log lines */
  int32_t nranks;
  uint32_t flags; /* TUTTI_NET_ENCRYPT, only on devices with ENCRYPTS */
  uint32_t reserved0;
} tutti_net_ctx_config;

/* One message. Array element: frozen. */
typedef struct tutti_net_buf {
  void *addr;       /* may be NULL when bytes is 0 */
  uint64_t bytes;   /* 0 is allowed and still is a message */
  tutti_net_mr *mr; /* of a region that holds [addr, addr + bytes), or NULL where allowed */
  uint64_t tag;     /* equal on both ends, and different from that of every other message of this endpoint and direction
                       that is outstanding on either side: the core counts messages. Devices that reorder may match by it,
                       others ignore it. Messages pair by order all the same */
} tutti_net_buf;

/* Array element: frozen. */
typedef struct tutti_net_completion {
  uint64_t cookie;
  uint64_t bytes;      /* received in all buffers of the call; as posted for a send; of a call that failed it means nothing */
  tutti_status status; /* TUTTI_OK, or why the call failed; set_error() has the text of the first failure of an endpoint, but
                          for TUTTI_ERR_CANCELLED */
  uint32_t reserved0;  /* 0 */
} tutti_net_completion;

typedef struct tutti_net_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name; /* "socket": what TUTTI_NET selects by; owned by the plugin */
  /* devices */
  /* Usable devices now; 0 with TUTTI_OK when there are none (set_error() may say why). The core asks for each communicator.
   * Devices may come and go between calls, but an index below the count of the last call means what it meant then. [setup] */
  tutti_status (*device_count)(void *plugin, uint32_t *count) TUTTI_NOEXCEPT;
  /* INVALID, here and wherever `dev` is asked for: not below the count. [setup] */
  tutti_status (*device_info)(void *plugin, uint32_t dev, tutti_net_dev *out) TUTTI_NOEXCEPT;
  /* Opens the device: may take the time that drivers take. [setup] */
  tutti_status (*ctx_create)(void *plugin, uint32_t dev, const tutti_net_ctx_config *config,
                             tutti_net_ctx **out) TUTTI_NOEXCEPT;
  /* The core has destroyed endpoints, listeners and registrations of the context before; completions that it did not collect
   * are dropped. [setup] */
  void (*ctx_destroy)(tutti_net_ctx *ctx) TUTTI_NOEXCEPT;
  /* connection: nothing waits for the peer; an endpoint exists at once and becomes ready later */
  /* *addr_bytes in: room at addr, at least TUTTI_NET_ADDR_BYTES; out: bytes of address written, 1 to TUTTI_NET_ADDR_BYTES. The
   * address reaches the peer over the core's authenticated channel and may hold a secret: a listener must refuse whoever does
   * not know it. A listener accepts one endpoint; from then on accept() returns TUTTI_AGAIN or an error. [control] */
  tutti_status (*listen)(tutti_net_ctx *ctx, void *addr, uint32_t *addr_bytes, tutti_net_listener **out) TUTTI_NOEXCEPT;
  /* addr is borrowed: what listen() of the peer's device wrote; whatever cannot be that is INVALID, or never gets ready.
   * *answer_bytes in: room at answer, at least TUTTI_NET_ADDR_BYTES; out: bytes of answer written, 0 = none, but at least 1 for
   * a peer whose device has ANSWERS. [control] */
  tutti_status (*connect)(tutti_net_ctx *ctx, const void *addr, uint32_t addr_bytes, void *answer, uint32_t *answer_bytes,
                          tutti_net_ep **out) TUTTI_NOEXCEPT;
  /* answer is borrowed: that of the peer's connect() where the device has ANSWERS, the same in every call, else NULL and 0.
   * TUTTI_AGAIN, at once: nobody yet. Strangers are refused inside, never reported as errors, and cannot keep the peer out by
   * being silent or many. [control] */
  tutti_status (*accept)(tutti_net_listener *listener, const void *answer, uint32_t answer_bytes,
                         tutti_net_ep **out) TUTTI_NOEXCEPT;
  /* TUTTI_AGAIN, at once: still connecting. Any error is final. TUTTI_OK for as long as the endpoint works. [control] */
  tutti_status (*ep_ready)(tutti_net_ep *ep) TUTTI_NOEXCEPT;
  /* Text for messages: "10.0.0.1:4711 -> 10.0.0.2:9 (eth0)"; at most cap bytes with the NUL, cap >= 1; longer ones are cut. In
   * every state of the endpoint. [control] */
  tutti_status (*ep_describe)(tutti_net_ep *ep, char *text, uint32_t cap) TUTTI_NOEXCEPT;
  /* On return no posted buffer is read or written again, by the device neither; what was outstanding is reported once as
   * TUTTI_ERR_CANCELLED by the next progress() calls, the first of them as far as its cap goes, or as TUTTI_OK where it was
   * done before. Allowed in every state of the endpoint; never waits for the peer. [control] */
  void (*ep_destroy)(tutti_net_ep *ep) TUTTI_NOEXCEPT;
  /* Before or after accept(). [control] */
  void (*listener_destroy)(tutti_net_listener *listener) TUTTI_NOEXCEPT;
  /* memory */
  /* For sending from, receiving into, and with tutti.net.rma/1 for being read, through any endpoint of the context. No caching
   * in the plugin: the core keeps what it registered for as long as it wants it. Regions may overlap. UNSUPPORTED: the device
   * does not serve this kind of memory. After any error the core gives up registrations and tries again, or sends copies.
   * [control] */
  tutti_status (*mr_register)(tutti_net_ctx *ctx, const tutti_region *region, tutti_net_mr **out) TUTTI_NOEXCEPT;
  /* Never while a post that names it is outstanding: its completion has been reported before. [control] */
  void (*mr_release)(tutti_net_mr *mr) TUTTI_NOEXCEPT;
  /* data */
  /* n messages in one call, 1 to max_batch, all or nothing; one completion. On the connecting side, with DUPLEX on both.
   * TUTTI_AGAIN: the queue is full, nothing was posted. An error: nothing was posted, and the endpoint is unusable but for
   * ep_destroy(); what it has outstanding is still reported. [progress] */
  tutti_status (*send)(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) TUTTI_NOEXCEPT;
  /* n buffers for the next n messages; one completion after all of them. On the accepting side, with DUPLEX on both. received
   * (n entries, may be NULL) gets the bytes of each; it stays the caller's and lives until the completion. Results as those of
   * send(). [progress] */
  tutti_status (*recv)(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t *received,
                       uint64_t cookie) TUTTI_NOEXCEPT;
  /* bufs of receives that have completed. After its completion what they received into device memory is visible to the device.
   * Reported by progress() with its cookie, bytes as posted; up to max_inflight of them per endpoint beside the receives, then
   * TUTTI_AGAIN. NULL unless NEEDS_FLUSH; not called in 0.9, whose core knows no device memory. [progress] */
  tutti_status (*flush)(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) TUTTI_NOEXCEPT;
  /* Drives all endpoints of the context and collects up to `cap` completions; returns how many, or a negative status when the
   * whole context is broken, for good. out may be NULL when cap is 0. The core calls it millions of times a second while it
   * waits: what is not due at every turn, such as clocks and lists of files, belongs into one of many. [progress] */
  int32_t (*progress)(tutti_net_ctx *ctx, tutti_net_completion *out, uint32_t cap) TUTTI_NOEXCEPT;
  /* Optional, both or neither (NULL; the core then polls): a descriptor to sleep on, readable when progress() has something to
   * do, be it a timer of the plugin's own. The core asks for it as often as it wants, calls arm(), and sleeps when that returns
   * TUTTI_OK; TUTTI_AGAIN: there already is something to do. One arm() holds for one sleep, which any progress() ends. The
   * descriptor is owned by the context, always the same, and can be watched by poll() and epoll; the core does not read from
   * it. event_fd is [control], arm is [progress]. */
  tutti_status (*event_fd)(tutti_net_ctx *ctx, int32_t *fd) TUTTI_NOEXCEPT;
  tutti_status (*arm)(tutti_net_ctx *ctx) TUTTI_NOEXCEPT;
} tutti_net_v1;

TUTTI_END
#endif
