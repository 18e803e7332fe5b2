// tutti/plugins/net-fault/faults.h: which faults are wanted, and when they strike.
//
//   faults := fault ("," fault)*      fault := kind "=" when [":" how]
//   when   := a probability, 0 to 1, for each message | "after:" N, once, for the message after N others of its endpoint
//   how    := a duration for delay (1ms); "payload" (default) or "header" for corrupt
#pragma once
#include "tutti/plugin/cxx/host.hpp"
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::net_fault {

enum class Kind { delay, drop, corrupt, cut, reset, half_open };
const char *name_of(Kind kind);

struct Fault {
  Kind kind = Kind::delay;
  double probability = 0;
  int64_t after = -1; // messages; -1: by probability
  std::chrono::nanoseconds time{std::chrono::milliseconds(1)};
  bool header = false;
};

// Throws what is wrong, with the origin of the text and what is allowed.
std::vector<Fault> parse_faults(const std::string &text, const std::string &origin);

// Random numbers that are a function of what they are for, so that neither timing nor other endpoints change them.
struct Dice {
  uint64_t seed;
  uint64_t rank, endpoint;
  uint64_t roll(uint64_t message, uint64_t purpose) const;
  bool strikes(const Fault &fault, uint64_t message, uint64_t purpose) const; // message: from 0
};

} // namespace tutti::net_fault
