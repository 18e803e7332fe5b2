#include "member.h"
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <spawn.h>
#include <system_error>
#include <unistd.h>
#include <utility>

extern char **environ;

namespace soak {
namespace {

constexpr int64_t kLongestStep = 100; // seconds; every deadline of the job is shorter
constexpr size_t kSum = 20'000;
constexpr size_t kHeapGrowth = size_t{8} << 20;

int64_t seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char *const kNames[] = {"operations", "burst", "split", "end_set", "abort_set",
                              "revoke",     "death", "leave", "grow",    "restart"};

bool read_id(const std::string &file, tuttiUniqueId *id) {
  std::ifstream in(file, std::ios::binary);
  in.read(id->internal, sizeof id->internal);
  return in.gcount() == sizeof id->internal;
}

// Whole at once: who waits for the file finds all of it.
bool write_id(const std::string &file, const tuttiUniqueId &id) {
  std::ofstream out(file + ".part", std::ios::binary);
  out.write(id.internal, sizeof id.internal);
  out.close();
  return out.good() && std::rename((file + ".part").c_str(), file.c_str()) == 0;
}

} // namespace

void say(const std::string &line) {
  const std::string whole = line + "\n"; // one write: lines of different ranks never mix
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) < 0) std::_Exit(3);
}

Member::Member(const Settings &settings) : s_(settings) {
  r_.rank = s_.rank;
  r_.n = s_.n;
  since_ = seconds();
  watchdog_ = std::thread([this] {
    while (!over_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (seconds() - since_.load() <= kLongestStep) continue;
      say("hang step " + std::to_string(step_.load()) + " rank " + std::to_string(r_.rank) + " of " + std::to_string(r_.n));
      std::_Exit(124);
    }
  });
}

Member::~Member() {
  over_ = true;
  watchdog_.join();
}

bool Member::come() {
  tuttiUniqueId id{};
  if (s_.rank == 0 && !s_.grown) {
    if (!EXPECT_OK(r_, tuttiGetUniqueId(&id)) || !EXPECT(r_, write_id(s_.id, id))) return false;
  } else
    while (!read_id(s_.id, &id)) std::this_thread::sleep_for(std::chrono::milliseconds(2)); // the watchdog looks at this, too
  if (s_.grown) return EXPECT_OK(r_, tuttiCommGrow(nullptr, s_.n, &id, s_.rank, &r_.comm, nullptr)) && EXPECT_OK(r_, sum(1000));
  return EXPECT_OK(r_, tuttiCommInitRank(&r_.comm, s_.n, id, s_.rank));
}

int Member::run() {
  for (auto &stream : streams_) EXPECT_OK(r_, tuttiStreamCreate(&stream));
  bool on = come();
  uint64_t step = s_.first;
  for (; on && r_.failures == 0 && step < s_.steps; step++) {
    step_ = step;
    since_ = seconds();
    on = one(step);
  }
  since_ = seconds();
  if (r_.failures == 0) {
    end_sets(0);
    if (r_.comm) EXPECT_OK(r_, tuttiCommDestroy(std::exchange(r_.comm, nullptr)));
    for (auto &stream : streams_) EXPECT_OK(r_, tuttiStreamDestroy(stream));
  }
  say("did " + std::to_string(operations_));
  if (r_.failures == 0) return 0;
  Draw draw(s_.seed, s_.job, step_);
  say("failed step " + std::to_string(step_) + " (" + kNames[static_cast<int>(step_of(draw, r_.n).kind)] + ") rank " +
      std::to_string(r_.rank) + " of " + std::to_string(r_.n));
  return 1;
}

bool Member::one(uint64_t step) {
  Draw draw(s_.seed, s_.job, step);
  const Step now = step_of(draw, r_.n);
  if (std::getenv("SOAK_TRACE"))
    std::fprintf(stderr, "%d of %d: step %lu %s %d\n", r_.rank, r_.n, step, kNames[static_cast<int>(now.kind)], now.rank);
  switch (now.kind) {
  case Kind::operations:
    operations(draw);
    break;
  case Kind::burst:
    burst(draw);
    break;
  case Kind::split:
    split(draw);
    break;
  case Kind::end_set:
    end_sets(sets_.empty() ? 0 : sets_.size() - 1);
    break;
  case Kind::abort_set:
    abort_set(now.rank);
    break;
  case Kind::revoke:
    revoke(now.rank);
    break;
  case Kind::death:
    death(draw, now.rank);
    break;
  case Kind::leave:
    return leave(now.rank);
  case Kind::grow:
    grow(step);
    break;
  case Kind::restart:
    restart(step);
    break;
  }
  return true;
}

void Member::operations(Draw &draw) {
  const int times = draw.from(1, 8);
  for (int i = 0; i < times && r_.failures == 0; i++) {
    const size_t at = draw.below(sets_.size() + 1); // 0: all ranks
    support::Rank in = r_;
    if (at > 0) {
      in.comm = sets_[at - 1];
      EXPECT_OK(r_, tuttiCommUserRank(in.comm, &in.rank));
      EXPECT_OK(r_, tuttiCommCount(in.comm, &in.n));
    }
    support::Case c = case_of(draw, r_.n);
    c.root %= in.n;
    in.failures = 0;
    support::run_case(in, c);
    r_.failures += in.failures;
    operations_++;
  }
}

// A set is a communicator for each rank: of its colour, or of all again with settings of its own.
void Member::split(Draw &draw) {
  if (sets_.size() == kMostSets) end_sets(kMostSets - 1);
  const int colours = draw.from(1, 3);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  const bool own = draw.one_in(2), reversed = draw.one_in(2);
  if (own) {
    static constexpr const char *kAlgos[] = {"ring", "^direct", "tree,ring,direct", "direct,ring"};
    config.algo = kAlgos[draw.below(std::size(kAlgos))];
    config.maxCTAs = draw.from(1, 4);
    config.memoryCapBytes = (16 + draw.below(64)) << 20;
  }
  tuttiComm_t child = nullptr;
  const int key = reversed ? r_.n - r_.rank : r_.rank;
  if (!EXPECT_OK(r_, tuttiCommSplit(r_.comm, r_.rank % colours, key, &child, own ? &config : nullptr))) return;
  sets_.push_back(child);
}

void Member::end_sets(size_t keep) {
  while (sets_.size() > keep) {
    EXPECT_OK(r_, tuttiCommDestroy(sets_.back()));
    sets_.pop_back();
  }
}

// The others of its set hear of it in an operation.
void Member::abort_set(int who) {
  if (sets_.empty()) return;
  const tuttiComm_t set = sets_.back();
  sets_.pop_back();
  int n = 0;
  EXPECT_OK(r_, tuttiCommCount(set, &n));
  int mine = r_.rank == who, any = 0; // is the one who does it in this rank's set?
  EXPECT_OK(r_, tuttiAllReduce(&mine, &any, 1, tuttiInt32, tuttiMax, set, nullptr));
  EXPECT_OK(r_, tuttiCommSynchronize(set));
  EXPECT_OK(r_, sum(100)); // all have heard it
  if (any && !mine && n > 1) {
    tuttiResult_t e = tuttiSuccess;
    for (int64_t x = 1; e == tuttiSuccess; x++) {
      e = tuttiAllReduce(&x, &x, 1, tuttiInt64, tuttiMax, set, nullptr);
      if (e == tuttiSuccess) e = tuttiCommSynchronize(set);
    }
    EXPECT(r_, e == tuttiRemoteError);
  }
  EXPECT_OK(r_, tuttiCommAbort(set));
}

tuttiResult_t Member::sum(size_t count) {
  std::vector<int64_t> x(count);
  round_++;
  for (size_t i = 0; i < count; i++) x[i] = (int64_t{1} << r_.rank) + (static_cast<int64_t>(i) << 20);
  tuttiResult_t e = tuttiAllReduce(x.data(), x.data(), count, tuttiInt64, tuttiSum, r_.comm, nullptr);
  if (e == tuttiSuccess) e = tuttiCommSynchronize(r_.comm);
  if (e != tuttiSuccess) return e;
  for (size_t i = 0; i < count; i++)
    if (!EXPECT(r_, x[i] == (int64_t{1} << r_.n) - 1 + r_.n * (static_cast<int64_t>(i) << 20))) break;
  operations_++;
  return e;
}

// The first one may be it already: a rank can end while others still read what it sent.
void Member::until_error() {
  tuttiResult_t e = tuttiSuccess;
  while (e == tuttiSuccess && r_.failures == 0) e = sum(kSum);
}

void Member::named(int who) {
  const std::string said = tuttiGetLastError(r_.comm), name = "rank " + std::to_string(who);
  if (!EXPECT(r_, said.find(name) != std::string::npos)) std::fprintf(stderr, "rank %d: said: %s\n", r_.rank, said.c_str());
}

void Member::take(tuttiComm_t next, int n) {
  for (const tuttiComm_t set : std::exchange(sets_, {})) EXPECT_OK(r_, tuttiCommAbort(set)); // some have failed with it
  EXPECT_OK(r_, tuttiCommAbort(std::exchange(r_.comm, next)));
  if (!EXPECT(r_, next != nullptr)) return;
  EXPECT_OK(r_, tuttiCommUserRank(r_.comm, &r_.rank));
  EXPECT_OK(r_, tuttiCommCount(r_.comm, &r_.n));
  if (EXPECT(r_, r_.n == n)) EXPECT_OK(r_, sum(1000));
}

void Member::revoke(int who) {
  if (r_.rank == who) {
    EXPECT_OK(r_, sum(kSum));
    EXPECT_OK(r_, tuttiCommRevoke(r_.comm, TUTTI_REVOKE_DEFAULT));
  }
  until_error();
  named(who);
  tuttiComm_t next = nullptr;
  EXPECT_OK(r_, tuttiCommShrink(r_.comm, nullptr, 0, &next, nullptr, TUTTI_SHRINK_DEFAULT));
  take(next, r_.n);
}

void Member::death(Draw &draw, int who) {
  const auto after = std::chrono::microseconds(draw.below(4000)); // anywhere in what follows
  const bool listed = draw.one_in(3);
  if (r_.rank == who) {
    EXPECT_OK(r_, sum(kSum));
    say("did " + std::to_string(operations_));
    say("dies");
    std::thread([after] {
      std::this_thread::sleep_for(after);
      raise(SIGKILL);
    }).detach();
  }
  until_error();
  if (r_.rank == who) std::this_thread::sleep_for(std::chrono::seconds(10)); // it hears of nothing
  named(who);
  tuttiComm_t next = nullptr;
  EXPECT_OK(r_, tuttiCommShrink(r_.comm, listed ? &who : nullptr, listed ? 1 : 0, &next, nullptr, TUTTI_SHRINK_DEFAULT));
  take(next, r_.n - 1);
}

bool Member::leave(int who) {
  EXPECT_OK(r_, sum(100)); // all are out of what was before
  if (r_.rank == who) {
    for (const tuttiComm_t set : std::exchange(sets_, {})) EXPECT_OK(r_, tuttiCommAbort(set));
    tuttiResult_t state = tuttiSuccess; // until the others have gone on
    while (state == tuttiSuccess && EXPECT_OK(r_, tuttiCommGetAsyncError(r_.comm, &state)))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_OK(r_, tuttiCommAbort(std::exchange(r_.comm, nullptr)));
    return false;
  }
  tuttiComm_t next = nullptr;
  if (EXPECT_OK(r_, tuttiCommShrink(r_.comm, &who, 1, &next, nullptr, TUTTI_SHRINK_DEFAULT))) take(next, r_.n - 1);
  return true;
}

std::string Member::id_file(uint64_t step) const {
  return s_.folder + "/id-" + std::to_string(s_.job) + "-" + std::to_string(step);
}

void Member::spawn(uint64_t step) const {
  const auto n = [](auto v) { return std::to_string(v); };
  std::vector<std::string> words = {"soak",      "--member",    "--seed",    n(s_.seed), "--job",  n(s_.job), "--first",
                                    n(step + 1), "--steps",     n(s_.steps), "--rank",   n(r_.n),  "--ranks", n(r_.n + 1),
                                    "--id",      id_file(step), "--folder",  s_.folder,  "--grown"};
  std::vector<char *> argv;
  for (auto &w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0) say("failed: cannot start a process");
}

void Member::grow(uint64_t step) {
  tuttiUniqueId id{};
  if (r_.rank == 0) {
    EXPECT_OK(r_, tuttiCommGetUniqueId(r_.comm, &id));
    EXPECT(r_, write_id(id_file(step), id));
    say("grows");
    spawn(step);
  }
  tuttiComm_t next = nullptr;
  if (EXPECT_OK(r_, tuttiCommGrow(r_.comm, r_.n + 1, r_.rank == 0 ? &id : nullptr, -1, &next, nullptr))) {
    // The old one still works.
    EXPECT_OK(r_, sum(1000));
    end_sets(0);
    EXPECT_OK(r_, tuttiCommDestroy(std::exchange(r_.comm, next)));
    r_.n++;
    EXPECT_OK(r_, sum(1000));
  }
}

void Member::restart(uint64_t step) {
  end_sets(0);
  EXPECT_OK(r_, tuttiCommFinalize(r_.comm));
  EXPECT_OK(r_, tuttiCommDestroy(std::exchange(r_.comm, nullptr)));
  look_for_leaks(); // before there is an id, by which the others would come
  s_.rank = r_.rank, s_.n = r_.n, s_.id = id_file(step), s_.grown = false;
  if (come()) EXPECT_OK(r_, sum(1000));
}

// Without any communicator: no more than at the first time. What ended last may be on its way out.
void Member::look_for_leaks() {
  const bool first = left_.fds < 0;
  if (first) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; !first && i < 300 && (support::open_fds() > left_.fds || support::live_threads() > left_.threads); i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Left now{support::open_fds(), support::live_threads(), mallinfo2().uordblks};
  if (first) {
    left_ = now;
    return;
  }
  if (now.fds > left_.fds)
    for (const auto &f : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      std::fprintf(stderr, "rank %d: descriptor %s: %s\n", r_.rank, f.path().filename().c_str(),
                   std::filesystem::read_symlink(f, gone).c_str());
    }
  if (!EXPECT(r_, now.fds <= left_.fds) || !EXPECT(r_, now.threads <= left_.threads) ||
      !EXPECT(r_, now.heap < left_.heap + kHeapGrowth))
    std::fprintf(stderr, "rank %d: %d descriptors, %d threads, %zu bytes; at first %d, %d, %zu\n", r_.rank, now.fds,
                 now.threads, now.heap, left_.fds, left_.threads, left_.heap);
  say("leaks looked at");
}

} // namespace soak
