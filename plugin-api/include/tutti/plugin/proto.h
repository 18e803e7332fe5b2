/* tutti/plugin/proto.h: a protocol turns user memory into FIFO slots and back. It names functions; the core resolves them
 * once when a plan is bound and then calls them directly. A protocol knows neither algorithm nor transport. */
#ifndef TUTTI_PLUGIN_PROTO_H
#define TUTTI_PLUGIN_PROTO_H
#include "host.h"
TUTTI_BEGIN
#define TUTTI_PROTO "tutti.proto/1"

/* How a reader learns that a slot is full. */
typedef uint32_t tutti_proto_signal;
enum {
  /* The slot's 8-byte word tells. Slot layout, the core's: bytes 56..63 hold the word `sequence | signature << 32`; a
   * payload of up to 56 bytes sits at offset 0, a longer one at offset 64. The core writes and polls the word; kernels
   * get pointers to the payload. */
  TUTTI_SIGNAL_COUNTER = 0,
  /* Every line of the slot carries the word itself, so that data and signal arrive in one store (LL, LL128). Kernels get
   * the slot and the word; the core polls the first word at flag_offset. */
  TUTTI_SIGNAL_IN_DATA = 1,
  /* Slot, word, kernels and their types are those of COUNTER, but a message of more than 56 bytes that lies where the plan
   * leaves it alone until the operation ends need not be in the slot: its first line then says where the receiver reads it, by
   * pointer or in pieces that it brings into memory first. The core decides that message by message, writes and reads that
   * line, and tells the sender when its memory was read; kernels see plain memory. */
  TUTTI_SIGNAL_DESCRIPTOR = 2
};

/* What a kernel does, and its C type under each signal; those of DESCRIPTOR are COUNTER's. dst is user memory or scratch unless
 * said otherwise. COUNTER reductions get their operands in rank order, so the slot may be either of them, and dst may be the
 * other. */
typedef uint32_t tutti_form;
/* Kernels stay valid until close(), and are the same function for the same question. Many threads run them at once, each on
 * data of its own, under the rules of [progress]. User memory and payloads have any alignment; slots of IN_DATA begin at
 * multiples of 64 bytes. `bytes` is the message's: a multiple of the element size in reductions, and at most what the slot
 * holds. */
/* clang-format off */
enum {
  TUTTI_FORM_ENCODE = 0,               /* memory -> slot.                COUNTER tutti_copy_fn     IN_DATA tutti_line_encode_fn  */
  TUTTI_FORM_DECODE = 1,               /* slot -> dst.                   COUNTER tutti_copy_fn     IN_DATA tutti_line_decode_fn  */
  TUTTI_FORM_DECODE_REDUCE = 2,        /* dst = src (+) slot.            COUNTER tutti_reduce_fn   IN_DATA tutti_line_reduce_fn  */
  TUTTI_FORM_DECODE_REDUCE_ENCODE = 3, /* also into the next slot.       COUNTER tutti_reduce2_fn  IN_DATA tutti_line_reduce2_fn */
  TUTTI_FORM_REDUCE_N = 4              /* dst = several, in rank order.  COUNTER tutti_reduce_n_fn IN_DATA not offered           */
};
/* clang-format on */

/* IN_DATA kernels. `word` is what every line must carry; 0 marks a line as empty. Its low half counts the messages of the link,
 * its high half mixes what the operation is with the laps of that count: two messages that are a multiple of 2^32 apart have
 * one word by chance only, so that a line left from an earlier one matches is improbable, not impossible. Line k of a slot is
 * its bytes [k*line_bytes, (k+1)*line_bytes) and carries bytes [k*payload_bytes, (k+1)*payload_bytes) of the message, so that a
 * message may be encoded from any line on. The decoding ones return 1 when all `bytes` are done, else 0; *done counts the
 * payload bytes already handled, whole lines until all are, and is kept by the core between calls. DECODE_REDUCE_ENCODE with
 * dst NULL only passes on. dst may be src. */
typedef void (*tutti_line_encode_fn)(void *slot, const void *src, uint64_t bytes, uint64_t word) TUTTI_NOEXCEPT;
typedef int32_t (*tutti_line_decode_fn)(const void *slot, void *dst, uint64_t bytes, uint64_t word,
                                        uint64_t *done) TUTTI_NOEXCEPT;
typedef int32_t (*tutti_line_reduce_fn)(const void *slot, const void *src, void *dst, uint64_t bytes, uint64_t word,
                                        uint64_t *done) TUTTI_NOEXCEPT;
typedef int32_t (*tutti_line_reduce2_fn)(const void *slot, const void *src, void *dst, void *next_slot, uint64_t bytes,
                                         uint64_t word, uint64_t next_word, uint64_t *done) TUTTI_NOEXCEPT;

/* Flags of kernel(), beside those of host.h. */
enum {
  TUTTI_KERNEL_RECEIVED_FIRST = 1u << 1 /* IN_DATA reductions: dst = slot (+) src; of two NaN that is another one */
};

typedef void (*tutti_kernel)(void); /* cast to the type that form and signal name */

typedef struct tutti_proto_v1 {
  uint32_t struct_size;
  tutti_proto_signal signal;
  const char *name;       /* "simple"; what settings and explanations show; owned by the plugin */
  uint32_t line_bytes;    /* wire unit: 1, or 64 or 128 for in-data lines */
  uint32_t payload_bytes; /* of which payload: 1, or for in-data lines a multiple of 8: 56, 120 */
  /* Aligned pieces of this size must reach the reader whole, or with their stores in the order in which they were made; pieces
   * may overtake each other. 8, or for in-data lines from 8 to line_bytes. A host's memory does so for every size. */
  uint32_t atomic_store_bytes;
  uint32_t flag_offset; /* of the word in the first line, bytes; 56 but for in-data lines */
  /* NULL = this form, type, op or flag is not offered: the core composes it from others (REDUCE_N from
   * DECODE_REDUCE, DECODE_REDUCE_ENCODE from DECODE_REDUCE and ENCODE). ENCODE and DECODE ignore dtype and op and must
   * be offered; flags as in host.h. [any] */
  tutti_kernel (*kernel)(void *plugin, tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) TUTTI_NOEXCEPT;
} tutti_proto_v1;

TUTTI_END
#endif
