// tutti/core/ras/flight_file.h: a flight-recorder file: what one rank's communicator was doing, and its last operations.
// docs/ras.md describes the format, "tutti.flight/1".
#pragma once
#include "base/status.h"
#include "exec/state.h"
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::ras {

constexpr std::string_view kFlightFormat = "tutti.flight/1";
constexpr size_t kMostFlightBytes = 256u << 20; // of a file
constexpr int kMostFlightRanks = 1 << 20;

struct FlightIdentity {
  uint64_t comm = 0, job = 0; // job: the same for all communicators that were split from one
  std::string name;           // of the communicator; "" = none
  int rank = 0, nranks = 1;
  std::string host;
  int64_t pid = 0;
  std::string version; // of the library
};

struct FlightFile {
  FlightIdentity who;
  std::string reason; // "error", "signal", "call", "asked" (by tutti ras)
  int64_t written_ns = 0;
  EngineRecord record;
};

std::string encode_flight(const FlightFile &file); // ends with a newline
// An error names `origin` and what is wrong where. Whatever the text is, this ends in time proportional to it.
Result<FlightFile> parse_flight(std::string_view text, const std::string &origin);

} // namespace tutti::ras
