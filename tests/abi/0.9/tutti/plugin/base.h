/* tutti/plugin/base.h: what every plugin interface shares. C11 and C++11; includes nothing of ours.
 *
 * Conventions that hold in all headers of this folder:
 *   in-structs   the caller fills them and sets struct_size; the callee reads min(struct_size, its own sizeof) bytes and
 *                takes what is missing as 0. Borrowed for the call.
 *   out-structs  the caller sets struct_size to the bytes it owns; the callee writes no further, leaves struct_size as it is,
 *                and writes only on success. The same goes for every other out-parameter.
 *   growth       structs and tables grow at their end only; 0 in an appended field means what was so before there was the
 *                field, and NULL that the function is not offered. What the first version of an id had is always there.
 *   reserved     0 from whoever fills the struct, which the core checks in tables; plugins look past it.
 *   flags        a bit that the reader does not know is ignored, but where it is stated that it is refused.
 *   pointers     never NULL, but where it is stated; arrays of 0 elements may be NULL.
 *   ownership    nobody frees the other side's memory. "Borrowed" means: valid until the call returns, unless stated.
 *   threads      each function carries one tag:
 *                  [any]       may be called from several threads at once
 *                  [setup]     never two at once per plugin, though meanwhile functions of other tags run, on contexts that
 *                              exist already; may block for a bounded time, may allocate
 *                  [progress]  one thread at a time per context, though not always the same one; never blocks, never
 *                              allocates in steady state, never logs above DEBUG, but for one WARN per process about
 *                              strangers that it refused
 *                  [control]   the thread rule of [progress], between [progress] calls of the same context; may allocate and
 *                              may call into drivers: at most 1 s, and never waiting for a peer. Logs as [progress]
 *                Between two calls for one context that come from different threads, the core synchronizes.
 *   fork         a child uses nothing that was made before it, but may make contexts and the like of its own from a plugin that
 *                its parent has opened; the parent goes on as if nothing had been.
 *   logging      every plugin may write 100 lines in a second; the core drops the rest and says so in one line.
 *   errors       a negative tutti_status; whoever first decides that something is an error calls set_error() of
 *                tutti.host.diag/1 once, with the same status and the reason, in the thread and before the end of the call
 *                that tells it.
 *   strings      UTF-8, NUL-terminated. */
#ifndef TUTTI_PLUGIN_BASE_H
#define TUTTI_PLUGIN_BASE_H
#include <stddef.h>
#include <stdint.h>

/* Until 1.0 a core loads plugins of its own version only; from then on, those of the same major and of the same or a lower
 * minor version. */
#define TUTTI_ABI_MAJOR 0u
#define TUTTI_ABI_MINOR 9u

#define TUTTI_EXPORT __attribute__((visibility("default")))
#ifdef __cplusplus
#if __cplusplus >= 201703L
#define TUTTI_NOEXCEPT noexcept /* part of the type since C++17: a function that may throw does not convert */
#else
#define TUTTI_NOEXCEPT
#endif
#define TUTTI_BEGIN extern "C" {
#define TUTTI_END }
#else
#define TUTTI_NOEXCEPT
#define TUTTI_BEGIN
#define TUTTI_END
#endif

/* True when *obj (a T) is long enough to hold `member` and the member is not NULL. */
#define TUTTI_HAS(T, obj, member) ((obj)->struct_size >= offsetof(T, member) + sizeof(((T *)0)->member) && (obj)->member)

TUTTI_BEGIN

/* Result of a call: 0 done, > 0 not an error, < 0 an error. */
typedef int32_t tutti_status;
enum {
  TUTTI_OK = 0,
  TUTTI_AGAIN = 1,            /* nothing was done; call again after progress */
  TUTTI_ERR_INVALID = -1,     /* the caller broke the contract */
  TUTTI_ERR_UNSUPPORTED = -2, /* a correct request that this plugin, device or version cannot serve */
  TUTTI_ERR_NO_MEMORY = -3,   /* memory, descriptors or another bounded resource is used up */
  TUTTI_ERR_SYSTEM = -4,      /* an operating system or driver call failed */
  TUTTI_ERR_REMOTE = -5,      /* the peer closed the connection or failed */
  TUTTI_ERR_TIMEOUT = -6,     /* a deadline passed */
  TUTTI_ERR_CANCELLED = -7,   /* given up because its endpoint or context was destroyed */
  TUTTI_ERR_INTERNAL = -8,    /* a bug of the callee */
  TUTTI_ERR_TRUNCATED = -9,   /* a message was longer than the buffer posted for it */
  TUTTI_ERR_DENIED = -10,     /* the peer could not prove that it belongs to the job */
};

/* Where memory lives; a bit, so that devices can state sets. */
typedef uint32_t tutti_mem_kind;
enum {
  TUTTI_MEM_HOST = 1u << 0,
  TUTTI_MEM_CUDA = 1u << 1,
  TUTTI_MEM_DMABUF = 1u << 2, /* reached through a dmabuf file descriptor */
};

/* Element types. The values are those of tuttiDataType_t and never change. */
typedef uint32_t tutti_dtype;
enum {
  TUTTI_DT_INT8 = 0,
  TUTTI_DT_UINT8 = 1,
  TUTTI_DT_INT32 = 2,
  TUTTI_DT_UINT32 = 3,
  TUTTI_DT_INT64 = 4,
  TUTTI_DT_UINT64 = 5,
  TUTTI_DT_FLOAT16 = 6,
  TUTTI_DT_FLOAT32 = 7,
  TUTTI_DT_FLOAT64 = 8,
  TUTTI_DT_BFLOAT16 = 9,
  TUTTI_DT_FLOAT8E4M3 = 10, /* OCP: 4 bits of exponent, 3 of fraction, no infinities, NaN is S.1111.111 */
  TUTTI_DT_FLOAT8E5M2 = 11, /* OCP: the upper byte of a float16 */
  TUTTI_DT_COUNT = 12,      /* of this version; grows */
};

/* What combines two elements. Average and pre-multiplied sum are a SUM with a pre- or post-operation (plan.h).
 * All are associative and commutative but for rounding. */
typedef uint32_t tutti_redop;
enum {
  TUTTI_RED_SUM = 0,
  TUTTI_RED_PROD = 1,
  TUTTI_RED_MAX = 2,
  TUTTI_RED_MIN = 3,
  TUTTI_RED_COUNT = 4,
};

/* Collectives, and how each sees its buffers in blocks (n = nranks; see "chunks" in plan.h).      IN   OUT blocks */
typedef uint32_t tutti_coll;
enum {
  TUTTI_COLL_ALL_REDUCE = 0,     /* every rank gets the reduction                                   1    1  */
  TUTTI_COLL_REDUCE = 1,         /* the root gets it; OUT exists on the root only                   1    1  */
  TUTTI_COLL_BROADCAST = 2,      /* the root's IN to every OUT, its own included; IN only on root   1    1  */
  TUTTI_COLL_ALL_GATHER = 3,     /* block r of OUT is rank r's IN                                   1    n  */
  TUTTI_COLL_REDUCE_SCATTER = 4, /* rank r gets the reduction of everybody's block r                n    1  */
  TUTTI_COLL_ALL_TO_ALL = 5,     /* block s of rank r's OUT is block r of rank s's IN               n    n  */
  TUTTI_COLL_GATHER = 6,         /* as ALL_GATHER, but OUT exists on the root only                  1    n  */
  TUTTI_COLL_SCATTER = 7,        /* rank r's OUT is block r of the root's IN; IN only on the root   n    1  */
  TUTTI_COLL_BARRIER = 8,        /* an ALL_REDUCE of one 8-byte word that nobody looks at           1    1  */
  TUTTI_COLL_SEND_RECV = 9,      /* a group of sends and receives; the core plans it, never a plugin        */
  TUTTI_COLL_COUNT = 10,
};

/* A piece of memory, readable and writable. The memory is the caller's and outlives every handle made from it; the struct is
 * borrowed for the call. Cores of 0.9 hand over TUTTI_MEM_HOST only. In-struct. */
typedef struct tutti_region {
  uint32_t struct_size;
  tutti_mem_kind kind;    /* exactly one bit */
  void *addr;             /* first byte, as posts name it; a device address when kind is TUTTI_MEM_CUDA, and with DMABUF any
                             number that the caller counts from: nobody reads or writes through it */
  uint64_t bytes;         /* > 0 */
  int32_t device;         /* device ordinal, -1 for host memory */
  int32_t dmabuf_fd;      /* of the memory, with DMABUF always, with CUDA where the driver has one; else -1. Borrowed for the
                             call: who needs it longer duplicates it */
  uint64_t dmabuf_offset; /* of addr inside the dmabuf, bytes; the two are equal modulo the page size */
} tutti_region;

TUTTI_END
#endif
