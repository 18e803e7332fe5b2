// tutti/core/exec/engine.h: runs operations of one communicator, one after the other, in the order in which they were enqueued.
// Whoever waits drives it; the process's progress thread drives it when nobody waits. No allocation, lock or system call per
// step on shared memory.
#pragma once
#include "base/status.h"
#include "base/time.h"
#include "bootstrap/bootstrap.h"
#include "exec/call.h"
#include "exec/state.h"
#include "plan/chunks.h"
#include "plan/plan.h"
#include "plugin/registry.h"
#include "transport/traffic.h"
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

// How a plan is run: what the tuner chose for a size class. The same on all ranks.
struct Selection {
  Iface<tutti_proto_v1> proto;
  uint32_t slot_bytes = 0; // payload of a slot: the slice size
  uint32_t depth = 0;      // slots per link; power of two, >= 2
  uint32_t flags = 0;      // TUTTI_CAND_*
  bool groups = false;     // some rank's plan uses collnet groups
};

// A plan resolved to links, kernels and chunk arithmetic for (selection, type, op). Owned by the engine; opaque.
class Bound;

// One operation. Buffers must stay until it completed; the tables of v-collectives are copied.
struct OpArgs {
  const void *in = nullptr;
  void *out = nullptr;
  BufferShape in_shape, out_shape;
  // One per block, or nullptr: what both ends of a message must agree on beside its size (send/recv: the type).
  const uint64_t *in_marks = nullptr, *out_marks = nullptr;
  // One per block, or nullptr: whom sends and receives go to, for the flight recorder. Read only by enqueue().
  const int32_t *in_peers = nullptr, *out_peers = nullptr;
  bool in_place = false;              // IN and OUT overlap where the collective allows it
  const void *preop_factor = nullptr; // one element of dtype, copied; nullptr = no pre-operation
  uint64_t postop_divisor = 0;        // 0 = no post-operation
  // Of an operation that uses collnet groups: what runs, on all ranks alike, when they have been lost. nullptr: losing them is
  // the end.
  const Bound *instead = nullptr;
  CallInfo call;
};

class NetRoutes;
class CollnetPort;

class Engine {
public:
  static constexpr uint32_t kQueue = 128; // operations enqueued and not complete

  // Local part; what this rank tells its peers is local_info(). net: the plugin to use between hosts (may be empty when all
  // ranks share a host and shared memory is on).
  static Result<std::shared_ptr<Engine>> create(Bootstrap &bootstrap, const Registry &registry,
                                                std::shared_ptr<const Config> config, Iface<tutti_net_v1> net);
  virtual ~Engine() = default;
  virtual Bytes local_info() const = 0; // for one allgather of the communicator
  // By which devices of the net the links of each channel go; before set_peers(), else all go by one.
  virtual void set_routes(NetRoutes routes) = 0;
  // A device of a collnet plugin, for the set-up of its groups; and its end, where ranks do without. [setup]
  virtual Status open_collnet(Iface<tutti_collnet_v1> collnet, uint32_t device) = 0;
  virtual void close_collnet() = 0;
  virtual CollnetPort *collnet() = 0;                         // nullptr: none is open
  virtual std::string collnet_lost() const = 0;               // why; "" = it has not been [any thread]
  virtual Status set_peers(std::span<const Bytes> infos) = 0; // decides each peer's link class; both ends decide alike
  virtual LinkClass link_class(int peer) const = 0;
  // Whose private memory this rank cannot read though they share a host, and why; "" = nobody's. For protocols of descriptors.
  virtual const std::string &unreadable() const = 0;
  virtual bool shares_memory() const = 0; // every rank with every other one: plans may use links with several readers
  virtual std::string describe_link(int peer) const = 0; // "shm", "net socket eth0 10.0.0.1 -> 10.0.0.2"

  // Resolves a plan; links are created on first use, without waiting for peers. Not concurrent with itself. Errors say which
  // link, protocol or cap. Bound plans live until release() or as long as the engine.
  virtual Result<const Bound *> bind(std::shared_ptr<const Plan> plan, const Selection &selection, tutti_dtype dtype,
                                     tutti_redop op) = 0;

  // Frees a bound plan whose operations have all completed. [the thread that binds]
  virtual void release(const Bound *bound) = 0;

  // A collective without data, which needs no operation: remembered for ranks that call it with data. [any thread]
  virtual void skip(const CallInfo &call) = 0;

  // A point in this engine's sequence. Complete when completed() >= seq.
  struct Dependency {
    Engine *engine = nullptr;
    uint64_t seq = 0;
  };
  // Appends an operation; it starts when all before it and `after` (other engines' points; copied) have completed. Returns its
  // sequence number. A full queue makes the caller drive progress. [one thread at a time]
  virtual Result<uint64_t> enqueue(const Bound *bound, const OpArgs &args, std::span<const Dependency> after = {}) = 0;
  Status run(const Bound *bound, const OpArgs &args) { // enqueue() and wait()
    TUTTI_ASSIGN(seq, enqueue(bound, args));
    return wait(seq);
  }

  bool has_room() const { return enqueued_ - completed() < kQueue; } // enqueue() will not wait [one thread at a time]
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  uint64_t enqueued() const { return enqueued_; }
  // Operations that failed alone, the engine going on: the first error of those up to seq that nobody has been told of, and
  // then it has been. [any thread]
  virtual Status take_error(uint64_t seq) = 0;
  bool clean(uint64_t seq) const { return seq < first_error_.load(std::memory_order_acquire); } // there is no such error
  // Drives this engine, and every now and then all others of the process, until seq has completed or the engine failed. An
  // error comes after quiesce(). What has failed alone is left for those who wait for it.
  virtual Status reach(uint64_t seq) = 0;
  Status wait(uint64_t seq) { // reach() and take_error()
    TUTTI_TRY(reach(seq));
    return clean(seq) ? Status() : take_error(seq);
  }
  // One bounded round of progress; true when something moved. [any thread; returns at once when another drives]
  virtual bool progress() = 0;

  // Ends everything with this error, now; every waiting thread returns. The first error stays. [any thread]
  virtual void fail(const Error &error) = 0;
  virtual Status error() const = 0; // ok while alive
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // After fail(): ends the run for good and closes the network's endpoints, so that on return no thread of this process and no
  // device touches the buffers of operations. False when a thread did not let go within a few seconds. [any thread, not from
  // a handler of the bootstrap]
  virtual bool quiesce() = 0;
  // Lets peers map the memory of tuttiMemAlloc that holds these bytes; nothing to do for other memory. [any thread]
  virtual Status offer(const void *p, uint64_t bytes) = 0;
  // What the user registered, under a number of his own, and its end: when forget() succeeds no network has it registered, and
  // nothing is posted there. An operation that still uses it is ended for that, with an error. [any thread]
  virtual void keep(uint64_t number, const void *p, uint64_t bytes) = 0;
  virtual Status forget(uint64_t number) = 0;
  // What this rank does now, for other ranks' diagnoses and `tutti ras`: "all_reduce #12 (...), waits for rank 3 (recv, slice 2
  // of 9)".
  virtual std::string activity() const = 0; // [any thread]
  // The same as data, and all that the flight recorder has. Neither waits for the owner. [any thread]
  virtual EngineState state() const = 0;
  virtual EngineRecord record() const = 0;
  // Something that befell the communicator, for the flight recorder: "revoked", "by rank 3". [any thread]
  virtual void note_event(std::string_view kind, std::string_view text) = 0;

  struct Usage {
    uint64_t bytes = 0, fds = 0;
  };
  virtual Usage usage() const = 0;
  // What has crossed each link so far, as this rank counts it: all of the operations that have completed. [any thread]
  virtual std::vector<LinkTraffic> traffic() const = 0;
  virtual const std::string &bound_summary(const Bound *bound) const = 0; // protocol per link class, for --explain

protected:
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> first_error_{~0ull};
  uint64_t enqueued_ = 0;
};

} // namespace tutti
