// Two ranks as threads, for a debugger to look at: after one all_reduce, rank 0 waits in a second one that rank 1 never calls.
// Says "stuck" and stays until its standard input ends.
#include "tutti/tutti.h"
#include <chrono>
#include <cstdio>
#include <thread>

tuttiComm_t comms[2];

namespace {

float in[2][1024], out[2][1024];

bool sum(int rank) {
  return tuttiAllReduce(in[rank], out[rank], 1024, tuttiFloat32, tuttiSum, comms[rank], nullptr) == tuttiSuccess &&
         tuttiCommSynchronize(comms[rank]) == tuttiSuccess;
}

void init(int rank, const tuttiUniqueId &id) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.commName = "stuck";
  if (tuttiCommInitRankConfig(&comms[rank], 2, id, rank, &config) != tuttiSuccess) std::fprintf(stderr, "no communicator\n");
}

} // namespace

int main() {
  tuttiUniqueId id;
  if (tuttiGetUniqueId(&id) != tuttiSuccess) return 1;
  std::thread other([&] {
    init(1, id);
    sum(1);
  });
  init(0, id);
  if (!sum(0)) return 1;
  other.join();
  std::thread waiting([] { sum(0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200)); // it notes whom it waits for every millisecond
  std::puts("stuck");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  for (tuttiComm_t c : comms) tuttiCommAbort(c);
  waiting.join();
  return 0;
}
