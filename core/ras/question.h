// tutti/core/ras/question.h: what processes and tools ask each other over control connections. docs/ras.md describes it.
//
// One question a connection. The answer is a sequence of frames, each with what it is in its tag, and ends with `end`.
#pragma once
#include "bootstrap/wire.h"
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::ras {

constexpr uint32_t kMostQuestionBytes = 256u << 10;
constexpr size_t kMostKnown = 16384; // processes of a job that one question and its answer can be about
constexpr uint32_t kMostBudgetMs = 120'000;

enum class Ask : uint8_t {
  status = 1,  // what it does
  dump = 2,    // likewise, and to write its flight-recorder files
  collect = 3, // likewise, and those files
};

struct Question {
  Ask ask = Ask::status;
  bool relay = false;          // and ask the other processes of the job
  bool alone = false;          // and tell of no other ones
  uint32_t budget_ms = 2000;   // to answer in
  std::vector<uint64_t> known; // processes that need not be asked or told of: see Contact::process[0]
};
Bytes encode(const Question &q);
std::optional<Question> decode_question(std::span<const std::byte> data);

enum class Answer : uint64_t {
  end = 0,    // nothing
  report = 1, // a ProcessReport as JSON
  file = 2,   // a flight-recorder file
  silent = 3, // a Silent as JSON
};

} // namespace tutti::ras
