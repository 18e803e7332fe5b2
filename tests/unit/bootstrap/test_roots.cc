// Several roots for one communicator: shares of ranks, agreement, and what is said when ranks or roots are missing.
#include "bootstrap/crypto.h"
#include "processes.h"

using namespace help;
using Ids = std::vector<tuttiUniqueId>;

namespace {

// Roots in processes of their own, which are no ranks.
class Roots {
public:
  explicit Roots(size_t n) {
    for (size_t i = 0; i < n; i++) {
      processes_.push_back(spawn([](const Say &say) {
        const auto id = create_job_id(*config());
        if (!id.ok()) return say(line(id));
        std::string hex;
        for (const char c : id->internal) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
        say(hex);
        pause();
      }));
      const std::string hex = processes_.back().read_line();
      tuttiUniqueId id;
      REQUIRE(hex.size() == 2 * sizeof id.internal);
      for (size_t b = 0; b < sizeof id.internal; b++)
        id.internal[b] = static_cast<char>(std::stoi(hex.substr(2 * b, 2), nullptr, 16));
      ids.push_back(id);
    }
  }
  ~Roots() {
    for (size_t i = 0; i < processes_.size(); i++) end(i);
  }
  void end(size_t i) {
    if (processes_[i].pid < 0) return;
    kill(processes_[i].pid, SIGKILL);
    reap(processes_[i]);
  }
  pid_t pid(size_t i) const { return processes_[i].pid; }
  Ids ids;

private:
  std::vector<Child> processes_;
};

Child rank_of(const Ids &ids, int nranks, int rank, std::chrono::milliseconds limit = 20s,
              const Environment &environment = {}) {
  return spawn([=](const Say &say) {
    const auto c = config(environment);
    auto b = Bootstrap::join(ids, nranks, rank, c, Deadline::in(limit));
    if (!b.ok()) return say(line(b));
    const auto all = b.value()->allgather(bytes(std::to_string(rank)), soon(), "t");
    if (!all.ok()) return say(line(all));
    for (int r = 0; r < nranks; r++)
      if (text((*all)[static_cast<size_t>(r)]) != std::to_string(r)) return say("wrong pieces");
    b.value()->expect_close();
    say("done");
  });
}

// What those ranks say that are there.
std::map<int, std::string> job(const Ids &ids, int nranks, const std::vector<int> &here, std::chrono::milliseconds limit) {
  std::map<int, Child> ranks;
  for (const int r : here) ranks[r] = rank_of(ids, nranks, r, limit);
  std::map<int, std::string> said;
  for (auto &[r, c] : ranks) said[r] = c.read_line();
  for (auto &[r, c] : ranks) reap(c);
  return said;
}

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("ranks are shared evenly among roots, in order, and every rank belongs to the root whose range holds it") {
  for (int n = 1; n <= 40; n++)
    for (int roots = 1; roots <= n; roots++) {
      int next = 0, least = n, most = 0;
      for (int i = 0; i < roots; i++) {
        const auto range = boot::ranks_of_root(n, roots, i);
        REQUIRE(range.low == next);
        for (int r = range.low; r < range.high; r++) REQUIRE(boot::root_of_rank(n, roots, r) == i);
        next = range.high;
        least = std::min(least, range.size()), most = std::max(most, range.size());
      }
      REQUIRE((next == n && least >= 1 && most - least <= 1));
    }
}

TEST_CASE("what is sealed opens with the key alone") {
  boot::Secret key{}, other{};
  other[0] = std::byte(1);
  const Bytes box = boot::seal(key, bytes("hidden"));
  CHECK(text(*boot::unseal(key, box)) == "hidden");
  CHECK_FALSE(boot::unseal(other, box));
  for (size_t i = 0; i < box.size(); i++) {
    Bytes changed = box;
    changed[i] ^= std::byte(1);
    CHECK_FALSE(boot::unseal(key, changed));
  }
  CHECK_FALSE(boot::unseal(key, std::span(box).first(10)));
}

TEST_CASE("ranks join through two, three and as many roots as ranks, again and again") {
  for (const auto &run : {std::pair(2, 2), std::pair(7, 3), std::pair(5, 5), std::pair(6, 1)}) {
    const int nranks = run.first, nroots = run.second;
    CAPTURE(nroots);
    std::vector<int> all;
    for (int r = nranks - 1; r >= 0; r--) all.push_back(r);
    const Roots roots(static_cast<size_t>(nroots));
    for (const auto &one : job(roots.ids, nranks, all, 20s))
      CHECK_MESSAGE(one.second == "done", "rank ", one.first, ": ", one.second);
  }
}

TEST_CASE("thread ranks join through roots of their own process") {
  const auto c = config();
  Ids ids;
  for (int i = 0; i < 4; i++) ids.push_back(Bootstrap::create_id(*c).value());
  std::vector<std::unique_ptr<Bootstrap>> world(13);
  each(13, [&](int r) {
    auto b = Bootstrap::join(ids, 13, r, c, soon());
    if (b.ok()) world[static_cast<size_t>(r)] = std::move(b).value();
  });
  for (const auto &b : world) REQUIRE(b);
  CHECK(world[0]->comm_id() == world[12]->comm_id());
  close(world);
}

TEST_CASE("all ranks hear which ranks are missing, at which roots") {
  const Roots roots(3); // ranks 0-2, 3-5, 6-8
  const auto part = job(roots.ids, 9, {0, 1, 3, 4, 5, 6, 8}, 1s);
  const std::string expected = fmt::format("7 of 9 ranks checked in after 1 s; missing: 2 (root 0, pid {} on ", roots.pid(0)),
                    second = fmt::format("7 (root 2, pid {} on ", roots.pid(2));
  for (const auto &one : part)
    CHECK_MESSAGE((has(one.second, expected) && has(one.second, second)), "rank ", one.first, ": ", one.second);
  const Roots again(3), once_more(3); // a root remembers for a minute why a run failed
  const auto none = job(again.ids, 9, {0, 1, 2, 6, 7, 8}, 1s);
  for (const auto &one : none)
    CHECK_MESSAGE(has(one.second, "6 of 9 ranks checked in after 1 s; missing: 3-5 (root 1, of which nothing was heard)"),
                  "rank ", one.first, ": ", one.second);
  const auto only = job(once_more.ids, 9, {4}, 1s); // the first root has heard of it from another root alone
  CHECK_MESSAGE(has(only.at(4), "1 of 9 ranks checked in after 1 s; missing: 0-2 (root 0, "), only.at(4));
}

TEST_CASE("ranks that were given other ids, another order, another number of them or of ranks are named to all") {
  using Change = std::function<Ids(const Ids &)>;
  const auto clash = [&](const Change &change, int nranks, int rank, const std::string &part) {
    const Roots roots(3);
    auto a = rank_of(roots.ids, 6, 0, 5s), b = rank_of(change(roots.ids), nranks, rank, 5s);
    const std::string first = a.read_line(), second = b.read_line();
    reap(a), reap(b);
    CHECK_MESSAGE(has(first, part), first);
    CHECK_MESSAGE(has(second, part), second);
  };
  const Change same = [](const Ids &ids) { return ids; };
  clash([](const Ids &ids) { return Ids{ids[0], ids[2], ids[1]}; }, 6, 2, "other unique ids than");
  clash([](const Ids &ids) { return Ids{ids[0], ids[1]}; }, 6, 5, "unique ids, ");
  clash(same, 7, 6, "was started with");
  clash(same, 6, 0, "rank 0 checked in twice");
}

TEST_CASE("a rank, or a root, that dies while ranks join is named to the ranks of all roots") {
  Roots roots(2); // ranks 0-1, 2-3
  auto first = rank_of(roots.ids, 4, 0), victim = rank_of(roots.ids, 4, 3);
  std::this_thread::sleep_for(300ms); // both have checked in, or the test finds less
  const std::string who = fmt::format("rank 3 (pid {} on ", victim.pid);
  kill(victim.pid, SIGKILL);
  reap(victim);
  const std::string heard = first.read_line();
  CHECK_MESSAGE(has(heard, who), heard);
  reap(first);
  for (const size_t dead : {1, 0}) {
    Roots pair(2);
    auto a = rank_of(pair.ids, 4, 0), b = rank_of(pair.ids, 4, 2);
    std::this_thread::sleep_for(300ms);
    const pid_t gone = pair.pid(dead);
    pair.end(dead);
    for (Child *c : {&a, &b}) {
      const std::string said = c->read_line();
      CHECK_MESSAGE((has(said, fmt::format("pid {} on ", gone)) || has(said, "the process that made the unique id")), said);
      reap(*c);
    }
  }
}

TEST_CASE("ids that do not fit the call are refused at once") {
  const auto c = config();
  const Ids ids = {Bootstrap::create_id(*c).value(), Bootstrap::create_id(*c).value()};
  CHECK(has(line(Bootstrap::join(Ids{}, 2, 0, c, soon())), "0 unique ids for 2 ranks"));
  CHECK(has(line(Bootstrap::join(ids, 1, 0, c, soon())), "2 unique ids for 1 ranks"));
  CHECK(has(line(Bootstrap::join(Ids{ids[0], ids[1], ids[0]}, 4, 0, c, soon())), "unique ids 0 and 2 are of the same root"));
}
