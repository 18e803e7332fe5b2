// Constants of this machine: measured, kept, and not believed without a look.
#include "../../support/temp_folder.h"
#include "comm/select/calibrate.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tutti;

namespace {

using Scratch = support::TempFolder;
std::shared_ptr<const Config> config(const std::map<std::string, std::string> &environment) {
  auto c = Config::from("", "test", environment);
  REQUIRE_MESSAGE(c.ok(), (c.ok() ? "" : c.status().error().message));
  return *c;
}
CpuSet cpus() {
  return CpuSet::of_this_process();
}
void write(const std::string &path, const std::string &text) {
  std::ofstream(path) << text;
}
std::string read(const std::string &path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string error_of(const std::string &path, const char *machine = "m") {
  const auto r = read_costs(path, machine);
  return r.ok() ? *r ? "good" : "absent" : r.status().error().message;
}
CostConstants odd_costs(int seed) {
  CostConstants c;
  double v = seed;
  CostConstants::each(c, [&](const std::string &, double &x) { x = v, v += 0.25; });
  return c;
}

} // namespace

TEST_CASE("what is measured are positive numbers that fit into their text") {
  bool whole = false;
  const CostConstants c = measure_machine(CpuSet::of_this_process(), &whole);
  CostConstants::each(c, [](const std::string &name, double v) {
    CAPTURE(name);
    CHECK(std::isfinite(v));
    const bool difference = name.find("memory_ns") == 0 || name.find("past_cache_ns") == 0 || name == "pull_ns";
    if (!difference) CHECK(v > 0);
  });
  CHECK(CostConstants::decode(c.encode()));
}

TEST_CASE("costs survive their file") {
  const Scratch s;
  const std::string path = s.file("deep/er/costs.toml");
  CHECK(error_of(path) == "absent");
  REQUIRE(write_costs(path, "m", odd_costs(3)).ok());
  const auto back = read_costs(path, "m");
  REQUIRE((back.ok() && *back));
  CHECK((*back)->encode() == odd_costs(3).encode());
  REQUIRE(write_costs(path, "m", odd_costs(4)).ok());
  CHECK((*read_costs(path, "m"))->encode() == odd_costs(4).encode());
  CHECK(std::distance(std::filesystem::directory_iterator(s.path() / "deep/er"), {}) == 1); // no draft is left
}

TEST_CASE("a file that is not what was written says what is wrong with it") {
  const Scratch s;
  const std::string path = s.file("costs.toml");
  REQUIRE(write_costs(path, "m", odd_costs(1)).ok());
  const std::string good = read(path);
  CHECK(error_of(path, "another").find("it is of another machine: \"m\"") == 0);
  for (const auto &[text, why] : std::map<std::string, std::string>{
           {"", "it is of another machine"},
           {"\x7f\x45LF\x02", "it is no TOML"},
           {good.substr(0, good.rfind('\n', good.size() / 2) + 1), "costs."},
           {good + "[costs", "it is no TOML"},
           {"machine = \"m\"\ncosts = 3", "costs.local_latency_us is no number"},
           {std::string(100'000, '#'), "it is longer than"},
       }) {
    write(path, text);
    CHECK(error_of(path).find(why) == 0);
  }
  std::string negative = good;
  negative.replace(negative.find("step_us = "), 10, "step_us = -");
  write(path, negative);
  CHECK(error_of(path) == "costs.step_us is no number from 0 to 1e15");
  write(path, good);
  CHECK(error_of(path) == "good");
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  CHECK(error_of(path) == "others than this user may write it");
  CHECK(error_of(s.path().string()) == "it is no regular file");
}

TEST_CASE("where a file cannot be written it is said, and nothing is left") {
  const Scratch s;
  write(s.file("file"), "");
  CHECK_FALSE(write_costs(s.file("file/costs.toml"), "m", {}).ok());
  std::filesystem::create_directories(s.file("taken.toml/inside"));
  CHECK_FALSE(write_costs(s.file("taken.toml"), "m", {}).ok());
  CHECK(std::distance(std::filesystem::directory_iterator(s.path()), {}) == 2);
}

TEST_CASE("a process knows each number of cores for itself, and a machine by one measurement") {
  const Scratch a, b;
  const auto in = [&](const Scratch &s) {
    return config({{"TUTTI_CALIBRATE", "auto"}, {"TUTTI_CACHE_DIR", s.path().string()}});
  };
  const auto set = [](uint64_t word) { return CpuSet::from_words({&word, 1}); };
  const CpuSet few = set(0x7), many = set(0x1f); // three and five cores: nothing else in this process asks for those
  REQUIRE(write_costs(cache_path(*in(a), few), machine_name(few), odd_costs(3)).ok());
  REQUIRE(write_costs(cache_path(*in(a), many), machine_name(many), odd_costs(5)).ok());
  REQUIRE(write_costs(cache_path(*in(b), few), machine_name(few), odd_costs(7)).ok());
  CHECK(machine_costs(*in(a), few).encode() == odd_costs(3).encode());
  CHECK(machine_costs(*in(a), many).encode() == odd_costs(5).encode());
  CHECK(machine_costs(*in(b), few).encode() == odd_costs(3).encode());
}

TEST_CASE("bandwidths that the user names move what is predicted") {
  PlanCost on_host, over_net; // a message of all bytes
  on_host.chunk = over_net.chunk = 1;
  on_host.host.ranks = over_net.host.ranks = 1;
  on_host.host.cores = over_net.host.cores = 1;
  on_host.quick.work.in[index_of(LinkClass::shm)] = 1;
  over_net.host.work.out[index_of(LinkClass::net)] = 1;
  const tutti_proto_v1 proto{sizeof proto, TUTTI_SIGNAL_COUNTER, "test", 1, 1, 8, 56, nullptr};
  const auto us = [&](const PlanCost &cost, const std::map<std::string, std::string> &environment) {
    CostModel::Input input;
    apply_bandwidths(*config(environment), &input.constants, &input.net);
    return CostFormula(input, cost, cost, proto, false).estimate(1 << 20, 1, 1 << 20, 4).us;
  };
  constexpr double kBytes = 1 << 20;
  CHECK(us(on_host, {{"NCCL_P2P_BANDWIDTH", "1"}}) == doctest::Approx(kBytes * 1e-3));
  CHECK(us(on_host, {{"NCCL_P2P_BANDWIDTH", "0"}}) == us(on_host, {}));
  CHECK(us(on_host, {{"NCCL_P2P_BANDWIDTH", "1"}}) > 2 * us(on_host, {}));
  CHECK(us(over_net, {{"NCCL_P2P_BANDWIDTH", "1"}}) == us(over_net, {}));
  CHECK(us(over_net, {{"NCCL_NET_BANDWIDTH", "1"}}) == doctest::Approx(kBytes * 1e-3));
  CHECK(us(over_net, {{"NCCL_NET_BANDWIDTH", "100"}}) == doctest::Approx(kBytes * 1e-5));
}

TEST_CASE("processes that write at once leave one whole file at every moment") {
  const Scratch s;
  const std::string path = s.file("costs.toml");
  REQUIRE(write_costs(path, "m", odd_costs(0)).ok());
  std::vector<pid_t> writers;
  for (int w = 1; w <= 2; w++) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      for (int i = 0; i < 200; i++)
        if (!write_costs(path, "m", odd_costs(w)).ok()) _exit(1);
      _exit(0);
    }
    writers.push_back(pid);
  }
  int bad = 0, others = 0;
  for (int i = 0; i < 400; i++) {
    const auto c = read_costs(path, "m");
    if (!c.ok() || !*c) {
      bad++;
      continue;
    }
    bool one = false;
    for (int w = 0; w <= 2; w++) one |= (*c)->encode() == odd_costs(w).encode();
    others += !one;
  }
  for (const pid_t pid : writers) {
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
  CHECK(bad == 0);
  CHECK(others == 0);
  CHECK(std::distance(std::filesystem::directory_iterator(s.path()), {}) == 1);
}

TEST_CASE("the option says where constants come from") {
  const Scratch s;
  const std::string built_in = CostConstants().encode();
  CHECK(machine_costs(*config({{"TUTTI_CALIBRATE", "off"}, {"TUTTI_CACHE_DIR", s.path().string()}}), cpus()).encode() ==
        built_in);
  for (const char *mode : {"run", "size"})
    CHECK(machine_costs(*config({{"TUTTI_DETERMINISTIC", mode}, {"TUTTI_CACHE_DIR", s.path().string()}}), cpus()).encode() ==
          built_in);
  CHECK(std::filesystem::is_empty(s.path())); // none of them has a look at the file

  // One that is there is used.
  const auto automatic = config({{"TUTTI_CACHE_DIR", s.path().string()}});
  const std::string path = cache_path(*automatic, cpus());
  CHECK(std::filesystem::path(path).parent_path() == s.path());
  REQUIRE(write_costs(path, machine_name(cpus()), odd_costs(7)).ok());
  CHECK(machine_costs(*automatic, cpus()).encode() == odd_costs(7).encode());

  // One that is broken is made anew, once in a process.
  const Scratch other;
  const auto broken = config({{"TUTTI_CACHE_DIR", other.path().string()}});
  write(cache_path(*broken, cpus()), "broken");
  const std::string measured = machine_costs(*broken, cpus()).encode();
  CHECK(measured != built_in);
  const auto kept = read_costs(cache_path(*broken, cpus()), machine_name(cpus()));
  if (kept.ok() && *kept) { // a machine that is too busy keeps nothing
    CHECK((*kept)->encode() == measured);
    CHECK(machine_costs(*broken, cpus()).encode() == measured);
  }
  // Nowhere to keep it: the constants hold all the same.
  write(other.file("file"), "");
  CHECK_FALSE(machine_costs(*config({{"TUTTI_CACHE_DIR", other.file("file")}}), cpus()).encode().empty());
}

TEST_CASE("the file is in the user's cache, and each machine has its own") {
  const auto path_of = [](const char *cache, const char *home) {
    cache ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME");
    home ? setenv("HOME", home, 1) : unsetenv("HOME");
    return cache_path(*config({}), cpus());
  };
  const std::string old_home = getenv("HOME") ? getenv("HOME") : "";
  CHECK(path_of("/c", "/h").find("/c/tutti/machine-") == 0);
  CHECK(path_of(nullptr, "/h").find("/h/.cache/tutti/machine-") == 0);
  CHECK(path_of("relative", "/h").find("/h/.cache/tutti/machine-") == 0); // as the XDG rules want it
  CHECK(path_of(nullptr, nullptr).empty());
  if (!old_home.empty()) setenv("HOME", old_home.c_str(), 1);
}
