// Links that go down: TCP tells nothing of it, and still everybody hears of it in time. Hosts are network namespaces.
#include "members.h"
#include "work.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

using namespace collnet;

namespace {

// Two hosts and the link between them; this process is on the first one for as long as they are there.
class Hosts {
public:
  Hosts() : id_("tutti-" + std::to_string(::getpid())), before_(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) {
    made_ = ip("netns add " + id_ + "-a") && ip("netns add " + id_ + "-b") &&
            ip("-n " + id_ + "-a link add veth0 type veth peer name veth0 netns " + id_ + "-b");
    for (const char *host : {"a", "b"})
      made_ = made_ && ip("-n " + id_ + "-" + host + " addr add 10.79.0." + (*host == 'a' ? "1" : "2") + "/24 dev veth0") &&
              ip("-n " + id_ + "-" + host + " link set lo up") && ip("-n " + id_ + "-" + host + " link set veth0 up");
    made_ = made_ && enter("a");
  }
  ~Hosts() {
    if (before_ >= 0) {
      (void)::setns(before_, CLONE_NEWNET);
      ::close(before_);
    }
    for (const char *host : {"a", "b"}) (void)ip("netns del " + id_ + "-" + host);
  }
  Hosts(const Hosts &) = delete;
  bool made() const { return made_; }
  bool enter(const std::string &host) const {
    const int fd = ::open(("/run/netns/" + id_ + "-" + host).c_str(), O_RDONLY | O_CLOEXEC);
    const bool there = fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0) ::close(fd);
    return there;
  }
  bool link(const std::string &host, bool up) const {
    return ip("-n " + id_ + "-" + host + " link set veth0 " + (up ? "up" : "down"));
  }

private:
  static bool ip(const std::string &args) { return std::system(("ip " + args + " 2>/dev/null").c_str()) == 0; }
  const std::string id_;
  const int before_;
  bool made_ = false;
};

// A group whose members `far` and later are on the other host; what everybody has heard after its link went down.
std::vector<End> cut(const Hosts &hosts, const Folder &folder, const Daemon &daemon, int n, int far, const std::string &down) {
  Run run(n, [&](Member &m) {
    if (m.rank >= far) check(hosts.enter("b"), "no other host");
    auto options = options_for(folder, {daemon.address()});
    options["silence"] = "\"1s\"";
    check(m.open(options), m.text);
    check(m.join(1, 10'000, 20'000) == TUTTI_OK, m.text);
    check(m.meet(), "meet");
    work(m);
  });
  REQUIRE(run.arrived(1));
  REQUIRE(hosts.link(down, false));
  std::vector<End> ends = run.wait();
  happened();
  CHECK(empty_again(daemon));
  REQUIRE(hosts.link(down, true));
  return ends;
}

void heard_of(const End &end, uint32_t reason, int member, const std::string &words) {
  const Heard h = heard(end);
  INFO(end.said);
  CHECK(end.status == 0);
  CHECK(h.reason == reason);
  CHECK(h.member == member);
  CHECK(h.ms < 8000); // a loaded machine
  known_after(h.ms);
  CHECK(h.text.find(words) != std::string::npos);
}

const char *const silent = "[timeouts]\nsilence = \"1s\"\n";

} // namespace

TEST_CASE("a member whose link goes down is named to the others, and learns itself that the daemon is out of reach") {
  Hosts hosts;
  if (!hosts.made()) {
    MESSAGE("skipped: cannot make network namespaces");
    return;
  }
  Folder folder;
  Daemon daemon(folder, "aggd", silent, nullptr, "", "10.79.0.1");
  for (int i = 0; i < repetitions(); i++) {
    const auto ends = cut(hosts, folder, daemon, 3, 2, "b");
    for (const size_t m : {0u, 1u}) heard_of(ends[m], TUTTI_COLLNET_MEMBER_LOST, 2, "the host of member 2 (10.79.0.2:");
    heard_of(ends[2], TUTTI_COLLNET_AGGREGATOR_LOST, -1, "10.79.0.1:");
    CHECK(ends[2].said.find("answers nothing for 1000 ms") != std::string::npos);
  }
}

TEST_CASE("a member whose link goes down is named by what happened while nobody says anything to anybody") {
  Hosts hosts;
  if (!hosts.made()) {
    MESSAGE("skipped: cannot make network namespaces");
    return;
  }
  Folder folder;
  Daemon daemon(folder, "aggd", "[timeouts]\nsilence = \"4s\"\n", nullptr, "", "10.79.0.1");
  Run run(2, [&](Member &m) {
    if (m.rank == 1) check(hosts.enter("b"), "no other host");
    auto options = options_for(folder, {daemon.address()});
    options["silence"] = "\"4s\"";
    check(m.open(options), m.text);
    check(m.join(1, 10'000, 60'000) == TUTTI_OK, m.text);
    check(m.meet(), "meet");
    const auto begin = Clock::now();
    tutti_collnet_completion none[4];
    while (m.why.reason == 0 && Clock::now() - begin < std::chrono::seconds(30)) {
      m.api().progress(m.ctx(), none, 4);
      m.why.struct_size = sizeof m.why;
      m.api().group_why(m.group(), &m.why);
    }
    const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count();
    m.note(std::to_string(m.why.reason) + " " + std::to_string(m.why.member) + " " + std::to_string(ms) + " " + m.why.text);
  });
  REQUIRE(run.arrived(1));
  REQUIRE(hosts.link("b", false));
  const std::vector<End> ends = run.wait();
  REQUIRE(hosts.link("b", true));
  for (const size_t m : {0u, 1u}) {
    INFO(ends[m].said);
    CHECK(ends[m].status == 0);
    const Heard h = heard(ends[m]);
    CHECK(h.reason == (m == 0 ? TUTTI_COLLNET_MEMBER_LOST : TUTTI_COLLNET_AGGREGATOR_LOST));
    CHECK(h.ms < 12'000);
    CHECK(h.text.find(m == 0 ? "the host of member 1 (10.79.0.2:" : "10.79.0.1:") != std::string::npos);
    CHECK(h.text.find("answers nothing for 4000 ms") != std::string::npos);
  }
}

TEST_CASE("a daemon whose link goes down is named to all") {
  Hosts hosts;
  if (!hosts.made()) {
    MESSAGE("skipped: cannot make network namespaces");
    return;
  }
  Folder folder;
  Daemon daemon(folder, "aggd", silent, nullptr, "", "10.79.0.1");
  for (int i = 0; i < repetitions(); i++)
    for (const End &e : cut(hosts, folder, daemon, 3, 0, "a")) {
      heard_of(e, TUTTI_COLLNET_AGGREGATOR_LOST, -1, "10.79.0.1:");
      CHECK(e.said.find("answers nothing for 1000 ms") != std::string::npos);
    }
}
