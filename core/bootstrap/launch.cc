// What launchers leave in the environment, as one table, and how their ranks come to one unique id. See docs/launching.md.
#include "bootstrap/launch.h"
#include "bootstrap/hostlist.h"
#include "bootstrap/pmi.h"
#include "bootstrap/rendezvous.h"
#include "config/secret.h"
#include "log/log.h"
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fmt/ranges.h>
#include <sys/mman.h>

namespace tutti {
namespace boot {
namespace {

using Meeting = Launcher::Meeting;

const char *value_of(const char *name) {
  const char *v = ::secure_getenv(name);
  return v && *v ? v : nullptr;
}
bool set(const char *name) {
  return value_of(name) != nullptr;
}

// A launcher's names for the same thing; the first that is set counts.
struct Names {
  std::array<const char *, 3> names{};
  const char *first_set() const {
    for (const char *n : names)
      if (n && set(n)) return n;
    return nullptr;
  }
  std::string text() const {
    std::string out;
    for (const char *n : names)
      if (n) out += fmt::format("{}{}", out.empty() ? "" : " or ", n);
    return out;
  }
};

struct Known {
  const char *name;
  bool (*here)();
  Names rank, nranks, local_rank, local_size;
  void (*meet)(const Config &config, Launcher *out); // fills meeting, where, missing
};

// ---- reading

Status read_number(const Names &names, int *to, std::string *variables) {
  const char *name = names.first_set();
  if (!name) return {};
  const char *text = ::secure_getenv(name), *end = text + std::strlen(text);
  int v = 0;
  const auto [p, ec] = std::from_chars(text, end, v);
  if (ec != std::errc() || p != end || v < 0) return bad(fmt::format("{}=\"{}\" is not a number of at least 0", name, text));
  *to = v;
  *variables += fmt::format("{}{}={}", variables->empty() ? "" : ", ", name, v);
  return {};
}

// Slurm tells the tasks of each node in one line.
Status read_slurm_local_size(Launcher *out) {
  if (out->local_size >= 0 || !set("SLURM_STEP_ID") || !set("SLURM_NODEID")) return {};
  const char *name = Names{{"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}}.first_set();
  if (!name) return {};
  int node = -1;
  TUTTI_TRY(read_number({{"SLURM_NODEID"}}, &node, &out->variables));
  auto tasks = tasks_on_node(::secure_getenv(name), node);
  if (!tasks.ok()) return bad(fmt::format("{}: {}", name, tasks.status().error().message));
  out->local_size = *tasks;
  out->variables += fmt::format(", {}={}", name, ::secure_getenv(name));
  return {};
}

Status check(const Known &k, const Launcher &l) {
  if (l.rank < 0 && l.nranks == 0 && k.rank.names[0] == nullptr) return {}; // its server tells
  if (l.rank < 0 || !k.nranks.first_set())
    return bad(fmt::format("started by {}{}, but {} is not set", l.name,
                           l.variables.empty() ? "" : fmt::format(" ({})", l.variables),
                           l.rank < 0 ? k.rank.text() : k.nranks.text()))
        .hint("a wrapper that cleans the environment must keep the launcher's variables");
  if (l.nranks < 1 || l.rank >= l.nranks)
    return bad(fmt::format("{} contradicts itself: {}: ranks are 0 to {} - 1", l.name, l.variables, k.nranks.first_set()));
  if (l.local_size > l.nranks || (l.local_size == 0) || (l.local_size > 0 && l.local_rank >= l.local_size))
    return bad(fmt::format("{} contradicts itself: {}: of {} ranks, {} on this host, this is number {} there", l.name,
                           l.variables, l.nranks, l.local_size, l.local_rank));
  return {};
}

// ---- where ranks meet

void by_comm_id(const Config &config, Launcher *out) {
  const std::string &text = config.text("core.comm_id");
  if (text.starts_with("file:") && inherited(std::string_view(text).substr(5))) {
    out->meeting = Meeting::comm_id;
    out->where = "the root is in tutti run, whose unique id came through a descriptor";
    return;
  }
  out->name = "TUTTI_RANK";
  out->missing =
      "TUTTI_COMM_ID says where the ranks meet: host:port of rank 0, or file:PATH; or TUTTI_RENDEZVOUS names a store";
}

void by_pmix(const Config &, Launcher *out) {
  if (pmix_available()) {
    out->meeting = Meeting::pmix;
    out->where = "the root is in rank 0, whose unique id travels through the PMIx server";
  } else {
    out->missing = "there is no PMIx server, or libpmix.so.2 was not found (package libpmix2): install it, or set "
                   "TUTTI_COMM_ID=host:port with a free port of rank 0's host";
  }
}

void by_pmi(const Config &, Launcher *out) {
  out->meeting = Meeting::pmi;
  out->where = "the root is in rank 0, whose unique id travels through the process manager (PMI-1)";
}

void by_none(const Config &, Launcher *out) {
  out->missing = "set TUTTI_COMM_ID=host:port with a free port of rank 0's host, or file:PATH on a shared file system";
}

// What all tasks of the step know, and nobody in another one.
std::string slurm_step() {
  const auto part = [](const char *name) { return value_of(name) ? value_of(name) : ""; };
  return fmt::format("slurm/{}/{}/{}", part("SLURM_CLUSTER_NAME"), part("SLURM_JOB_ID"),
                     value_of("SLURM_STEP_ID") ? part("SLURM_STEP_ID") : part("SLURM_STEPID"));
}

constexpr Names kNodelist = {{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}};

// A launcher that carries nothing tells host and name of the job: see Place.
void at_place(const Config &config, const Place &place, Launcher *out) {
  out->meeting = Meeting::place;
  out->where = fmt::format("the root is in rank 0 on {} ({}), at the first free one of the ports {}; {}", place.host,
                           place.from, fmt::join(place.ports, ", "),
                           config.text("core.job_key_file").empty() ? "no job key: see TUTTI_JOB_KEY_FILE"
                                                                    : "the job key comes from TUTTI_JOB_KEY_FILE");
}
void on_host(Launcher *out) {
  out->meeting = Meeting::host;
  out->where = "all ranks are on this host; the root is in rank 0, which hands its unique id to processes of this user";
}

Result<Place> slurm_place(const Config &config) {
  const char *name = kNodelist.first_set();
  if (!name) return bad(fmt::format("srun set no {}, which would tell the host of rank 0", kNodelist.text()));
  auto hosts = expand_hostlist(::secure_getenv(name));
  if (!hosts.ok()) return bad(fmt::format("{}: {}", name, hosts.status().error().message));
  Place p;
  p.name = slurm_step();
  p.host = hosts->size() == 1 ? "" : hosts->front();
  p.ports = ports_for(p.name, config);
  p.from = fmt::format("{}={}", name, ::secure_getenv(name));
  return p;
}

void by_slurm(const Config &config, Launcher *out) {
  auto place = slurm_place(config);
  if (!place.ok()) {
    out->missing = place.status().error().message + "; srun --mpi=pmi2 or --mpi=pmix, or TUTTI_COMM_ID=host:port, needs none";
    return;
  }
  if (place->host.empty()) return on_host(out);
  at_place(config, *place, out);
}

Result<Place> master_place(const Config &config) {
  const char *host = value_of("MASTER_ADDR"), *port = value_of("MASTER_PORT");
  if (!host || !port)
    return bad(fmt::format("{} is not set, which would tell the host of rank 0", host ? "MASTER_PORT" : "MASTER_ADDR"));
  Place p;
  p.from = fmt::format("MASTER_ADDR={}, MASTER_PORT={}", host, port);
  const auto store = parse_host_port(fmt::format("[{}]:{}", host, port));
  if (!store.ok()) return bad(fmt::format("{} is no host and no port of 1 to 65535", p.from));
  p.host = store->host;
  const char *run = value_of("TORCHELASTIC_RUN_ID");
  p.name = fmt::format("torch/{}/{}/{}/{}", host, port, run ? run : "", ::secure_getenv("WORLD_SIZE"));
  p.ports = ports_for(p.name, config, store->port); // that one belongs to its own store
  return p;
}

void by_master(const Config &config, Launcher *out) {
  auto place = master_place(config);
  if (!place.ok()) {
    out->missing = place.status().error().message + "; or set TUTTI_COMM_ID=host:port with a free port of rank 0's host, or "
                                                    "file:PATH on a shared file system";
    return;
  }
  if (out->local_size == out->nranks) return on_host(out);
  at_place(config, *place, out);
}

// What all ranks of the job know and no other job has; "" = this launcher tells nothing of the kind. Workers that torchrun
// starts again are another job: those before them may have left something in a store.
std::string job_name(const Launcher &l, const Config &config) {
  if (const std::string &given = config.text("core.job_name"); !given.empty()) return given;
  if (l.name == "srun") return slurm_step();
  if (l.name == "torchrun" || l.name == "RANK and WORLD_SIZE") {
    const auto place = master_place(config);
    if (!place.ok()) return "";
    const char *again = value_of("TORCHELASTIC_RESTART_COUNT");
    return fmt::format("{}/{}", place->name, again ? again : "0");
  }
  for (const char *name : {"PMIX_NAMESPACE", "FLUX_JOB_ID", "PALS_APID"})
    if (set(name)) return fmt::format("{}/{}", name, value_of(name));
  return "";
}

void by_store(const Config &config, Launcher *out) {
  const std::string &path = config.text("core.job_key_file");
  out->job = job_name(*out, config);
  out->meeting = out->job.empty() ? Meeting::none : Meeting::store;
  out->where = fmt::format("the root is in rank 0, whose unique id travels through {} under {}, {}",
                           without_password(config.text("core.rendezvous")), store_key(out->job, 0),
                           path.empty() ? "readable by all who can read there: see TUTTI_JOB_KEY_FILE"
                                        : "boxed with the key from TUTTI_JOB_KEY_FILE");
  out->missing = fmt::format("TUTTI_RENDEZVOUS needs a name of the job, which {} does not tell: set TUTTI_JOB_NAME to what all "
                             "ranks know and no other job has",
                             out->name);
}

// ---- the table, in the order in which it is looked through: what runs inside another launcher comes first

// torchrun's workers inherit what srun or mpirun told its agent, which is about agents. But a script under srun or mpirun that
// sets RANK and the like for the application changes nothing: the sizes are the launcher's.
bool torchrun() {
  if (set("TORCHELASTIC_RUN_ID")) return true;
  if (!set("RANK") || !set("WORLD_SIZE") || !set("LOCAL_RANK")) return false;
  const std::string size = ::secure_getenv("WORLD_SIZE");
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    if (set(name)) return size != ::secure_getenv(name);
  return true;
}

bool slurm_step_here() { // a batch script has SLURM_PROCID, too, and is no task of a step
  return (set("SLURM_STEP_ID") || set("SLURM_STEPID")) && set("SLURM_PROCID");
}

constexpr Known kTable[] = {
    {"tutti run",
     [] { return set("TUTTI_RANK"); },
     {{"TUTTI_RANK"}},
     {{"TUTTI_NRANKS"}},
     {{"TUTTI_LOCAL_RANK"}},
     {{"TUTTI_LOCAL_SIZE"}},
     by_comm_id},
    {"torchrun", torchrun, {{"RANK"}}, {{"WORLD_SIZE"}}, {{"LOCAL_RANK"}}, {{"LOCAL_WORLD_SIZE"}}, by_master},
    {"Open MPI",
     [] { return set("OMPI_COMM_WORLD_RANK") || set("OMPI_COMM_WORLD_SIZE"); },
     {{"OMPI_COMM_WORLD_RANK"}},
     {{"OMPI_COMM_WORLD_SIZE"}},
     {{"OMPI_COMM_WORLD_LOCAL_RANK"}},
     {{"OMPI_COMM_WORLD_LOCAL_SIZE"}},
     by_pmix},
    {"PMIx", pmix_available, {}, {}, {}, {}, by_pmix},
    {"PMI",
     pmi_available,
     {{"PMI_RANK"}},
     {{"PMI_SIZE"}},
     {{"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"}},
     {{"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
     by_pmi},
    {"srun",
     slurm_step_here,
     {{"SLURM_PROCID"}},
     {{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}},
     {{"SLURM_LOCALID"}},
     {},
     by_slurm},
    {"MVAPICH",
     [] { return set("MV2_COMM_WORLD_RANK"); },
     {{"MV2_COMM_WORLD_RANK"}},
     {{"MV2_COMM_WORLD_SIZE"}},
     {{"MV2_COMM_WORLD_LOCAL_RANK"}},
     {{"MV2_COMM_WORLD_LOCAL_SIZE"}},
     by_none},
    {"PMI without PMI_FD",
     [] { return set("PMI_RANK") || set("PALS_RANKID"); },
     {{"PMI_RANK", "PALS_RANKID"}},
     {{"PMI_SIZE"}},
     {{"PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"}},
     {{"PMI_LOCAL_SIZE"}},
     by_none},
    {"Flux",
     [] { return set("FLUX_TASK_RANK"); },
     {{"FLUX_TASK_RANK"}},
     {{"FLUX_JOB_SIZE"}},
     {{"FLUX_TASK_LOCAL_ID"}},
     {},
     by_none},
    {"RANK and WORLD_SIZE",
     [] { return set("RANK") && set("WORLD_SIZE"); },
     {{"RANK"}},
     {{"WORLD_SIZE"}},
     {{"LOCAL_RANK"}},
     {{"LOCAL_WORLD_SIZE"}},
     by_master},
};

Result<Launcher> read(const Known &k, const Config &config) {
  Launcher out;
  out.name = k.name;
  TUTTI_TRY(read_number(k.rank, &out.rank, &out.variables));
  TUTTI_TRY(read_number(k.nranks, &out.nranks, &out.variables));
  TUTTI_TRY(read_number(k.local_rank, &out.local_rank, &out.variables));
  TUTTI_TRY(read_number(k.local_size, &out.local_size, &out.variables));
  if (k.meet == by_slurm || k.meet == by_pmi) TUTTI_TRY(read_slurm_local_size(&out));
  if (k.meet == by_pmix && out.variables.empty()) out.variables = fmt::format("PMIX_RANK={}", ::secure_getenv("PMIX_RANK"));
  TUTTI_TRY(check(k, out));
  k.meet(config, &out);
  if (const std::string &text = config.text("core.comm_id"); !text.empty() && out.meeting != Meeting::comm_id) {
    out.meeting = Meeting::comm_id;
    out.where = fmt::format("TUTTI_COMM_ID={}", text);
  }
  if (!config.text("core.rendezvous").empty() && out.meeting != Meeting::comm_id) by_store(config, &out);
  return out;
}

// ---- from launcher to id

Result<tuttiUniqueId> exchange(Launcher *l, const Config &config, Deadline deadline,
                               Status (*carry)(std::string_view, const tuttiUniqueId *, tuttiUniqueId *, Deadline)) {
  static std::atomic<uint32_t> calls{0}; // every rank makes the same ones in the same order
  const std::string key = fmt::format("tutti.id.{}", calls.fetch_add(1));
  tuttiUniqueId id{};
  if (l->rank == 0) {
    TUTTI_ASSIGN(made, Bootstrap::create_id(config));
    id = made;
  }
  TUTTI_TRY(carry(key, l->rank == 0 ? &id : nullptr, &id, deadline));
  return id;
}

// What the server says must be what the environment says, where that says anything.
Status ask_pmix(Launcher *l, Deadline deadline) {
  TUTTI_ASSIGN(info, pmix_start(deadline));
  if (l->rank >= 0 && (info.rank != l->rank || (info.nranks > 0 && info.nranks != l->nranks)))
    return bad(fmt::format("{} contradicts itself: {}, but its PMIx server says rank {} of {}", l->name, l->variables,
                           info.rank, info.nranks));
  l->rank = info.rank;
  if (info.nranks > 0) l->nranks = info.nranks;
  if (l->local_rank < 0) l->local_rank = info.local_rank;
  if (l->local_size < 0) l->local_size = info.local_size;
  if (l->nranks < 1 || l->rank < 0 || l->rank >= l->nranks)
    return bad(fmt::format("the PMIx launcher says rank {} of {}", l->rank, l->nranks));
  return {};
}

Status nobody() {
  if (set("SLURM_PROCID"))
    return bad("no launcher found: SLURM_PROCID is set and SLURM_STEP_ID is not, so this is a batch script itself")
        .hint("start the program with srun");
  if (set("TUTTI_NRANKS")) return bad("no launcher found: TUTTI_NRANKS is set and TUTTI_RANK is not");
  return bad("no launcher found: none of its variables is set")
      .hint("start with `tutti run -n N program`, mpirun, mpiexec, srun or torchrun, or set TUTTI_RANK, TUTTI_NRANKS and "
            "TUTTI_COMM_ID or TUTTI_RENDEZVOUS");
}

Status first_task_is_on_the_first_node() {
  const char *node = value_of("SLURM_NODEID");
  if (!node || std::strcmp(node, "0") == 0) return {};
  return bad(fmt::format("rank 0 (SLURM_PROCID=0) is on node {} of {}, where the others do not look for it", node,
                         ::secure_getenv(kNodelist.first_set())))
      .hint("set TUTTI_COMM_ID=host:port with a free port of its host, or start with srun --mpi=pmi2");
}

Result<tuttiUniqueId> find_id(Launcher *l, const Config &config, Deadline deadline) {
  const bool slurm = l->name == "srun";
  if (l->meeting == Meeting::comm_id) return id_from_text(config.text("core.comm_id"), config, l->rank, deadline);
  if (l->meeting == Meeting::pmix) return exchange(l, config, deadline, pmix_exchange);
  if (l->meeting == Meeting::pmi) return exchange(l, config, deadline, pmi_exchange);
  if (l->nranks == 1) return Bootstrap::create_id(config);
  if (l->meeting == Meeting::store) return id_from_store({config.text("core.rendezvous"), l->job}, config, l->rank, deadline);
  if (l->meeting == Meeting::none)
    return bad(fmt::format("started by {} ({}), but not told where the ranks meet", l->name, l->variables)).hint(l->missing);
  TUTTI_ASSIGN(place, slurm ? slurm_place(config) : master_place(config));
  if (l->meeting == Meeting::host) return id_from_host(place.name, config, l->rank, l->nranks, deadline);
  if (slurm && l->rank == 0) TUTTI_TRY(first_task_is_on_the_first_node());
  return id_from_place(place, config, l->rank, deadline);
}

} // namespace
} // namespace boot

Result<std::optional<Launcher>> recognise_launcher(const Config &config) {
  for (const boot::Known &k : boot::kTable) {
    if (!k.here()) continue;
    TUTTI_ASSIGN(found, boot::read(k, config));
    return std::optional<Launcher>(std::move(found));
  }
  return std::optional<Launcher>();
}

Result<Bootstrap::Launch> Bootstrap::launch_from_env(const Config &config, Deadline deadline) {
  TUTTI_ASSIGN(found, recognise_launcher(config));
  if (!found) return boot::nobody();
  Launcher &l = *found;
  if (l.meeting == Launcher::Meeting::pmix || (l.rank < 0 && boot::pmix_available())) TUTTI_TRY(boot::ask_pmix(&l, deadline));
  log::info(log::Subsys::bootstrap, "started by {} ({}): rank {} of {}{}; {}", l.name, l.variables, l.rank, l.nranks,
            l.local_rank >= 0
                ? fmt::format(", {} of {} on this host", l.local_rank, l.local_size > 0 ? fmt::format("{}", l.local_size) : "?")
                : std::string(),
            l.nranks == 1 ? "alone" : l.where);
  TUTTI_ASSIGN(id, boot::find_id(&l, config, deadline));
  Launch out;
  out.rank = l.rank;
  out.nranks = l.nranks;
  out.local_rank = l.local_rank;
  out.local_size = l.local_size;
  out.id = id;
  out.source = l.name;
  return out;
}

Result<UniqueFd> create_id_fd(const tuttiUniqueId &id) {
  UniqueFd fd(memfd_create("tutti-id", 0)); // inherited by the ranks on purpose
  if (!fd) return fail_errno(errno, "cannot create a memory file for the unique id");
  if (write(fd.get(), id.internal, sizeof id.internal) != static_cast<ssize_t>(sizeof id.internal))
    return fail_errno(errno, "cannot write the unique id");
  return fd;
}

} // namespace tutti
