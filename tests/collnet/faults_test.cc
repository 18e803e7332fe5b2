// Members and daemons that die, stop, are late or disagree: everybody else in the group hears of it in time and by name, and
// other groups hear nothing.
#include "members.h"
#include "work.h"
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace collnet;

namespace {

void all_heard(Run &run, int victim, uint32_t reason, int member, int64_t within_ms, const std::string &words) {
  const auto &ends = run.wait();
  happened();
  for (size_t i = 0; i < ends.size(); i++) {
    if (static_cast<int>(i) == victim) continue;
    const Heard h = heard(ends[i]);
    INFO("member " << i << ": " << ends[i].said);
    CHECK(ends[i].status == 0);
    CHECK(h.reason == reason);
    CHECK(h.member == member);
    CHECK(h.ms < within_ms);
    known_after(h.ms);
    CHECK(h.text.find(words) != std::string::npos);
  }
}

// Groups that are made while others break.
void healthy(const Folder &folder, const std::vector<std::string> &servers) {
  Run run(2, [&](Member &m) {
    check(m.open(options_for(folder, servers)), m.text);
    check(m.join(9) == TUTTI_OK, m.text);
    std::vector<int32_t> in(1000, m.rank), out(1000);
    check(m.run(Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, in.data(), out.data(), 4000)) == TUTTI_OK, m.text);
    for (const int32_t v : out) check(v == 1, "wrong sum");
  });
  for (const End &e : run.wait()) {
    INFO(e.said);
    CHECK(e.status == 0);
  }
}

std::function<void(Member &)> worker(const Folder &folder, const std::vector<std::string> &servers, uint32_t progress_ms,
                                     size_t bytes = 256 << 10, const char *window = "\"1MiB\"") {
  return [&folder, servers, progress_ms, bytes, window](Member &m) {
    auto options = options_for(folder, servers);
    options["window"] = window;
    check(m.open(options), m.text);
    check(m.join(1, 10'000, progress_ms) == TUTTI_OK, m.text);
    check(m.meet(), "meet");
    work(m, bytes);
  };
}

} // namespace

TEST_CASE("a member that is killed is named to the others at once") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    Run run(4, worker(folder, {daemon.address()}, 20'000));
    REQUIRE(run.arrived(1));
    run.signal(2, SIGKILL);
    all_heard(run, 2, TUTTI_COLLNET_MEMBER_LOST, 2, 5000, "member 2 ");
    healthy(folder, {daemon.address()});
  }
  CHECK(empty_again(daemon));
}

TEST_CASE("a member that has forked leaves all the same, and hears nothing of a group that it has left") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  Run run(2, [&](Member &m) {
    check(m.open(options_for(folder, {daemon.address()})), m.text);
    check(m.join() == TUTTI_OK, m.text);
    std::vector<float> in(1000, 1.0f), out(1000);
    check(m.run(Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), 4000)) == TUTTI_OK, m.text);
    const pid_t helper = ::fork(); // holds the connection until it is killed, like a process that loads data
    if (helper == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    m.leave();
    const bool gone = empty_again(daemon, milliseconds(3000));
    tutti_collnet_completion none[4];
    for (int i = 0; i < 100; i++) m.api().progress(m.ctx(), none, 4); // what comes now is for nobody
    ::kill(helper, SIGKILL);
    ::waitpid(helper, nullptr, 0);
    check(gone, "the daemon still has the group");
    check(m.meet(), "meet");
  });
  for (const End &e : run.wait()) {
    INFO(e.said);
    CHECK(e.status == 0);
  }
}

TEST_CASE("a member that is stopped is named when it has held the others up for too long") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    Run run(3, worker(folder, {daemon.address()}, 400));
    REQUIRE(run.arrived(1));
    run.signal(1, SIGSTOP);
    CHECK(daemon.becomes([](const auto &s) { return s["groups"].empty(); }));
    run.signal(1, SIGKILL);
    all_heard(run, 1, TUTTI_COLLNET_TIMEOUT, 1, 4000, "member 1");
  }
  CHECK(empty_again(daemon));
}

TEST_CASE("a member that is alive and posts nothing is named, and so is what the others wait for") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    Run run(3, [&](Member &m) {
      check(m.open(options_for(folder, {daemon.address()})), m.text);
      check(m.join(1, 10'000, 300) == TUTTI_OK, m.text);
      if (m.rank != 2) return work(m, 64);
      for (const auto end = Clock::now() + std::chrono::seconds(10); Clock::now() < end && m.why.reason == 0;) {
        tutti_collnet_completion none[4];
        m.api().progress(m.ctx(), none, 4);
        m.why.struct_size = sizeof m.why;
        m.api().group_why(m.group(), &m.why);
      }
      m.note(std::to_string(m.why.reason) + " " + std::to_string(m.why.member) + " 0 " + m.why.text);
    });
    all_heard(run, -1, TUTTI_COLLNET_TIMEOUT, 2, 4000, "member 2 has not posted all_reduce of 64 bytes of float (post 0)");
  }
}

TEST_CASE("a daemon that is killed is named to all, and its successor takes new groups") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  std::string epoch;
  for (int i = 0; i < repetitions(); i++) {
    Run run(3, worker(folder, {daemon.address()}, 20'000));
    REQUIRE(run.arrived(1));
    const std::string before = daemon.status()["epoch"];
    daemon.signal(SIGKILL);
    all_heard(run, -1, TUTTI_COLLNET_AGGREGATOR_LOST, -1, 5000, daemon.address());
    daemon.wait(milliseconds(5000));
    daemon.restart();
    CHECK(daemon.status()["epoch"] != before);
    healthy(folder, {daemon.address()});
  }
}

TEST_CASE("a daemon that is stopped is named when no result has come for too long") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    Run run(2, worker(folder, {daemon.address()}, 300));
    REQUIRE(run.arrived(1));
    daemon.signal(SIGSTOP);
    all_heard(run, -1, TUTTI_COLLNET_AGGREGATOR_LOST, -1, 6000, daemon.address());
    daemon.signal(SIGCONT);
    CHECK(empty_again(daemon));
  }
}

TEST_CASE("one of several daemons that is killed ends the group everywhere, and no member is blamed for having seen it first") {
  Folder folder;
  for (int i = 0; i < 4 * repetitions(); i++) {
    Daemon a(folder, "a" + std::to_string(i)), b(folder, "b" + std::to_string(i));
    Run run(3, worker(folder, {a.address(), b.address()}, 20'000, i % 2 ? 16 << 20 : 256 << 10));
    REQUIRE(run.arrived(1));
    b.signal(SIGKILL);
    all_heard(run, -1, TUTTI_COLLNET_AGGREGATOR_LOST, -1, 5000, b.address());
    CHECK(empty_again(a));
  }
}

TEST_CASE("the member that sees first that a daemon died is not blamed by the others, who learn of both at once") {
  Folder folder;
  for (int i = 0; i < 2 * repetitions(); i++) {
    Daemon a(folder, "a" + std::to_string(i)), b(folder, "b" + std::to_string(i));
    // The long ones, in a small window, are in the middle of a frame; the daemon that lives reads on where nobody will fold.
    Run run(3,
            worker(folder, {a.address(), b.address()}, 20'000, i % 2 ? 16 << 20 : 1 << 20, i % 2 ? "\"64KiB\"" : "\"1MiB\""));
    REQUIRE(run.arrived(1));
    for (const int m : {1, 2}) run.signal(m, SIGSTOP);
    b.signal(SIGKILL);
    // Where the daemon has no room left for member 0, it hears its words only when the others go on.
    (void)a.becomes([](const auto &s) { return !s["totals"]["ended_groups"].empty(); }, milliseconds(500));
    for (const int m : {1, 2}) run.signal(m, SIGCONT);
    all_heard(run, -1, TUTTI_COLLNET_AGGREGATOR_LOST, -1, 5000, b.address() + " ");
    CHECK(empty_again(a));
  }
}

TEST_CASE("in a tree, members below other daemons hear of a member that is killed") {
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "", &root), right(folder, "right", "", &root);
  for (int i = 0; i < repetitions(); i++) {
    Run run(4, [&](Member &m) {
      check(m.open(options_for(folder, {(m.rank < 2 ? left : right).address()})), m.text);
      check(m.join(1, 10'000, 20'000) == TUTTI_OK, m.text);
      check(m.meet(), "meet");
      work(m);
    });
    REQUIRE(run.arrived(1));
    run.signal(0, SIGKILL);
    all_heard(run, 0, TUTTI_COLLNET_MEMBER_LOST, 0, 5000, "member 0 ");
    CHECK(empty_again(root));
    CHECK(empty_again(right));
  }
}

// Members at the daemons of a tree, as `places` says, post once, member m after delays[m] ms or never where that is less than
// 0.
void post_late(const Folder &folder, const std::vector<const Daemon *> &places, const std::vector<int> &delays,
               uint32_t progress_ms, size_t bytes, uint32_t reason, int member, const std::string &words) {
  Run run(static_cast<int>(places.size()), [&](Member &m) {
    const auto me = static_cast<size_t>(m.rank);
    check(m.open(options_for(folder, {places[me]->address()})), m.text);
    check(m.join(1, 10'000, progress_ms) == TUTTI_OK, m.text);
    check(m.meet(), "meet");
    tutti_collnet_completion none[4];
    for (const auto until = Clock::now() + milliseconds(delays[me] < 0 ? 8000 : delays[me]); Clock::now() < until;) {
      m.api().progress(m.ctx(), none, 4);
      m.why.struct_size = sizeof m.why;
      m.api().group_why(m.group(), &m.why);
      if (m.why.reason == 0) continue;
      return m.note(std::to_string(m.why.reason) + " " + std::to_string(m.why.member) + " 0 " + m.why.text);
    }
    work(m, bytes);
  });
  all_heard(run, -1, reason, member, 8000, words);
}

TEST_CASE("in a tree, only members that have not posted are named, whichever daemon's clock runs out first") {
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "", &root), right(folder, "right", "", &root),
      deep(folder, "deep", "", &right);
  for (int i = 0; i < (repetitions() + 4) / 5; i++) {
    // The root's clock starts when member 0 posts; that of the daemon below when member 2 does.
    post_late(folder, {&left, &left, &right, &right}, {0, 0, 1000, -1}, 800, 64, TUTTI_COLLNET_TIMEOUT, 3,
              "member 3 has not posted");
    post_late(folder, {&left, &left, &right, &right}, {0, 0, -1, -1}, 500, 64, TUTTI_COLLNET_TIMEOUT, 2,
              "members 2, 3 have not posted");
    post_late(folder, {&root, &right, &deep, &deep}, {0, 0, 300, -1}, 500, 64, TUTTI_COLLNET_TIMEOUT, 3,
              "member 3 has not posted");
    // More than there is room for on the way up: nobody above is to blame for taking no more.
    post_late(folder, {&left, &left, &right, &right}, {0, 0, 0, -1}, 500, 32 << 20, TUTTI_COLLNET_TIMEOUT, 3,
              "member 3 has not posted");
    post_late(folder, {&left, &left, &right, &right}, {0, 0, -1, -1}, 500, 32 << 20, TUTTI_COLLNET_TIMEOUT, 2,
              "members 2, 3 have not posted");
  }
}

TEST_CASE("in a tree, a member that is stopped and a root that is stopped are named") {
  Folder folder;
  for (int i = 0; i < repetitions(); i++) {
    const std::string n = std::to_string(i);
    Daemon root(folder, "root" + n), left(folder, "left" + n, "", &root), right(folder, "right" + n, "", &root);
    for (const bool top : {false, true}) {
      Run run(4, [&](Member &m) {
        check(m.open(options_for(folder, {(m.rank < 2 ? left : right).address()})), m.text);
        check(m.join(1, 10'000, 400) == TUTTI_OK, m.text);
        check(m.meet(), "meet");
        work(m);
      });
      REQUIRE(run.arrived(1));
      top ? root.signal(SIGSTOP) : run.signal(3, SIGSTOP);
      if (top) {
        all_heard(run, -1, TUTTI_COLLNET_AGGREGATOR_LOST, -1, 6000, root.address());
      } else {
        CHECK(root.becomes([](const auto &s) { return s["groups"].empty(); }));
        run.signal(3, SIGKILL);
        all_heard(run, 3, TUTTI_COLLNET_TIMEOUT, 3, 4000, "member 3 has not posted");
      }
    }
  }
}

TEST_CASE("in a tree, a daemon that is stopped is named, not its members, who may have posted") {
  Folder folder;
  for (int i = 0; i < repetitions(); i++)
    for (const bool lower : {false, true}) {
      CAPTURE(lower);
      const std::string n = std::to_string(i) + (lower ? "l" : "u");
      Daemon root(folder, "root" + n), left(folder, "left" + n, "", &root), right(folder, "right" + n, "", &root),
          deep(folder, "deep" + n, "", &right);
      const std::vector<const Daemon *> places{&left, &left, &deep, &deep};
      Run run(4, [&](Member &m) {
        check(m.open(options_for(folder, {places[static_cast<size_t>(m.rank)]->address()})), m.text);
        check(m.join(1, 10'000, 800) == TUTTI_OK, m.text);
        check(m.meet(), "meet");
        if (m.rank == 0) std::this_thread::sleep_for(milliseconds(300)); // the daemon stops while it has nothing to do
        work(m);
      });
      REQUIRE(run.arrived(1));
      (lower ? deep : right).signal(SIGSTOP);
      const auto &ends = run.wait();
      happened();
      for (size_t m = 0; m < 2; m++) {
        const Heard h = heard(ends[m]);
        INFO(ends[m].said);
        CHECK(ends[m].status == 0);
        CHECK(h.reason == TUTTI_COLLNET_AGGREGATOR_LOST);
        CHECK(h.member == -1);
        CHECK(h.text.find("the daemon at 127.0.0.1:") != std::string::npos);
        CHECK(h.text.find("(members 2, 3) says nothing, while others wait for it") != std::string::npos);
        known_after(h.ms);
      }
      for (size_t m = 2; m < 4; m++) CHECK(heard(ends[m]).reason == TUTTI_COLLNET_AGGREGATOR_LOST);
    }
}

TEST_CASE("in a tree, a daemon that is killed ends the group on all sides") {
  Folder folder;
  for (int i = 0; i < repetitions(); i++) {
    const std::string n = std::to_string(i);
    Daemon root(folder, "root" + n), left(folder, "left" + n, "", &root), right(folder, "right" + n, "", &root);
    const bool top = i % 2 == 1;
    Run run(4, [&](Member &m) {
      check(m.open(options_for(folder, {(m.rank < 2 ? left : right).address()})), m.text);
      check(m.join(1, 10'000, 20'000) == TUTTI_OK, m.text);
      check(m.meet(), "meet");
      work(m);
    });
    REQUIRE(run.arrived(1));
    (top ? root : left).signal(SIGKILL);
    happened();
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
      CHECK(heard(e).reason == TUTTI_COLLNET_AGGREGATOR_LOST);
      CHECK(heard(e).ms < 5000);
      known_after(heard(e).ms);
    }
    CHECK(empty_again(right));
  }
}

TEST_CASE("members that post different things learn whose and which field differs") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  struct {
    uint32_t field;
    const char *words;
    std::function<void(tutti_collnet_op &)> change;
  } const cases[] = {
      {TUTTI_COLLNET_FIELD_BYTES, "differs in the bytes of post 1", [](auto &op) { op.bytes = 512; }},
      {TUTTI_COLLNET_FIELD_DTYPE, "differs in the element type of post 1", [](auto &op) { op.dtype = TUTTI_DT_INT32; }},
      {TUTTI_COLLNET_FIELD_OP, "differs in the reduction of post 1", [](auto &op) { op.op = TUTTI_RED_MAX; }},
      {TUTTI_COLLNET_FIELD_TAG, "differs in the tag of post 1", [](auto &op) { op.tag = 4096; }},
      {TUTTI_COLLNET_FIELD_AVERAGE, "differs in the average of post 1", [](auto &op) { op.flags = TUTTI_COLLNET_AVERAGE; }},
  };
  for (const auto &c : cases) {
    Run run(2, [&](Member &m) {
      check(m.open(options_for(folder, {daemon.address()})), m.text);
      check(m.join() == TUTTI_OK, m.text);
      std::vector<float> in(256), out(256);
      tutti_collnet_op op = Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), 1024);
      check(m.run(op) == TUTTI_OK, m.text);
      if (m.rank == 1) c.change(op);
      check(m.run(op) == TUTTI_ERR_INVALID, "no error");
      m.note(std::to_string(m.why.field) + " " + m.text);
    });
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
      CHECK(std::stoul(e.said) == c.field);
      CHECK(e.said.find(c.words) != std::string::npos);
    }
  }
}

TEST_CASE("a group that is not complete at its deadline names who is missing") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  Run run(4, [&](Member &m) {
    check(m.open(options_for(folder, {daemon.address()})), m.text);
    tutti_collnet_config c{};
    c.struct_size = sizeof c;
    c.deadline_ms = 500;
    if (m.rank == 2) return check(m.announce() == TUTTI_OK, m.text); // and never comes
    const tutti_status s = m.join(c);
    check(s != TUTTI_OK, "a group of three");
    m.note(std::to_string(m.why.reason) + " " + std::to_string(m.why.member) + " 0 " + m.text);
  });
  const auto &ends = run.wait();
  for (const size_t i : {0u, 1u, 3u}) {
    INFO(ends[i].said);
    CHECK(ends[i].status == 0);
    CHECK(heard(ends[i]).reason == TUTTI_COLLNET_TIMEOUT);
    CHECK(heard(ends[i]).member == 2);
    CHECK(heard(ends[i]).text.find("missing: 2") != std::string::npos);
  }
  CHECK(empty_again(daemon));
}

TEST_CASE("servers in another order are refused at once, and others than one's own are named where members do not come") {
  Folder folder;
  Daemon a(folder, "a"), b(folder, "b");
  const auto both = [&](const std::vector<std::string> &first, const std::vector<std::string> &second, auto said) {
    Run run(2, [&](Member &m) {
      check(m.open(options_for(folder, m.rank == 0 ? first : second)), m.text);
      check(m.join(1, 800, 800) != TUTTI_OK, "a group");
      m.note(m.text);
    });
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
      CHECK(e.said.find(said) != std::string::npos);
    }
  };
  both({a.address(), b.address()}, {b.address(), a.address()}, "names the servers of this one in another order");
  both({a.address()}, {b.address()}, "; other servers than here are named by member ");
}

TEST_CASE("parents that lead in a circle are said to") {
  Folder folder;
  Daemon a(folder, "a"), b(folder, "b", "", &a);
  a.signal(SIGTERM);
  REQUIRE(a.wait(milliseconds(5000)) == 0);
  a.below(b);
  a.restart();
  Run run(2, [&](Member &m) {
    check(m.open(options_for(folder, {(m.rank == 0 ? a : b).address()})), m.text);
    check(m.join(1, 5000, 800) != TUTTI_OK, "a group");
    m.note(m.text);
  });
  for (const End &e : run.wait()) {
    INFO(e.said);
    CHECK(e.status == 0);
    CHECK(e.said.find("do parents lead in a circle?") != std::string::npos);
  }
}

TEST_CASE("another key is refused by name, and disturbs nobody") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  const std::string other = folder.key("other", "another key that nobody else has");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Run run(2, [&](Member &m) {
      auto options = options_for(folder, {daemon.address()});
      options["key_file"] = "\"" + other + "\"";
      check(m.open(options), m.text);
      check(m.join() == TUTTI_ERR_DENIED && m.why.reason == TUTTI_COLLNET_AUTH, "status");
      check(m.text.find("another key than key_file \"" + other + "\" (test.toml:") != std::string::npos, m.text);
    });
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
    }
    healthy(folder, {daemon.address()});
  }
}

TEST_CASE("no daemon at an address is said within the time for connecting") {
  Folder folder;
  int port = 0;
  {
    Daemon daemon(folder, "aggd");
    port = daemon.port();
  }
  Run run(1, [&](Member &m) {
    auto options = options_for(folder, {"127.0.0.1:" + std::to_string(port)});
    options["connect_timeout"] = "\"300ms\"";
    check(m.open(options), m.text);
    const auto before = Clock::now();
    check(m.join() == TUTTI_ERR_REMOTE && m.why.reason == TUTTI_COLLNET_UNREACHABLE, "status");
    check(Clock::now() - before < std::chrono::seconds(5), "too late");
    check(m.text.find("Connection refused") != std::string::npos, m.text);
  });
  CHECK(run.wait()[0].said == "");
  CHECK(run.wait()[0].status == 0);
}

TEST_CASE("memory is reserved up to its budget; a group beyond it learns the limit, what is in use and whose it is") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\nmemory = \"512KiB\"\nmemory_per_job = \"512KiB\"\n");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Run run(4, [&](Member &m) {
      auto options = options_for(folder, {daemon.address()});
      options["window"] = "\"64KiB\"";
      check(m.open(options), m.text);
      check(m.join(0xabc) == TUTTI_OK, m.text); // 5 windows of 64 KiB
      tutti_collnet_group *const first = m.group();
      std::vector<float> in(50'000, 1), out(50'000);
      const tutti_collnet_op op = Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), 200'000);
      check(m.run(op) == TUTTI_OK, m.text);
      check(m.join(0xdef) == TUTTI_ERR_NO_MEMORY, "a second group fits");
      check(m.why.reason == TUTTI_COLLNET_NO_RESOURCE && m.why.limit == 512 << 10 && m.why.in_use == 5 * (64 << 10), m.text);
      check(m.text.find("job 0xabc") != std::string::npos, m.text);
      m.leave();
      m.adopt(first);
      check(m.meet(), "meet");
      check(m.run(op) == TUTTI_OK, "the first group was disturbed: " + m.text);
      check(daemon.within(512), "more memory than its limit");
    });
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
    }
    CHECK(empty_again(daemon));
  }
  CHECK(daemon.status()["memory"]["most"] <= 512 << 10);
}

TEST_CASE("a daemon that is told to end lets groups finish, takes no new ones, and then goes") {
  Folder folder;
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Daemon daemon(folder, "aggd" + std::to_string(i));
    Run run(2, [&](Member &m) {
      check(m.open(options_for(folder, {daemon.address()})), m.text);
      check(m.join() == TUTTI_OK, m.text);
      check(m.meet(), "meet");
      std::vector<float> in(1000, 1), out(1000);
      const auto op = Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), 4000);
      for (int k = 0; k < 300; k++) {
        check(m.run(op) == TUTTI_OK, m.text);
        if (m.rank == 0) std::this_thread::sleep_for(milliseconds(1));
      }
    });
    REQUIRE(run.arrived(1));
    daemon.signal(SIGTERM);
    CHECK(daemon.becomes([](const auto &s) { return s["draining"] == true; }));
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
    }
    CHECK(daemon.wait(milliseconds(5000)) == 0);
  }
}

TEST_CASE("a daemon whose time to drain is up ends its groups by name") {
  Folder folder;
  for (int i = 0; i < repetitions(); i++) {
    Daemon daemon(folder, "aggd" + std::to_string(i), "[timeouts]\ndrain = \"100ms\"\n");
    Run run(2, worker(folder, {daemon.address()}, 20'000));
    REQUIRE(run.arrived(1));
    daemon.signal(SIGTERM);
    all_heard(run, -1, TUTTI_COLLNET_AGGREGATOR_LOST, -1, 5000, "shutting down");
    CHECK(daemon.wait(milliseconds(5000)) == 0);
  }
}
