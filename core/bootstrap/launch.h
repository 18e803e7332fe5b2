// tutti/core/bootstrap/launch.h: how ranks started by somebody else find their unique id. Also what a launcher needs.
#pragma once
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"

namespace tutti {

// For a launcher (tutti run): a root in the calling process that serves any number of communicators, one after the other, until
// the process ends or release_id(). Hand the 128 bytes to the ranks through an inherited descriptor: create_id_fd().
Result<tuttiUniqueId> create_job_id(const Config &config);
void release_id(const tuttiUniqueId &id);
// A memfd without FD_CLOEXEC that holds the id; for TUTTI_COMM_ID=file:/proc/self/fd/N in the ranks.
Result<UniqueFd> create_id_fd(const tuttiUniqueId &id);

// What the environment says of this process's place in a job; nothing is asked of anybody.
struct Launcher {
  enum class Meeting { comm_id, store, pmix, pmi, host, place, none };
  std::string name;      // "tutti run", "srun", "torchrun", ...
  std::string variables; // "SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4": what it was read from
  int rank = -1, nranks = 0, local_rank = -1, local_size = -1; // -1, 0 = not told
  Meeting meeting = Meeting::none;
  std::string job;     // Meeting::store: its name there
  std::string where;   // how the ranks find the root, in words
  std::string missing; // Meeting::none: what to do
};
// None of the launchers of docs/launching.md started this process: nullopt. Variables that are incomplete or contradict each
// other are an error that names them.
Result<std::optional<Launcher>> recognise_launcher(const Config &config);

namespace boot {

// Starts a root in this process. stays: serves any number of generations. on_done runs on the service thread.
Result<UniqueId> start_root(const Config &config, UniqueId id, bool stays, std::function<void()> on_done = {});
Result<UniqueId> new_id(const Config &config);

struct HostPort {
  std::string host;
  uint16_t port = 0;
};
// "host:port", "1.2.3.4:80", "[::1]:80"; nothing else.
Result<HostPort> parse_host_port(std::string_view text);

// Exchange through a PMIx server (mpirun, srun --mpi=pmix): rank 0 publishes, everybody gets. pmix.cc
struct PmixInfo {
  int rank = -1, nranks = 0, local_rank = -1, local_size = -1;
};
bool pmix_available();
Result<PmixInfo> pmix_start(Deadline deadline);
Status pmix_exchange(std::string_view key, const tuttiUniqueId *mine, tuttiUniqueId *out, Deadline deadline);

} // namespace boot
} // namespace tutti
