// tutti/core/exec/bound.h: a plan resolved for running: 64-byte steps with their handler and kernel, lanes, chunk arithmetic.
#pragma once
#include "exec/engine.h"
#include "transport/memory.h"
#include "transport/regions.h"
#include "transport/ring.h"
#include "tutti/plugin/host.h"
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace tutti {

struct Lane;
struct Frame;
struct BoundStep;

// 1 done, 0 blocked: call again, -1 failed: frame.mismatch says why.
using Handler = int (*)(Lane &lane, const BoundStep &step, Frame &frame);

struct GroupCall;

struct BoundLink {
  Ring *ring = nullptr;
  uint32_t fingerprint = 0;        // even; mixed into the operation's signature, which is odd, so that no word is 0
  int32_t peer = -1;               // -1: a collnet group
  const GroupCall *call = nullptr; // of links to groups: what is posted
  uint64_t began = 0;              // messages before the present operation [owner]
};

// What only composed steps need.
struct StepCold {
  tutti_step step{};
  uint32_t life = 0;
  tutti_copy_fn copy_out = nullptr; // DECODE of COUNTER, with the user-output flags
  tutti_kernel encode = nullptr, decode = nullptr;
  tutti_kernel reduce2 = nullptr; // of descriptors: into the output and a slot at once
  std::vector<tutti_dep> deps;
  uint64_t tmp_bytes = 0; // one operand, whole message
  uint32_t operands = 0;
  // Nets: the operand may land in the output. And the next step of the lane that receives from the same link, itself if there
  // is no other one; and how many messages of it come from this step on before one that may land in the output.
  bool recv_home = false;
  uint32_t next_recv = 0, staged = 0;
};

struct alignas(64) BoundStep {
  Handler handler = nullptr;
  tutti_kernel kernel = nullptr;
  const BoundLink *recv = nullptr, *send = nullptr; // of iteration 0
  const StepCold *cold = nullptr;
  int32_t src_first = 0, dst_first = 0, stride = 0;
  uint32_t modulus = 0;
  uint32_t repeat = 1;
  uint16_t recv_count = 0;
  uint8_t src_buf = 0, dst_buf = 0;
};
static_assert(sizeof(BoundStep) == 64);

// One buffer as one group sees it in the present operation: chunk c starts at base + c * mul and has min(len, limit - c * mul)
// bytes.
struct Geo {
  uint8_t *base = nullptr;
  int64_t mul = 0, len = 0, limit = 0;
  uint32_t irregular = 0; // several pieces in several blocks, or a table: ask chunk_span()
  uint32_t group = 0;
};

struct alignas(64) Lane {
  const BoundStep *steps = nullptr;
  uint32_t step_count = 0, pc = 0, iter = 0, slice = 0;
  uint64_t done = 0;        // handler's own: bytes or operands handled in the current iteration
  const Geo *geo = nullptr; // [IN, OUT] of the lane's group
  uint32_t group = 0;
  bool finished = false;
  uint8_t *tmp = nullptr; // for composed steps
  uint32_t phase = 0;
  std::vector<BoundStep> plain, with_ops; // without and with pre- and post-operation
  std::vector<StepCold> cold;
  std::vector<BoundLink> recv, send;
};

// Why a handler failed: a message of another operation, or a peer's memory that cannot be read.
struct Mismatch {
  const BoundLink *link = nullptr;
  uint32_t got = 0; // signature in the message
  int read_errno = 0;
  bool mapping = false; // of memory of tuttiMemAlloc, not read through the kernel
};

// Where the payload of a message is: plain memory, or private memory of another process when `at` is NULL.
struct Payload {
  const uint8_t *at = nullptr;
  uint64_t remote = 0;
};

// The running operation, hot part.
struct Frame {
  uint64_t slice_bytes = 0;
  uint32_t signature = 0; // odd
  uint32_t keyed = 0;     // messages carry their chunk's bytes in the signature: v-collectives, send/recv
  uint8_t *scratch = nullptr;
  uint64_t scratch_stride = 0;
  const Bound *bound = nullptr;
  const BufferShape *shape[2] = {nullptr, nullptr};
  const uint64_t *marks[2] = {nullptr, nullptr};
  const void *preop_factor = nullptr;
  uint64_t postop_divisor = 0;
  bool in_place = false;
  const uint8_t **received = nullptr; // room for one step's operands
  const void **operands = nullptr;
  Payload *payloads = nullptr;
  Region regions[2];                 // shared memory that IN and OUT begin in, under a protocol of descriptors
  const BoundLink *unread = nullptr; // what has arrived there could not be read yet when it was last tried
  Mismatch mismatch;
};

// Orders stores past the caches before what other threads learn next.
inline void store_fence() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Temporary memory of operations. They run one at a time, so all bound plans share it; it grows by doubling, and what a plan
// was given stays.
class Workspace {
public:
  Result<uint8_t *> get(uint64_t bytes, MemoryBudget &budget, const std::string &what); // 64-byte aligned [binder]

private:
  struct Free {
    void operator()(uint8_t *p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::vector<std::unique_ptr<uint8_t[], Free>> blocks_;
  uint64_t size_ = 0; // of the last one
};

class Bound {
public:
  Bound();
  ~Bound();
  std::shared_ptr<const Plan> plan;
  Selection selection;
  tutti_dtype dtype = 0;
  tutti_redop op = 0;
  std::string summary;
  uint32_t way = 0; // equal on ranks that run it alike: algorithm, protocol, slots
  std::string way_text() const;
  std::vector<Lane> lanes;
  std::vector<Geo> geo; // 2 per group
  uint32_t pieces_in = 1, pieces_out = 1, groups = 1, window = 0;
  bool multi = false, step_major = false, has_net = false;
  bool quick = false;                                        // one lane, in memory only
  bool has_groups = false;                                   // of this rank
  std::vector<std::unique_ptr<const GroupCall>> group_calls; // of its links to them
  bool ahead = false;                    // one post and what comes back: it may be posted while operations before it still run
  bool net_lends = false;                // some of its links over the network lend
  std::vector<const uint8_t *> received; // as many as the widest step receives
  std::vector<const void *> operands;    // one more
  std::vector<Payload> payloads;         // as many as `received`
  std::vector<Ring *> lending;           // send rings whose peers may read this rank's memory
  std::vector<Ring *> joining;           // receive rings that are the sender's, until they are connected
  uint8_t *scratch = nullptr;            // in the engine's workspace
  uint64_t scratch_stride = 0;
  tutti_scale_fn scale = nullptr;
  tutti_divide_fn divide = nullptr;
  tutti_reduce_fn reduce = nullptr;
  bool has_preop = false, has_postop = false;
  bool store_fence = false; // user output goes past the caches
  // Geometry of the last operation, to skip the arithmetic when the sizes repeat.
  uint64_t last_in = ~0ull, last_out = ~0ull, last_slices = 0;
};

// ---- chunk arithmetic

struct Piece {
  uint8_t *at = nullptr;
  int64_t bytes = 0; // <= 0: no message
};

Piece irregular_piece(const Lane &lane, const Frame &frame, uint32_t buf, int32_t chunk, uint64_t *chunk_bytes);
Piece scratch_piece(const Lane &lane, const Frame &frame, int32_t chunk, uint64_t *chunk_bytes);

inline Piece regular_piece(const Geo &g, int32_t chunk, uint64_t at, uint64_t slice_bytes) {
  const int64_t start = chunk * g.mul;
  int64_t n = g.limit - start < g.len ? g.limit - start : g.len;
  n -= static_cast<int64_t>(at);
  if (n > static_cast<int64_t>(slice_bytes)) n = static_cast<int64_t>(slice_bytes);
  // As a number: a rank that only relays asks for the size of what lies in a buffer that it may not have.
  return {reinterpret_cast<uint8_t *>(reinterpret_cast<uintptr_t>(g.base) + static_cast<uint64_t>(start) + at), n};
}

inline Piece piece_of(const Lane &lane, const Frame &frame, uint32_t buf, int32_t chunk) {
  if (buf != TUTTI_BUF_SCRATCH && !lane.geo[buf].irregular) [[likely]]
    return regular_piece(lane.geo[buf], chunk, uint64_t(lane.slice) * frame.slice_bytes, frame.slice_bytes);
  uint64_t whole;
  return buf == TUTTI_BUF_SCRATCH ? scratch_piece(lane, frame, chunk, &whole)
                                  : irregular_piece(lane, frame, buf, chunk, &whole);
}

inline int32_t walk(int32_t first, int32_t stride, uint32_t modulus, uint32_t iter) {
  if (stride == 0 || iter == 0) [[likely]]
    return first;
  int64_t c = first + int64_t(stride) * iter;
  if (modulus) {
    c %= modulus;
    if (c < 0) c += modulus;
  }
  return static_cast<int32_t>(c);
}

uint64_t whole_chunk(const Lane &lane, const Frame &frame, uint32_t buf, int32_t chunk); // bytes of all slices

uint32_t keyed_signature(const Lane &lane, const Frame &frame, uint32_t buf, int32_t chunk, uint32_t count);

// ---- handlers

struct HandlerSet { // of one (signal, memory rings) combination
  Handler send, recv, recv_reduce, recv_reduce_send, recv_reduce_forward, recv_send, recv_forward, reduce_n, reduce_n_send,
      send_n, send_store, recv_forward_n;
};
extern const HandlerSet kCounterHandlers, kLineHandlers;
int run_pull(Lane &lane, const BoundStep &step, Frame &frame); // of protocols of descriptors
int run_composed(Lane &lane, const BoundStep &step, Frame &frame);
int run_local(Lane &lane, const BoundStep &step, Frame &frame); // no links: copy within the rank

[[gnu::cold]] int fault_mismatch(Frame &frame, const BoundLink &link, const Ring &ring);

} // namespace tutti
