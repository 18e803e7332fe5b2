// tutti/core/tools/doctor/probe.h: the end of a test that asks.
#pragma once
#include "tools/doctor/wire.h"

namespace tutti::doctor {

enum class Reach { ok, refused, timed_out, no_route, stranger, failed };
std::string_view reach_name(Reach reach);

// One pair of interfaces, one direction.
struct Attempt {
  int from = 0, to = 0; // places of this host and of the other
  Reach reach = Reach::failed;
  int err = 0;
  double ms = 0;             // to the end of the handshake
  int mss = 0, path_mtu = 0; // as TCP has them; 0 = not known
  UniqueFd fd;
};

// From each of the own places to each of the other's of the same family, all at once. Ends `patience` after it began.
std::vector<Attempt> try_all(const std::vector<Place> &own, const std::vector<Place> &other, const boot::Secret &key, int rank,
                             int other_rank, Nanos patience);

// Of an open attempt. Negative: could not be measured, `problem` says why.
struct Measured {
  double latency_us = -1;           // half of the median round trip of 8 bytes
  double out_gbs = -1, in_gbs = -1; // GB/s, to the other and from it
  double clock_ms = 0;              // its wall clock minus ours
  double clock_error_ms = -1;       // at most so much off
  int datagram_mtu = -1;            // largest IP packet that was answered; 0: no datagram was, of any size; -1: not found out
  int datagram_lost = 0;            // smallest that was tried and was not
  std::string problem;
};
Measured measure(Attempt &attempt, const Place &own, const Place &other, const boot::Secret &key, Nanos each,
                 Deadline deadline);

} // namespace tutti::doctor
