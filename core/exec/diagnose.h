// tutti/core/exec/diagnose.h: messages between engines that want to know what the other one does.
#pragma once
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include <array>

namespace tutti {

enum class Diagnosis : uint32_t {
  ask = 1,      // what are you doing? -> answer
  mismatch = 2, // your message on `conn` is of another call than my text -> answer, and both fail
  answer = 3,   // text
  inquire = 4,  // do you know call `number` as I do (signature `got`, run in way `way`)? -> differs, finished or nothing
  differs = 5,  // no: my text, NUL, yours
  finished = 6, // yes, and I have completed it
  // When a collnet group is lost, see collnet_loss.cc. Between all ranks and rank 0.
  lost = 7,     // to rank 0: text says why -> halt, to all
  halt = 8,     // start no operation with groups; text as above -> halted
  halted = 9,   // to rank 0: `number` is the last one that I have started
  resolved = 10 // those up to `number` have failed where they had not completed; later ones run without groups; text
};

enum class Doing : uint32_t { unknown = 0, busy = 1, idle = 2 };
constexpr size_t kMostNamed = 8; // ranks asked and named in one error

// Followed by text. The answer to `ask` says what the rank does, and whom it waits for; got and number are of the call that it
// completed last.
struct Diagnose {
  Diagnosis type{};
  uint32_t conn = 0, got = 0, way = 0;
  uint32_t has_signature = 0;
  Doing doing = Doing::unknown;
  uint64_t nonce = 0, number = 0;
  uint32_t wait_count = 0, reserved = 0;
  std::array<int32_t, kMostNamed> waits{};
};
inline const uint64_t kDiagnoseTag = make_tag(MsgKind::diagnose, 0);

// The same line on both sides, the lower rank first.
Error disagreement(int rank_a, std::string call_a, int rank_b, std::string call_b);
Status send_diagnose(Bootstrap &bootstrap, int to, const Diagnose &head, std::string_view text);

} // namespace tutti
