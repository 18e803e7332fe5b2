// tutti/core/comm/communicator.h: one rank's communicator, behind tuttiComm_t.
#pragma once
#include "bootstrap/bootstrap.h"
#include "comm/machine.h"
#include "comm/select/select.h"
#include "exec/engine.h"
#include "ras/flight.h"
#include "topology/topology.h"
#include "tutti/tutti.h"
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace tutti {

inline Error no_error() {
  Error e;
  e.code = Code::ok;
  return e;
}

// Bootstrap and engine of a communicator live and die together: the engine sends through the bootstrap until its end.
// Streams, events and work handles keep it alive while they name a point in it.
struct Core {
  std::unique_ptr<Bootstrap> bootstrap;
  std::shared_ptr<Engine> engine;
  uint64_t job = 0; // the same for all communicators that were split from one
  ~Core() { engine.reset(); }
};

// A moment in a communicator's sequence of operations.
struct Point {
  std::shared_ptr<Core> core;
  uint64_t seq = 0;
  bool done() const { return core->engine->completed() >= seq; }
  bool settled() const { return done() && core->engine->clean(seq); } // and nobody has to be told of an error
  Status wait() const { return settled() ? Status() : core->engine->wait(seq); }
};

// Bytes of each block, for v-collectives: alltoallv has both sides, the others the side that has a block for each rank.
struct BlockTables {
  std::vector<uint64_t> in_bytes, in_offsets, out_bytes, out_offsets;
  std::vector<uint64_t> in_types, out_types; // of send/recv
  std::vector<int32_t> in_peers, out_peers;  // likewise
  std::vector<uint32_t> order;               // blocks by offset, to see whether they overlap
};

// A checked collective: what is left to do needs no look at the user's arguments.
struct Op {
  uint32_t row = 0;
  const void *in = nullptr; // nullptr where this rank has none
  void *out = nullptr;
  uint64_t bytes = 0; // larger of a rank's two buffers, the same on all ranks: the size class
  uint64_t block = 0; // bytes of one block; of blocks that differ the largest
  tutti_dtype dtype = 0;
  tutti_redop redop = 0;
  bool in_place = false, has_factor = false;
  uint64_t divisor = 0;
  std::array<std::byte, 8> factor{};
  const BlockTables *tables = nullptr;
  CallInfo info;
};

struct P2pOp {
  bool sending = false;
  void *buffer = nullptr;
  uint64_t bytes = 0, count = 0;
  tutti_dtype dtype = 0;
  int peer = 0;
};

// The user's arguments of a collective.
struct Call {
  uint32_t row;
  const void *in;
  void *out;
  uint64_t count = 0;
  int type = 0, op = 0, root = -1;
};

struct InitOptions {
  std::shared_ptr<const Config> config;
  std::string name; // "" = none
  bool blocking = true;
};
// Checks *config (may be NULL) and lays it over `base`.
Result<InitOptions> read_options(const tuttiConfig_t *config, const InitOptions &base);
Result<InitOptions> process_options(); // what no tuttiConfig_t changed

struct ChannelPlan; // channels.h

class Communicator : public std::enable_shared_from_this<Communicator> {
public:
  Communicator(int rank, int nranks, InitOptions options);
  ~Communicator();

  // ---- life (init.cc, life.cc). Each blocks; background() runs one on a thread of its own.
  Status init(std::span<const tuttiUniqueId> ids);
  // `parent` is the core of the communicator that is split; without a color this one stays empty. *all_came: as of
  // Bootstrap::split().
  Status init_split(const std::shared_ptr<Core> &parent, int color, int key, bool *all_came);
  // The ranks of `parent` that go on: see Bootstrap::shrink(), whose request this is.
  Status init_shrunk(const std::shared_ptr<Core> &parent, Bootstrap::Shrink request);
  // With new ranks, which meet the old ones at `id`; parent: of an old rank, whose number is kept.
  Status init_grown(const std::shared_ptr<Core> &parent, const std::optional<tuttiUniqueId> &id, bool *all_came);
  Status finalize();
  void revoke(); // [any thread] ends operations on all ranks, and waits for no peer
  void close();  // frees bootstrap and engine
  void abort();  // [any thread] never waits for a peer
  Status background(std::function<Status(Communicator &)> work);
  bool join_background(); // an aborted one's thread is left alone: true
  void quiesce();         // once it has failed: on return nothing touches the buffers of operations any more

  // ---- state [any thread]
  enum class State : int { ready, working, finalized, failed, closed };
  State state() const { return state_.load(std::memory_order_acquire); }
  Status health();        // ok, in_progress, or what ended the communicator; for the owner's calls
  Status health_at_all(); // the same for calls that any thread may make at any time
  Status usable();        // ok when an operation may be enqueued
  // An error of a call that begins something: after a revoke such a call is a mistake of the caller.
  static Status refused_after(Status status);
  // Keeps the error for GetLastError; one that ends the communicator is spread to all ranks. Returns its code.
  Error tell(const Status &status); // to who asks for the last error; the rank is filled in
  Code note(const Status &status);
  Error last_error() const;
  void fail(const Error &error);

  // ---- operations (issue.cc) [one thread at a time]
  Status check(const Call &call, Op *op);
  Status check_v(const void *in, const size_t *in_counts, const size_t *in_displs, void *out, const size_t *out_counts,
                 const size_t *out_displs, int type, BlockTables &tables, Op *op);
  // all_gather_v and reduce_scatter_v, call.row being that of the form with equal blocks: all ranks give the same counts.
  // displs NULL: one block behind the other.
  Status check_blocks(const Call &call, const size_t *counts, const size_t *displs, BlockTables &tables, Op *op);
  Status check_barrier(Op *op);
  Status check_p2p(bool sending, const void *buffer, uint64_t count, int type, int peer, P2pOp *op) const;
  Status submit(const Op &op, tuttiStream_t stream);
  // The same, run as a call configuration asks.
  Status submit_as_asked(const Op &op, const CallConfig &asked, tuttiStream_t stream);
  bool has_room() const { // an operation can be enqueued without waiting, or is refused
    return state() != State::ready || core_->engine->failed() || core_->engine->has_room();
  }
  // streams sorted; asked: nullptr = nothing
  Status submit_p2p(std::span<const P2pOp> ops, std::span<const tuttiStream_t> streams, const CallConfig *asked);
  Status synchronize();
  Point last_point() const { return {core_, last_seq_}; }
  uint64_t last_seq() const { return last_seq_; }
  Point tail_point() const { return {core_, core_->engine->enqueued()}; }
  BlockTables &scratch_tables() { return tables_; }

  Status create_premul(const void *scalar, int type, int *op);
  Status destroy_premul(int op);
  Result<void *> register_buffer(const void *buffer, uint64_t bytes);
  Status deregister_buffer(const void *handle);

  // ---- queries
  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  const InitOptions &options() const { return options_; }
  const std::shared_ptr<Core> &core() const { return core_; }
  std::shared_ptr<Core> shared_core() const;     // [any thread] nullptr before the set-up and after the end
  std::shared_ptr<Engine> shared_engine() const; // [any thread] the same
  uint64_t uid() const { return uid_; }          // of this process's communicators, never used again
  // asked: what holds for the calling thread, nullptr = nothing.
  Result<std::string> explain(std::string_view coll, uint64_t count, int type, const CallConfig *asked);
  Engine::Usage usage() const;
  Result<std::string> traffic() const;         // what this rank has sent and received, as JSON (traffic.cc)
  void write_map();                            // the same to the file of comm.map_file, once [any thread]
  std::shared_ptr<ras::Flight> flight() const; // its flight recorder, from the set-up of its engine to its end [any thread]

  // A split of this communicator goes on: its control plane is that split's.
  std::atomic<bool> splitting{false};
  Status not_splitting() const;
  Status known() const; // ok, or in_progress while a split has not yet said which rank this is

private:
  struct Premul {
    bool used = false;
    int type = 0;
    std::array<std::byte, 8> scalar{};
  };
  // What runs an operation. instead: OpArgs::instead; that depends on the size class, where `bound` serves many.
  struct Resolved {
    const Bound *bound = nullptr, *instead = nullptr;
  };
  struct Hot {
    uint64_t key = 0;
    Resolved way;
  };
  struct P2pBound {
    const Bound *bound = nullptr;
    uint64_t last_seq = 0; // the last operation that uses it
  };
  struct BoundKey {
    uint32_t row, choice, dtype, redop;
    int32_t root;
    bool many_slices, in_place;
    auto operator<=>(const BoundKey &) const = default;
  };

  void adopt(std::unique_ptr<Bootstrap> bootstrap);
  Status health_of(State state, const Engine *engine) const;
  Status drain();  // until all that was enqueued is done
  Status set_up(); // after the bootstrap: agreement, net, engine, selection
  Status exchange_selection();
  Status exchange_readable();
  Status set_up_collnet();
  Status share_table(const Selector::Input &in, const Topology &topology, std::unique_ptr<Selector> *selector,
                     SelectionTable *out);
  std::shared_ptr<const CostModel> cost_model(const Topology &topology, const CostConstants &constants,
                                              const CostModel::Device &net) const;
  void farewell();
  Status start_engine(Iface<tutti_net_v1> net, std::span<const std::byte> told);
  Status take_channels(std::span<const std::byte> told);
  void log_ready() const;
  void log_channels() const;
  void log_selection() const;

  Status check_type(std::string_view what, int type) const;
  Status check_rank(std::string_view what, std::string_view name, int rank) const;
  Status check_buffers(const Call &call, Op *op) const;
  Status check_reduction(const Call &call, Op *op) const;
  bool moves_nothing(const Op &op) const;
  Status pass_over(const Op &op); // such an operation
  static uint64_t key_of(const Op &op, uint32_t bucket);
  Status enqueue_op(const Resolved &way, const Op &op, tuttiStream_t stream);
  Result<Resolved> find_bound(const Op &op, uint32_t bucket, uint32_t choice);
  Result<const Bound *> bind_way(const Op &op, uint32_t bucket, BoundKey key, const Choice &way, bool plain);
  Result<const Bound *> plain_bound(const Op &op, uint32_t bucket);
  // Its place among the choices: those of the table, then those that calls asked for.
  Result<uint32_t> choice_as_asked(uint32_t row, uint32_t bucket, const CallConfig &asked);
  const Choice &choice(uint32_t place) const {
    const size_t n = selection_.choices.size();
    return place < n ? selection_.choices[place] : asked_choices_[place - n];
  }
  Status explain_choice(uint32_t row, uint32_t bucket, const CallConfig *asked, nlohmann::ordered_json &out);
  Result<Resolved> bound_as_asked(const Op &op, uint32_t bucket, uint64_t key, const CallConfig &asked);
  Result<std::shared_ptr<const Plan>> make_plan(const BoundKey &key, const Choice &choice, bool plain = false) const;
  bool many_slices(const Plan &plan, const Op &op, uint32_t bucket, const Choice &choice) const;
  void shape_buffers(const Op &op, OpArgs *args) const;
  Status enqueue(const Bound *bound, const OpArgs &args, std::span<const tuttiStream_t> streams);
  Status enqueue_after(const Bound *bound, const OpArgs &args, std::span<const tuttiStream_t> streams);
  Result<P2pBound *> p2p_bound(std::span<const P2pOp> ops);
  void forget_oldest_p2p();
  Status check_self(std::span<const P2pOp> ops) const;
  Selection p2p_selection() const;

  const uint64_t uid_;
  const bool from_split_;
  int rank_, nranks_; // fixed once init_split() knows
  InitOptions options_;
  std::shared_ptr<Core> core_;
  std::shared_ptr<ras::Flight> flight_;
  Topology topology_, plain_topology_; // plain: without collnet groups
  CollnetFacts collnet_;
  CpuSet host_cpus_ = CpuSet::from_words({}); // of all ranks on this host
  std::shared_ptr<const ChannelPlan> channels_;
  LinkClass slowest_ = LinkClass::local;
  std::string no_pull_; // what some rank has against reading its peers' memory; the same on all ranks
  Iface<tutti_net_v1> net_;
  NetSurvey survey_; // of it, while this communicator is set up
  Iface<tutti_tuner_v1> tuner_;
  SelectionTable selection_;
  SelectionTable plain_selection_;           // without collnet; only where that is in use
  std::unique_ptr<Selector> plain_selector_; // likewise
  std::unique_ptr<Selector> selector_;       // for explanations, and for what calls ask

  std::array<std::array<Hot, kBuckets>, kRows> hot_{};
  std::unordered_map<uint64_t, Resolved> found_;        // by Hot::key, for operations that take turns
  std::map<BoundKey, const Bound *> bounds_;            // different keys may share one
  std::map<BoundKey, const Bound *> plain_bounds_;      // by places in plain_selection_
  std::map<std::vector<int32_t>, P2pBound> p2p_bounds_; // by pattern; at most kMostP2pBounds
  std::vector<int32_t> p2p_key_;
  BlockTables tables_, p2p_tables_;
  std::vector<uint32_t> p2p_order_;
  uint64_t number_ = 0, p2p_number_ = 0; // operations so far; collectives alone keep ranks in step
  uint64_t last_seq_ = 0;
  uint64_t barrier_word_ = 0; // what barriers reduce, in place
  std::vector<Premul> premuls_;
  struct Registration {
    const void *buffer;
    uint64_t bytes;
    uint64_t number;
  };
  std::vector<std::unique_ptr<Registration>> registrations_; // their addresses are the handles
  uint64_t registered_ = 0;                                  // so far
  const uint32_t premul_salt_;                               // tells this communicator's handles from others'
  std::vector<Engine::Dependency> after_;
  struct Hold {
    Point point;
    uint64_t until; // the operation here that looks at it
  };
  std::vector<Hold> holds_; // engines that operations which have not started still look at

  std::atomic<State> state_{State::working};
  std::atomic<bool> aborted_{false}, map_written_{false};
  mutable std::mutex mutex_; // guards last_error_, end_, and core_ and flight_ against threads other than the owner
  Error last_error_ = no_error();
  Error end_ = no_error(); // what ended the communicator; valid when failed
  JoinStop join_stop_;
  std::thread background_;

  // What calls asked for. By id of the call configuration.
  struct AskedBound {
    uint64_t key = 0;
    uint32_t id = 0;
    Resolved way;
  };
  struct AskedClass {
    uint32_t id, row, bucket;
    auto operator<=>(const AskedClass &) const = default;
  };
  std::vector<Choice> asked_choices_;
  std::map<AskedClass, uint32_t> asked_places_; // of choices
  std::map<std::pair<uint64_t, uint32_t>, Resolved> asked_bounds_;
  AskedBound asked_latest_;
};

} // namespace tutti

// Its memory stays a handle for ever (handle.cc keeps freed ones), so that a call may announce itself in one that just goes.
struct tuttiComm {
  static constexpr uint64_t kMagic = 0x7475'7474'6943'6f6dull, kEnding = 0xe4d1'49ull, kDead = 0xdeadc0deull;
  // kDead from the moment that it is destroyed, kEnding while it is aborted: who is refused for that waits, so that an error
  // means that buffers are free.
  std::atomic<uint64_t> head{kMagic};
  std::shared_ptr<tutti::Communicator> c;
  std::atomic<uint32_t> inside{0};   // calls of the owner in progress; written by the owner alone
  std::atomic<uint32_t> visitors{0}; // other threads that are taking a reference to c
  uint64_t tail = kMagic;            // with head: a stray write shows
};
