// tutti/core/comm/select/measure.h: what the parts of an operation take on this machine. For calibrate.cc.
#pragma once
#include "base/time.h"
#include "comm/select/model.h"
#include <algorithm>
#include <vector>

namespace tutti {

// Each keeps the value it finds in *costs where it cannot measure, and returns at once when the deadline is over.
// Memory links: two threads at the two ends of a real ring (transport/ring.h), in private memory (local) and in shared memory
// that is mapped twice (shm). Between two processes the same lines move between the same caches; what differs is that
// processes have page tables of their own, which the second mapping stands for. cpus: where threads may run; with one
// nothing is learnt of links.
void measure_rings(CostConstants *costs, const CpuSet &cpus, const Deadline &deadline);
void measure_sockets(CostConstants *costs, const CpuSet &cpus, const Deadline &deadline); // TCP over loopback
void measure_kernels(CostConstants *costs, const Deadline &deadline); // copies, reductions, words in the data
// Copies of more than caches hold; false: there was no time for all of them.
bool measure_memory(CostConstants *costs, const CpuSet &cpus, const Deadline &deadline);
void measure_system(CostConstants *costs, const Deadline &deadline); // turns of a core, process_vm_readv

// The calling thread, a fresh one, leaves the core of the one that started it: a rank may be bound to a core of its own, the
// other ranks' cores are idle as they wait for this one.
void move_to(const CpuSet &cpus, int but_not);

// Middle of `runs` values of fn(), fewer when the deadline comes; -1 when there was none.
template <class Fn> double median_of(int runs, const Deadline &deadline, Fn fn) {
  std::vector<double> values;
  for (int i = 0; i < runs && !deadline.expired(); i++)
    if (const double v = fn(); v >= 0) values.push_back(v);
  if (values.empty()) return -1;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
inline double us_since(Clock::time_point t) {
  return std::chrono::duration<double, std::micro>(Clock::now() - t).count();
}

} // namespace tutti
