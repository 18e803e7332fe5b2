/* tutti/plugin/store.h: a store of keys and values that all ranks of a job reach, as clusters run them anyway (Redis, etcd).
 * The core uses it for what ranks must know before they can talk: rank 0 puts its unique id there, the others wait for it. A
 * few small values per job, at set-up only.
 *
 *   calls        block, each for timeout_ns at the most and half a second more. Until then a call tries again what may pass: a
 *                connection refused or cut, a server that starts up, another of several servers. TUTTI_ERR_TIMEOUT says that
 * the store did not answer, and the reason names the server and the last thing that was wrong there. threads      [store]: one
 * call at a time per store, from any thread; several stores at once; close() may come meanwhile. statuses     beside
 * TUTTI_ERR_TIMEOUT: DENIED, user, password or permission are refused; NO_MEMORY, the store is full; REMOTE, the store answered
 * with another error, whose text the reason holds, or with what is no answer; CANCELLED, close() was called; INVALID, the
 * argument breaks what is said here. secrets      a password, wherever from, and values are in no log line and in no reason. */
#ifndef TUTTI_PLUGIN_STORE_H
#define TUTTI_PLUGIN_STORE_H
#include "base.h"
TUTTI_BEGIN
#define TUTTI_STORE "tutti.store/1"

enum {
  TUTTI_STORE_KEY_BYTES = 512,     /* longest key, without its NUL; any bytes but NUL, at least one */
  TUTTI_STORE_VALUE_BYTES = 65536, /* longest value; any bytes, also none */
};

typedef struct tutti_store tutti_store; /* a store, opened */

/* Where a store is. In-struct. */
typedef struct tutti_store_config {
  uint32_t struct_size;
  uint32_t reserved0;
  /* SCHEME://[USER[:PASSWORD]@]..., as the user wrote it; what follows is the plugin's own grammar. Where it has no password,
   * an option of the plugin may name a file with one: it must be this user's, and closed to others. Keys of different URLs to
   * one server may be the same keys or not: its path may be a name space. */
  const char *url;
  uint64_t timeout_ns; /* > 0, as for the calls */
} tutti_store_config;

typedef struct tutti_store_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  const char *name;           /* owned by the plugin */
  const char *const *schemes; /* of its URLs, lower case, "redis"; NULL-terminated, at least one. Owned by the plugin */
  /* Connects and proves who it is. INVALID: the URL or an option is wrong, the reason says where. UNSUPPORTED: a right URL that
   * this plugin cannot serve, as one with encryption that it was built without. [any] */
  tutti_status (*open)(void *plugin, const tutti_store_config *config, tutti_store **out) TUTTI_NOEXCEPT;
  /* Puts the value there, in the place of another. ttl_ns: it is gone after that, at the earliest, and 5 s later at the most,
   * rounded up as the store counts; 0: it stays. [store] */
  tutti_status (*set)(tutti_store *store, const char *key, const void *value, uint32_t bytes, uint64_t ttl_ns,
                      uint64_t timeout_ns) TUTTI_NOEXCEPT;
  /* Puts it there if there is none, in one step: of all that ask for a key at once, one gets *first = 1, the others 0, and
   * theirs is not put. An answer that gets lost on the way is found out by reading: so the values of two that compete differ,
   * or both may be told that they are first. [store] */
  tutti_status (*add)(tutti_store *store, const char *key, const void *value, uint32_t bytes, uint64_t ttl_ns,
                      uint64_t timeout_ns, uint32_t *first) TUTTI_NOEXCEPT;
  /* *bytes in: room at value; out: bytes of the value. TRUNCATED: it is longer, nothing was written but *bytes, to say how
   * long. TUTTI_AGAIN: there is none, as the store answered: at once, or with TUTTI_STORE_WAIT after timeout_ns; with that a
   * value that comes meanwhile is returned within a second. [store] */
  tutti_status (*get)(tutti_store *store, const char *key, void *value, uint32_t *bytes, uint32_t flags,
                      uint64_t timeout_ns) TUTTI_NOEXCEPT;
  /* OK, too, where there is none. [store] */
  tutti_status (*remove)(tutti_store *store, const char *key, uint64_t timeout_ns) TUTTI_NOEXCEPT;
  /* Ends a call that runs, with CANCELLED unless it is done, and returns after it, 2 s later at the most. Nothing is taken out
   * of the store. [any] */
  void (*close)(tutti_store *store) TUTTI_NOEXCEPT;
} tutti_store_v1;
enum { TUTTI_STORE_WAIT = 1u << 0 }; /* flags of get() */

TUTTI_END
#endif
