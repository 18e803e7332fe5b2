// What each launcher leaves in the environment: how it is recognised, what contradicts itself, and real meetings of processes
// that were given such an environment.
#include "bootstrap/crypto.h"
#include "bootstrap/rendezvous.h"
#include "processes.h"
#include <arpa/inet.h>
#include <sys/un.h>

using namespace help;

namespace {

void put(const Environment &e) {
  for (const auto &[name, value] : e) setenv(name.c_str(), value.c_str(), 1);
}

Environment with(Environment e, const Environment &more) {
  for (const auto &[name, value] : more) e[name] = value;
  return e;
}

// What a process with this environment says of its launcher.
std::string recognised(const Environment &environment, const Environment &settings = {}) {
  auto child = spawn([&](const Say &say) {
    put(environment);
    const auto found = recognise_launcher(*config(settings));
    if (!found.ok()) return say(line(found));
    if (!*found) return say("none");
    const Launcher &l = **found;
    say(fmt::format("{} {}/{} {}/{}: {}", l.name, l.rank, l.nranks, l.local_rank, l.local_size,
                    l.meeting == Launcher::Meeting::none ? l.missing : l.where));
  });
  const std::string said = child.read_line();
  reap(child);
  return said;
}

bool has(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const Environment kStep = {{"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "2"}, {"SLURM_PROCID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_NTASKS", "8"}, // of the allocation
                           {"SLURM_LOCALID", "0"},        {"SLURM_NODEID", "0"},  {"SLURM_STEP_TASKS_PER_NODE", "3"},
                           {"SLURM_STEP_NODELIST", "n7"}};
const Environment kTorch = {{"RANK", "0"},
                            {"WORLD_SIZE", "3"},
                            {"LOCAL_RANK", "0"},
                            {"LOCAL_WORLD_SIZE", "3"},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "run"}};

Environment as_rank(Environment e, const char *name, const char *local, int rank) {
  e[name] = std::to_string(rank);
  if (local) e[local] = std::to_string(rank);
  return e;
}

// Joins with what the environment says, `rounds` times, and says the source and size, or the error.
Child member(const Environment &environment, std::chrono::milliseconds limit = 20s, const Environment &settings = {},
             int rounds = 1) {
  return spawn([=](const Say &say) {
    put(environment);
    const auto c = config(settings);
    std::string source;
    for (int i = 0; i < rounds; i++) {
      const auto l = Bootstrap::launch_from_env(*c, Deadline::in(limit));
      if (!l.ok()) return say(line(l));
      auto b = Bootstrap::join(l->id, l->nranks, l->rank, c, Deadline::in(limit));
      if (!b.ok()) return say(line(b));
      if (Status s = b.value()->barrier(soon(), "t"); !s.ok()) return say(line(s));
      b.value()->expect_close();
      source = fmt::format("{} {}", l->source, l->nranks);
    }
    say(source);
  });
}

void check_meeting(const std::function<Environment(int)> &environment, const std::string &expected,
                   const Environment &settings = {}, int rounds = 1) {
  std::vector<Child> ranks;
  for (int r = 2; r >= 0; r--) ranks.push_back(member(environment(r), 20s, settings, rounds)); // rank 0 comes last
  for (auto &c : ranks) CHECK(c.read_line() == expected);
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

} // namespace

TEST_CASE("launchers are recognised with ranks, local ranks and the way to the root") {
  CHECK(recognised({}) == "none");
  CHECK(has(recognised(kStep), "srun 0/3 0/3: all ranks are on this host"));
  const auto two = with(
      kStep,
      {{"SLURM_STEP_NODELIST", "n[7-8]"}, {"SLURM_NODEID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1"}, {"SLURM_PROCID", "2"}});
  CHECK(has(recognised(two),
            "srun 2/3 0/1: the root is in rank 0 on n7 (SLURM_STEP_NODELIST=n[7-8]), at the first free one of the ports "));
  CHECK(has(recognised(two), "no job key"));
  CHECK(has(recognised(two, {{"TUTTI_COMM_ID", "h:1"}}), "srun 2/3 0/1: TUTTI_COMM_ID=h:1"));
  CHECK(recognised({{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}) == "none"); // a batch script
  CHECK(has(recognised(kTorch), "torchrun 0/3 0/3: all ranks are on this host"));
  CHECK(has(recognised(with(kTorch, {{"LOCAL_WORLD_SIZE", "1"}})), "torchrun 0/3 0/1: the root is in rank 0 on 127.0.0.1"));
  CHECK(has(
      recognised({{"PMI_FD", "5"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}}),
      "PMI 1/2 0/1: "));
  CHECK(has(recognised(with(kStep, {{"PMI_FD", "5"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"SLURM_LOCALID", "1"}})),
            "PMI 1/3 1/3: "));
  CHECK(has(recognised({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}}), "MVAPICH 1/2 -1/-1: set TUTTI_COMM_ID"));
  CHECK(has(recognised({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}}), "Flux 1/2"));
  CHECK(has(recognised({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "RANK and WORLD_SIZE 1/2 -1/-1: MASTER_ADDR is not set"));
}

TEST_CASE("an environment that is incomplete or contradicts itself is an error that names the variables") {
  const std::pair<Environment, const char *> table[] = {
      {{{"TUTTI_RANK", "1"}}, "TUTTI_RANK=1), but TUTTI_NRANKS is not set"},
      {{{"OMPI_COMM_WORLD_RANK", "1"}}, "OMPI_COMM_WORLD_RANK=1), but OMPI_COMM_WORLD_SIZE is not set"},
      {{{"PMI_FD", "3"}, {"PMI_SIZE", "4"}}, "PMI_SIZE=4), but PMI_RANK is not set"},
      {{{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}, "PMI_RANK=4, PMI_SIZE=4: ranks are 0 to PMI_SIZE - 1"},
      {{{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "1"}}, "RANK=1), but WORLD_SIZE is not set"},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}, "SLURM_STEP_NUM_TASKS or SLURM_NTASKS or SLURM_NPROCS is not set"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "RANK=0, WORLD_SIZE=0: ranks are 0 to WORLD_SIZE - 1"},
      {{{"PMI_FD", "3"}}, "started by PMI, but PMI_RANK is not set"},
      {{{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK=\"one\" is not a number"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       "of 2 ranks, 2 on this host, this is number 2"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "3"}}, "of 2 ranks, 3 on this host"},
      {with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), "SLURM_STEP_TASKS_PER_NODE: \"2(x\" is no list of task counts"},
      {with(kStep, {{"SLURM_NODEID", "5"}}), "it has 1 nodes, this is node 5"},
  };
  for (const auto &[environment, text] : table) {
    const std::string said = recognised(environment);
    CHECK_MESSAGE(has(said, text), said);
  }
}

TEST_CASE("ranks that are told no place to meet say what to set") {
  const auto says = [](const Environment &e, std::string_view text) {
    auto c = member(e, 2s);
    const std::string said = c.read_line();
    CHECK_MESSAGE(has(said, text), said);
    reap(c);
  };
  says({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}}, "set TUTTI_COMM_ID=host:port");
  says({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}, "MASTER_PORT is not set");
  says({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "x"}},
       "MASTER_PORT=x is no host and no port");
  says(with(kStep, {{"SLURM_STEP_NODELIST", "n[1-"}}), "SLURM_STEP_NODELIST: \"n[1-\" is no list of hosts: a [ is not closed");
  says({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, "this is a batch script itself; start the program with srun");
  says({{"TUTTI_NRANKS", "2"}}, "TUTTI_NRANKS is set and TUTTI_RANK is not");
  says({}, "start with `tutti run -n N program`");
  says({{"PMI_FD", "0"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "is no socket of a process manager");
  says(with(kStep,
            {{"SLURM_STEP_NODELIST", "127.0.0.1,127.0.0.2"}, {"SLURM_NODEID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1"}}),
       "rank 0 (SLURM_PROCID=0) is on node 1 of 127.0.0.1,127.0.0.2");
}

TEST_CASE("ranks of srun and of torchrun that are all on this host meet without a port or a key, several times over") {
  const std::string job = std::to_string(getpid());
  check_meeting(
      [&](int r) {
        return as_rank(with(kStep, {{"SLURM_JOB_ID", job}}), "SLURM_PROCID", "SLURM_LOCALID", r);
      },
      "srun 3", {{"TUTTI_SECURITY", "required"}}, 3);
  check_meeting(
      [&](int r) {
        return as_rank(with(kTorch, {{"TORCHELASTIC_RUN_ID", job}}), "RANK", "LOCAL_RANK", r);
      },
      "torchrun 3", {{"TUTTI_SECURITY", "required"}}, 3);
}

TEST_CASE("ranks of several hosts meet at the host that the launcher names, past ports that others hold") {
  const Environment slurm = with(kStep, {{"SLURM_JOB_ID", std::to_string(getpid())},
                                         {"SLURM_STEP_NODELIST", "127.0.0.1,127.0.0.2"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "3,0"}});
  const auto rank = [&](int r) { return as_rank(slurm, "SLURM_PROCID", "SLURM_LOCALID", r); };
  check_meeting(rank, "srun 3", {}, 2);
  // A stranger that takes connections and says nothing holds the first of the ports.
  const auto ports = boot::ports_for(fmt::format("slurm//{}/2", getpid()), *config());
  REQUIRE(ports.size() == 3);
  const UniqueFd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(ports[0]);
  inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
  const int on = 1;
  setsockopt(stranger.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  REQUIRE(bind(stranger.get(), reinterpret_cast<sockaddr *>(&at), sizeof at) == 0);
  REQUIRE(listen(stranger.get(), 16) == 0);
  check_meeting(rank, "srun 3");
  auto refused = member(rank(0), 20s, {{"TUTTI_SECURITY", "required"}});
  CHECK(
      has(refused.read_line(), "core.security is \"required\" and SLURM_STEP_NODELIST=127.0.0.1,127.0.0.2 brings no job key"));
  reap(refused);
}

TEST_CASE("ports for a job are the same everywhere, in the range that is set, and never the one that is taken") {
  const auto c = config();
  CHECK(boot::ports_for("job", *c) == boot::ports_for("job", *c));
  CHECK(boot::ports_for("job", *c) != boot::ports_for("other", *c));
  for (const uint16_t p : boot::ports_for("job", *c)) CHECK((p >= 15000 && p < 30000));
  const uint16_t first = boot::ports_for("job", *c)[0];
  for (const uint16_t p : boot::ports_for("job", *c, first)) CHECK(p != first);
  CHECK(boot::ports_for("job", *config({{"TUTTI_SOCKET_PORT_RANGE", "700-701"}})).size() == 2);
  for (const uint16_t p : boot::ports_for("job", *config({{"TUTTI_SOCKET_PORT_RANGE", "700-701"}})))
    CHECK((p == 700 || p == 701));
}

TEST_CASE("a rank 0 that never comes is named, and a process of another user that has taken its name is not believed") {
  const std::string job = std::to_string(getpid());
  const Environment torch = as_rank(with(kTorch, {{"TORCHELASTIC_RUN_ID", job}}), "RANK", "LOCAL_RANK", 1);
  auto alone = member(torch, 300ms);
  const std::string said = alone.read_line();
  CHECK_MESSAGE(has(said, "rank 0 has not offered its unique id within 0.3 s"), said);
  reap(alone);
  if (geteuid() != 0) return; // only root can become another user
  auto thief = spawn([&](const Say &say) {
    const std::string name = fmt::format(
        "tutti-job-{:016x}", boot::hash_u64("tutti job", fmt::format("torch/127.0.0.1/29500/{}/3/{}/0", job, geteuid())));
    if (setresuid(12345, 12345, 12345) != 0) return say("cannot change the user");
    const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    name.copy(un.sun_path + 1, name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const bool taken = bind(fd.get(), reinterpret_cast<sockaddr *>(&un), length) == 0 && listen(fd.get(), 8) == 0;
    say(taken ? "taken" : "not taken");
    pause();
  });
  REQUIRE(thief.read_line() == "taken");
  auto victim = member(torch);
  CHECK(has(victim.read_line(), "belongs to user 12345"));
  auto first = member(as_rank(torch, "RANK", "LOCAL_RANK", 0));
  CHECK(has(first.read_line(), "cannot listen at unix:tutti-job-"));
  reap(victim), reap(first);
  kill(thief.pid, SIGKILL);
  reap(thief);
}
