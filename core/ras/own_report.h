// tutti/core/ras/own_report.h: what this process says when it is asked.
#pragma once
#include "bootstrap/crypto.h"
#include "ras/neighbours.h"
#include "ras/report.h"
#include <span>

namespace tutti::ras {

// Of this process: its communicators, and what it uses. [any thread; waits for no owner of a communicator]
ProcessReport own_report(const boot::Contact &self, int64_t started_ns);

// A process of this one's communicators.
struct Fellow {
  boot::Contact contact;
  boot::Identity under; // how it may be asked
  std::vector<Place> places;
};
std::map<uint64_t, Fellow> fellows(); // by process; this one left out [any thread]

// Those of this host, from this process's own place on in a ring, where something is wrong: up to the first that is well. So
// each such process is told of by the one before it that is well.
std::vector<ProcessReport::Neighbour> ailing(const boot::Contact &self, const std::map<uint64_t, Fellow> &fellows,
                                             Neighbours *neighbours);

} // namespace tutti::ras
