// Jobs of processes whose control connections are encrypted, and such as disagree about it.
#include "../../support/wiretap.h"
#include "processes.h"

using namespace help;

namespace {

constexpr const char *kWord = "a word that goes from rank to rank and that nobody else may read";

void talk(Bootstrap &b, const Say &say) {
  auto all = b.allgather(bytes(kWord), soon(), "t");
  if (!all.ok()) return say(line(all));
  const int to = (b.rank() + 2) % b.nranks(), from = (b.rank() + b.nranks() - 2) % b.nranks();
  if (Status s = b.send(to, make_tag(MsgKind::user, 1), bytes(kWord)); !s.ok()) return say(line(s));
  auto m = b.recv(from, make_tag(MsgKind::user, 1), soon(), "t");
  if (!m.ok()) return say(line(m));
  if (text(m.value().data) != kWord || text(all.value().back()) != kWord) return say("wrong word");
  if (Status s = b.barrier(soon(), "end"); !s.ok()) return say(line(s));
  b.expect_close();
  say("done");
}

// A rank's process in a job whose root is in this one.
Child rank(const tuttiUniqueId &id, int n, int r, Environment environment) {
  return spawn([=](const Say &say) {
    auto c = Config::from("", "t", environment);
    auto b = Bootstrap::join(id, n, r, c.value(), Deadline::in(20s));
    if (!b.ok()) return say("join: " + line(b));
    talk(*b.value(), say);
  });
}

} // namespace

TEST_CASE("nothing that encrypted ranks tell each other can be read on the way") {
  // In a process of its own: it stays in a network namespace where no other test is.
  Child watched = spawn([](const Say &say) {
    if (!support::enter_own_network()) return say("skipped");
    for (const char *security : {"authenticated", "encrypted"}) {
      support::Wiretap tap(kWord);
      if (!tap.works()) return say("skipped");
      const Environment environment{{"TUTTI_SECURITY", security}, {"TUTTI_SOCKET_IFNAME", "lo"}};
      auto id = create_job_id(*config(environment));
      if (!id.ok()) return say(line(id));
      std::vector<Child> ranks;
      for (int r = 0; r < 4; r++) {
        Environment own = environment;
        own["TUTTI_HOSTID"] = "h" + std::to_string(r);
        ranks.push_back(rank(id.value(), 4, r, own));
      }
      for (Child &c : ranks)
        if (const std::string s = c.read_line(); s != "done") return say(s);
      for (Child &c : ranks) reap(c);
      release_id(id.value());
      tap.stop();
      say(tap.missed() ? "missed some" : tap.packets() < 20 ? "nothing was sent" : tap.found() ? "seen" : "hidden");
    }
  });
  const std::string first = watched.read_line();
  if (first == "skipped") {
    MESSAGE("skipped: no network namespace or no packet socket can be had here");
  } else {
    CHECK(first == "seen");
    CHECK(watched.read_line() == "hidden");
  }
  CHECK(reap(watched) == 0);
}

TEST_CASE("ranks that disagree about core.security all hear both values") {
  for (const bool same_host : {true, false})
    for (const int odd : {0, 2}) {
      CAPTURE(same_host);
      CAPTURE(odd);
      auto id = create_job_id(*config());
      REQUIRE(id.ok());
      std::vector<Child> ranks;
      for (int r = 0; r < 3; r++) {
        Environment e{{"TUTTI_SECURITY", r == odd ? "encrypted" : "authenticated"}};
        if (!same_host) e["TUTTI_HOSTID"] = "h" + std::to_string(r);
        ranks.push_back(rank(id.value(), 3, r, e));
      }
      for (Child &c : ranks) {
        const std::string s = c.read_line();
        CAPTURE(s);
        CHECK(s.find("\"encrypted\"") != std::string::npos);
        CHECK(s.find("\"authenticated\"") != std::string::npos);
      }
      for (Child &c : ranks) reap(c);
      release_id(id.value());
    }
}
