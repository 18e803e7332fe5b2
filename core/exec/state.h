// tutti/core/exec/state.h: what an engine does and has done, as any thread may read it while its owner goes on. For diagnoses,
// flight-recorder files and `tutti ras`. Times are nanoseconds of the wall clock since 1970; 0 = not yet.
#pragma once
#include "base/status.h"
#include "exec/call.h"
#include "transport/traffic.h"
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// One message of a send or receive.
struct Transfer {
  int peer = -1;
  bool sending = false;
  uint64_t bytes = 0;
};

struct OperationState {
  CallInfo call; // without its tag
  std::string tag;
  std::string text;        // describe() of both
  uint64_t seq = 0;        // in the engine's sequence; 0: had nothing to move, and no place there
  uint64_t bytes = 0;      // the larger of this rank's two buffers
  std::string algo, proto; // how it runs; "" = not known (any more)
  std::string way;         // the same and more, for messages
  uint32_t channels = 0, slot_bytes = 0, depth = 0;
  int64_t enqueued_ns = 0, started_ns = 0, completed_ns = 0;
  bool failed = false;             // alone: the communicator went on
  std::vector<Transfer> transfers; // of sends and receives: the first of them
  uint32_t transfers_in_all = 0;
};

struct EngineEvent {
  int64_t at_ns = 0;
  uint64_t enqueued = 0; // operations by then
  std::string kind;      // "set up", "revoked", "finalized", "failed", ...
  std::string text;
};

struct EngineState {
  enum class Doing { idle, held, running, waiting, failed };
  struct Wait {
    int peer = -1;
    bool receiving = false;
    uint32_t slice = 0; // of `slices`, from 0
    int32_t group = -1; // collnet group that the peer is reached by; -1 = none
    int64_t since_ns = 0;
  };
  struct Progress { // messages of the oldest operation over one link
    int peer = -1;
    bool sending = false;
    uint64_t messages = 0;
  };

  int64_t now_ns = 0; // when this was read
  uint64_t enqueued = 0, started = 0, completed = 0;
  std::array<uint64_t, TUTTI_COLL_COUNT> calls{}; // operations enqueued so far, of each kind
  int64_t blocked_ns = 0;                         // spent in waits for peers while somebody drove the operations
  // held: its operations wait for other communicators, or for somebody who drives them. waiting: for peers, as `waits` says.
  Doing doing = Doing::idle;
  std::string text;                     // the same in words: "all_reduce #12 (...), waits for rank 3 (recv, slice 2 of 9)"
  std::optional<OperationState> oldest; // that has not completed
  std::optional<OperationState> last;   // that has
  std::vector<Wait> waits;
  std::vector<Progress> progress;
  int64_t noted_ns = 0; // when waits and progress were seen so
  uint64_t slices = 0;
  std::vector<LinkTraffic> links;
  Status error; // what ended it
};
inline std::string_view doing_name(EngineState::Doing doing) {
  constexpr std::string_view kNames[] = {"idle", "held", "running", "waiting", "failed"};
  return kNames[static_cast<size_t>(doing)];
}

struct EngineRecord {
  EngineState state;
  uint32_t capacity = 0;                  // operations that are kept
  std::vector<OperationState> operations; // oldest first; one that was just being overwritten is left out
  std::vector<OperationState> skipped;    // calls that had nothing to move
  std::vector<EngineEvent> events;
};

} // namespace tutti
