// One collective over float32, checked against arithmetic.
#pragma once
#include "world.h"

namespace tutti::test {

constexpr uint32_t kNonTemporal = 1u << 31, kRequestFlags = ~kNonTemporal;

struct Case {
  std::string algo;
  tutti_coll coll;
  int n;
  uint64_t count; // per block
  uint32_t slot, depth;
  bool in_place = false;
  uint32_t channels = 1, flags = 0; // TUTTI_REQ_*, kNonTemporal
  uint32_t offset = 0;              // of the buffers from their alignment, bytes
  int root = -1;
  uint32_t factor = 0;           // of a pre-multiplied sum
  bool average = false;          // divided by n at the end
  Iface<tutti_proto_v1> proto{}; // simple when empty
  bool registered = false;       // as by tuttiCommRegister
};

// Wrong elements of one rank after running the case `times` times; a million and more: an error, printed.
uint64_t run_case(const Case &c, int rank, Engine &engine, int times = 3);

// The same on n threads; true when all is right. mixed: they pass for two processes.
bool right_on_threads(const Case &c, bool mixed = false);

} // namespace tutti::test
