// Jobs that do at random, by a seed, all that ranks may do, one after the other for some time. Started alone it starts the
// processes of the jobs, hears what they say, and looks at what they leave behind.
//
//   soak_jobs --minutes 10 --seed 7        soak_jobs --seed 7 --job 31      that one again
#define DOCTEST_CONFIG_IMPLEMENT // tests/support needs it; this program has a main() of its own
#include "../support/temp_folder.h"
#include "member.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <spawn.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern char **environ;

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kMostFailures = 5;

struct Sum {
  uint64_t jobs = 0, operations = 0, kills = 0, grown = 0, leaks_looked_at = 0;
  long peak_kib = 0; // resident, of the largest process
  std::vector<std::string> failures;
};

// What all ranks of a job have in their environment. A rotation, so that a short run has each.
const std::vector<std::vector<std::pair<const char *, const char *>>> kWays = {
    {},
    {{"TUTTI_SHM_DISABLE", "1"}},
    {{"TUTTI_ALGO", "ring"}},
    {{"TUTTI_SHM_DISABLE", "1"}, {"TUTTI_NET_CHECKSUM", "1"}},
    {{"TUTTI_PROGRESS_THREAD", "0"}},
    {{"TUTTI_SHM_PULL", "mapped"}}};

std::set<std::string> shared_memory() {
  std::set<std::string> out;
  std::error_code none;
  for (const auto &f : fs::directory_iterator("/dev/shm", none))
    if (f.path().filename().string().find("tutti") != std::string::npos) out.insert(f.path().filename());
  return out;
}

pid_t start(const soak::Settings &s, int out) {
  const auto n = [](auto v) { return std::to_string(v); };
  std::vector<std::string> words = {"soak",   "--member", "--seed",  n(s.seed), "--job", n(s.job), "--steps",  n(s.steps),
                                    "--rank", n(s.rank),  "--ranks", n(s.n),    "--id",  s.id,     "--folder", s.folder};
  std::vector<char *> argv;
  for (auto &w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  pid_t pid = -1;
  if (posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// Until all processes of the job have ended: those that it has made itself become ours when their parents end.
void reap(Sum *sum, const std::string &job, int *killed) {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      ++*killed;
    else if (status != 0)
      sum->failures.push_back(job + ": process " + std::to_string(pid) +
                              (WIFSIGNALED(status) ? " was ended by signal " + std::to_string(WTERMSIG(status))
                                                   : " ended with code " + std::to_string(WEXITSTATUS(status))));
  }
}

void take_line(Sum *sum, const std::string &job, const std::string &line, int *dies) {
  if (line.starts_with("did "))
    sum->operations += std::strtoull(line.c_str() + 4, nullptr, 10);
  else if (line == "dies")
    sum->kills++, ++*dies;
  else if (line == "grows")
    sum->grown++;
  else if (line == "leaks looked at")
    sum->leaks_looked_at++;
  else
    sum->failures.push_back(job + ": " + line);
}

void run_job(uint64_t seed, uint64_t number, uint64_t steps, const std::string &folder, Sum *sum) {
  soak::Draw draw(seed, number, ~uint64_t{0} >> 1);
  soak::Settings s;
  s.seed = seed, s.job = number, s.steps = steps, s.folder = folder, s.id = folder + "/id-" + std::to_string(number);
  s.n = draw.from(soak::kFewestRanks, soak::kMostRanks);
  const auto &way = kWays[number % kWays.size()];
  for (const auto &[name, value] : way) setenv(name, value, 1);
  const std::string job = "seed " + std::to_string(seed) + " job " + std::to_string(number);
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) {
    sum->failures.push_back(job + ": no pipe");
    return;
  }
  for (s.rank = 0; s.rank < s.n; s.rank++)
    if (start(s, out[1]) < 0) sum->failures.push_back(job + ": cannot start a process");
  close(out[1]);
  int dies = 0, killed = 0;
  std::string text;
  char buf[4096];
  for (ssize_t n; (n = read(out[0], buf, sizeof buf)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.append(buf, static_cast<size_t>(n));
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      take_line(sum, job, text.substr(0, end), &dies);
  }
  close(out[0]);
  reap(sum, job, &killed);
  if (killed != dies)
    sum->failures.push_back(job + ": " + std::to_string(killed) + " processes were killed, " + std::to_string(dies) +
                            " were to be");
  for (const auto &[name, value] : way) unsetenv(name);
  std::error_code none;
  for (const auto &f : fs::directory_iterator(folder, none)) {
    if (!f.path().filename().string().starts_with("id-")) sum->failures.push_back(job + ": left " + f.path().string());
    fs::remove_all(f.path(), none);
  }
  sum->jobs++;
}

std::string summary(const Sum &sum, double seconds) {
  char line[400];
  std::snprintf(line, sizeof line,
                "%llu jobs, %llu operations in %.0f s; %llu ranks killed, %llu grown; leaks looked for %llu times; largest "
                "process %ld MiB; "
                "%zu failures",
                static_cast<unsigned long long>(sum.jobs), static_cast<unsigned long long>(sum.operations), seconds,
                static_cast<unsigned long long>(sum.kills), static_cast<unsigned long long>(sum.grown),
                static_cast<unsigned long long>(sum.leaks_looked_at), sum.peak_kib / 1024, sum.failures.size());
  return line;
}

int run_jobs(double minutes, uint64_t seed, int only, uint64_t steps) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto shm = shared_memory();
  const support::TempFolder made;
  const std::string folder = made.path();
  for (const auto &[name, value] : std::vector<std::pair<const char *, const char *>>{{"TUTTI_TIMEOUT", "30s"},
                                                                                      {"TUTTI_INIT_TIMEOUT", "60s"},
                                                                                      {"TUTTI_FINALIZE_TIMEOUT", "30s"},
                                                                                      {"TUTTI_CONNECT_TIMEOUT", "30s"},
                                                                                      {"TUTTI_CALIBRATE", "off"},
                                                                                      {"TUTTI_DEBUG", "error"},
                                                                                      {"TMPDIR", folder.c_str()}})
    setenv(name, value, 0);
  Sum sum;
  const auto began = Clock::now(),
             until = began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(60 * minutes));
  std::printf("soak: seed %llu, %llu steps a job\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(steps));
  std::fflush(stdout);
  size_t told = 0;
  for (uint64_t number = only < 0 ? 0 : static_cast<uint64_t>(only); sum.failures.size() < kMostFailures; number++) {
    run_job(seed, number, steps, folder, &sum);
    for (; told < sum.failures.size(); told++) std::printf("%s\n", sum.failures[told].c_str());
    std::fflush(stdout);
    if (only >= 0 || Clock::now() >= until) break;
  }
  std::vector<std::string> left;
  const auto shm_now = shared_memory();
  std::set_difference(shm_now.begin(), shm_now.end(), shm.begin(), shm.end(), std::back_inserter(left));
  for (const std::string &name : left)
    sum.failures.push_back("left /dev/shm/" + name), std::printf("left /dev/shm/%s\n", name.c_str());
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  sum.peak_kib = used.ru_maxrss;
  std::printf("%s\n", summary(sum, std::chrono::duration<double>(Clock::now() - began).count()).c_str());
  return sum.failures.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app{"random jobs, by a seed: operations of all kinds, checked, while ranks come, die, leave and begin anew"};
  double minutes = 10;
  uint64_t seed = std::random_device{}();
  int only = -1;
  bool member = false;
  soak::Settings s;
  app.add_option("--minutes", minutes, "how long; the last job ends by itself")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", seed, "what all is made from; without it a new one");
  app.add_option("--job", only, "only this job");
  app.add_option("--steps", s.steps, "of each job")->capture_default_str();
  app.add_flag("--member", member)->group("");
  app.add_option("--first", s.first)->group("");
  app.add_option("--rank", s.rank)->group("");
  app.add_option("--ranks", s.n)->group("");
  app.add_option("--id", s.id)->group("");
  app.add_option("--folder", s.folder)->group("");
  app.add_flag("--grown", s.grown)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!member) return run_jobs(minutes, seed, only, s.steps);
  s.seed = seed;
  s.job = static_cast<uint64_t>(only);
  return soak::Member(s).run();
}
