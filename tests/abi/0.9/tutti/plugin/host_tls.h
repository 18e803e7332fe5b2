/* tutti/plugin/host_tls.h: encryption for connections of plugins, a service of the core.
 *
 * A session is TLS 1.3 between two ends that share a secret: no certificates, and keys of its own that the secret alone does
 * not tell (Diffie-Hellman). A plugin takes the service when tutti_net_ctx_config says TUTTI_NET_ENCRYPT, and its devices then
 * have TUTTI_NET_ENCRYPTS. It brings the secret: random bytes that went to the peer in an address or answer, over the core's
 * channel, which is encrypted itself then.
 *
 * Two styles. With a descriptor, the session reads and writes that socket. Without one (fd -1) the plugin carries bytes itself:
 * feed() takes what came from the peer, take() gives what is to go there, after any other call; there handshake() and read()
 * return TUTTI_AGAIN when they need more.
 *
 * A stream is a stream: what is written in one call may be read in several and the other way round. A read gives only bytes
 * that the peer has written, in order, none left out, or an error. An end of the connection that nobody said in the plugin's
 * own words may be an attacker's.
 *
 * A session belongs to one connection and is used by one thread at a time, which may change. It may not be used in a child
 * after a fork but for destroy(). */
#ifndef TUTTI_PLUGIN_HOST_TLS_H
#define TUTTI_PLUGIN_HOST_TLS_H
#include "entry.h"
TUTTI_BEGIN
#define TUTTI_HOST_TLS "tutti.host.tls/1"

typedef struct tutti_tls tutti_tls;

typedef uint32_t tutti_tls_role;
enum { TUTTI_TLS_CLIENT = 0, TUTTI_TLS_SERVER = 1 }; /* the client speaks first; one of each per connection */

/* What a session wants, or the kernel does. */
enum { TUTTI_TLS_READ = 1u << 0, TUTTI_TLS_WRITE = 1u << 1 };

/* In-struct of create(). Secret and context are copied, and the copy is wiped when the session stands. */
typedef struct tutti_tls_config {
  uint32_t struct_size;
  tutti_tls_role role;
  const void *secret;     /* of secret_bytes; who does not have it comes to no session */
  const void *context;    /* of context_bytes: what else both ends must say alike, such as the nonces of a handshake of the
                             plugin's own; may be NULL where that is 0 */
  uint32_t secret_bytes;  /* 16 to 4096 */
  uint32_t context_bytes; /* up to 65536 */
  int32_t fd;             /* connected and non-blocking; borrowed until destroy(), which does not close it. -1: none */
  uint32_t reserved0;     /* 0 */
} tutti_tls_config;

/* Array element: frozen. */
typedef struct tutti_tls_part {
  const void *data; /* may be NULL when bytes is 0 */
  uint64_t bytes;
} tutti_tls_part;

typedef struct tutti_host_tls_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* INVALID: the config cannot be; UNSUPPORTED: this core was built without encryption; NO_MEMORY. [any] */
  tutti_status (*create)(const tutti_host *host, const tutti_tls_config *config, tutti_tls **out) TUTTI_NOEXCEPT;
  /* Ends no connection and says nothing to the peer. [any] */
  void (*destroy)(tutti_tls *tls) TUTTI_NOEXCEPT;
  /* All that follow: by the thread that uses the session, at once, without waiting; they allocate while the handshake goes on,
   * and later only for what read() and take() cannot give out yet. Errors end the session for good. [progress] */
  /* A step of the handshake; TUTTI_AGAIN: see wants(). DENIED: the peer does not know the secret, says another context or is
   * none of ours; REMOTE: the connection ended. TUTTI_OK once both ends know each other, and ever after. [progress] */
  tutti_status (*handshake)(tutti_tls *tls) TUTTI_NOEXCEPT;
  /* The n parts as one. *written of their bytes, at least 1 with TUTTI_OK: they are sealed and with the kernel (with a
   * descriptor), or in what take() gives. What was not taken begins the next call, the same bytes and no fewer, for it may be
   * sealed already. TUTTI_AGAIN: nothing was taken, the descriptor has no room. REMOTE: the connection ended; INVALID: before
   * the handshake is over, 0 bytes, fewer than before. [progress] */
  tutti_status (*write)(tutti_tls *tls, const tutti_tls_part *parts, uint32_t n, uint64_t *written) TUTTI_NOEXCEPT;
  /* *got bytes, at least 1 with TUTTI_OK. TUTTI_AGAIN: nothing can be read before more comes, so with a descriptor that is
   * edge-triggered read until then. REMOTE: the connection ended; DENIED: what came was not written by the peer; INVALID:
   * before the handshake is over, 0 bytes. [progress] */
  tutti_status (*read)(tutti_tls *tls, void *data, uint64_t cap, uint64_t *got) TUTTI_NOEXCEPT;
  /* Which readiness of the descriptor could bring the last call that returned TUTTI_AGAIN further: TUTTI_TLS_READ or _WRITE.
   * [progress] */
  uint32_t (*wants)(const tutti_tls *tls) TUTTI_NOEXCEPT;
  /* Of a call that returned REMOTE: the errno by which the connection broke; 0: the peer ended it. [progress] */
  int32_t (*sys_errno)(const tutti_tls *tls) TUTTI_NOEXCEPT;
  /* For which directions the kernel seals and opens records: once the handshake is over, plain send() or recv() on the
   * descriptor serve instead of write() or read(), and cost less. 0 in this version, where nothing is given to the kernel.
   * [progress] */
  uint32_t (*in_kernel)(const tutti_tls *tls) TUTTI_NOEXCEPT;
  /* Without a descriptor: what came from the peer; all of it is taken. NO_MEMORY. [progress] */
  tutti_status (*feed)(tutti_tls *tls, const void *data, uint64_t bytes) TUTTI_NOEXCEPT;
  /* Without a descriptor: *bytes of what goes to the peer, up to cap; 0 with TUTTI_OK: nothing now. [progress] */
  tutti_status (*take)(tutti_tls *tls, void *data, uint64_t cap, uint64_t *bytes) TUTTI_NOEXCEPT;
} tutti_host_tls_v1;

TUTTI_END
#endif
