/* tutti/plugin/host.h: services that the core offers to plugins. Ask tutti_host.get_iface() for the id; NULL means that
 * this core does not have it. All texts handed in are copied. */
#ifndef TUTTI_PLUGIN_HOST_H
#define TUTTI_PLUGIN_HOST_H
#include "entry.h"
TUTTI_BEGIN

/* ---- diagnostics: log lines and error reasons ------------------------------------------------------------------- */
#define TUTTI_HOST_DIAG "tutti.host.diag/1"
typedef uint32_t tutti_log_level;
enum { TUTTI_LOG_TRACE = 0, TUTTI_LOG_DEBUG = 1, TUTTI_LOG_INFO = 2, TUTTI_LOG_WARN = 3, TUTTI_LOG_ERROR = 4 };
typedef struct tutti_host_diag_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* 1 when a line of this level would be written: ask before formatting anything costly. [any] */
  int32_t (*log_enabled)(const tutti_host *host, tutti_log_level level) TUTTI_NOEXCEPT;
  /* One line without newline, at most 1000 bytes of it; the core adds the plugin's name, the rank and the time. Of more than
   * 100 lines in a second the rest is dropped, and one line says so. [any] */
  void (*log)(const tutti_host *host, tutti_log_level level, const char *text) TUTTI_NOEXCEPT;
  /* Attach the reason to the error that this thread is about to tell, by a status or by a completion: one line, lower case,
   * without full stop. Kept per thread until then; the last one counts, and only with the status that is told. [any] */
  void (*set_error)(const tutti_host *host, tutti_status code, const char *text) TUTTI_NOEXCEPT;
} tutti_host_diag_v1;

/* ---- configuration: the plugin's own options, typed and checked -------------------------------------------------- */
#define TUTTI_HOST_CONFIG "tutti.host.config/1"
typedef struct tutti_host_config_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Value of option `key` of the calling plugin. INVALID, with the reason attached: no such key, or of another type.
   * get_int serves INT, BOOL (0/1), BYTES (bytes) and DURATION (nanoseconds). [any] */
  tutti_status (*get_int)(const tutti_host *host, const char *key, int64_t *out) TUTTI_NOEXCEPT;
  /* *out is owned by the core and valid until close(). A list is joined with ','. [any] */
  tutti_status (*get_string)(const tutti_host *host, const char *key, const char **out) TUTTI_NOEXCEPT;
  /* Where the value came from: "default", "tutti.toml:12", "TUTTI_PLUGIN_NET_SOCKET_SOCKETS", "NCCL_SOCKET_NTHREADS".
   * For messages about it. Owned by the core, valid until close(); never NULL. [any] */
  /* clang-format off */
  const char *(*origin)(const tutti_host *host, const char *key) TUTTI_NOEXCEPT;
  /* clang-format on */
} tutti_host_config_v1;

/* ---- memory ----------------------------------------------------------------------------------------------------- */
#define TUTTI_HOST_MEMORY "tutti.host.memory/1"
typedef struct tutti_host_memory_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* `bytes` of zeroed, page-aligned memory of `kind`, counted against the configured cap. numa_node -1 = anywhere. On success
   * *region, an out-struct, describes it. NO_MEMORY names cap and use; UNSUPPORTED: not this kind, which is all but HOST in
   * 0.9. A system call: nothing for [progress]. [any] */
  tutti_status (*alloc)(const tutti_host *host, tutti_mem_kind kind, uint64_t bytes, int32_t numa_node,
                        tutti_region *region) TUTTI_NOEXCEPT;
  /* What alloc() gave, with addr and bytes as they were; all of it before close() returns. [any] */
  void (*release)(const tutti_host *host, const tutti_region *region) TUTTI_NOEXCEPT;
} tutti_host_memory_v1;

/* ---- watch: be called when a file descriptor is ready, without a thread of one's own ------------------------------ */
#define TUTTI_HOST_WATCH "tutti.host.watch/1"
enum { TUTTI_WATCH_READ = 1u << 0, TUTTI_WATCH_WRITE = 1u << 1 };
typedef struct tutti_host_watch_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Calls fn(arg, ready) on the core's service thread while `fd` is ready for what `events` asks (level-triggered); an error or
   * a hang-up of the descriptor counts as ready. fn must not block, and runs while other threads are in the plugin; it may log.
   * INVALID: the descriptor, events or fn cannot be, or the descriptor is watched already (one watch per fd); SYSTEM: the
   * system cannot watch it, as it cannot regular files. [any] */
  tutti_status (*add)(const tutti_host *host, int32_t fd, uint32_t events, void (*fn)(void *arg, uint32_t ready),
                      void *arg) TUTTI_NOEXCEPT;
  /* On return fn is not running and never runs again; a descriptor that is not watched is left alone. Before the descriptor is
   * closed, and not from inside fn. [any] */
  void (*remove)(const tutti_host *host, int32_t fd) TUTTI_NOEXCEPT;
} tutti_host_watch_v1;

/* ---- reduce: the core's copy and reduction kernels, chosen for this CPU ------------------------------------------- */
#define TUTTI_HOST_REDUCE "tutti.host.reduce/1"
/* No alignment is required; buffers are equal or disjoint; `bytes` is a multiple of the element size. Floats of 16 and 8 bits
 * are combined in float32 and rounded to nearest even once per call; float8 results saturate, infinities too, and have one
 * NaN (e4m3 0x7f, e5m2 0x7e). */
typedef void (*tutti_copy_fn)(void *dst, const void *src, uint64_t bytes) TUTTI_NOEXCEPT;
/* dst = a (+) b; dst may be either operand. */
typedef void (*tutti_reduce_fn)(void *dst, const void *a, const void *b, uint64_t bytes) TUTTI_NOEXCEPT;
/* The same into two destinations; the user's output first, which may be either operand, then what is passed on. */
typedef void (*tutti_reduce2_fn)(void *dst, void *fwd, const void *a, const void *b, uint64_t bytes) TUTTI_NOEXCEPT;
/* dst = ((operand[0] (+) operand[1]) (+) ...), in this order, n >= 2; narrow floats rounded once at the end. */
typedef void (*tutti_reduce_n_fn)(void *dst, const void *const *operands, uint32_t n, uint64_t bytes) TUTTI_NOEXCEPT;
/* dst = src * factor; *factor is one element. In place allowed. Integers wrap. */
typedef void (*tutti_scale_fn)(void *dst, const void *src, const void *factor, uint64_t bytes) TUTTI_NOEXCEPT;
/* dst = src / divisor, the quotient rounded once (floats) or toward zero (integers). In place allowed. divisor > 0. */
typedef void (*tutti_divide_fn)(void *dst, const void *src, uint64_t divisor, uint64_t bytes) TUTTI_NOEXCEPT;
enum {
  TUTTI_KERNEL_NONTEMPORAL = 1u << 0 /* store past the caches; for the user's output only, never for a slot. The caller
                                        fences before it publishes. */
};
typedef struct tutti_host_reduce_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Each returns NULL for a type, op or flag this core does not know. [any] */
  tutti_copy_fn (*copy)(uint32_t flags) TUTTI_NOEXCEPT; /* with read-ahead of the destination, for slots, when flags == 0 */
  tutti_reduce_fn (*reduce)(tutti_dtype dtype, tutti_redop op, uint32_t flags) TUTTI_NOEXCEPT;
  tutti_reduce2_fn (*reduce2)(tutti_dtype dtype, tutti_redop op, uint32_t flags) TUTTI_NOEXCEPT;
  tutti_reduce_n_fn (*reduce_n)(tutti_dtype dtype, tutti_redop op, uint32_t flags) TUTTI_NOEXCEPT;
  tutti_scale_fn (*scale)(tutti_dtype dtype) TUTTI_NOEXCEPT;
  tutti_divide_fn (*divide)(tutti_dtype dtype) TUTTI_NOEXCEPT;
} tutti_host_reduce_v1;

TUTTI_END
#endif
