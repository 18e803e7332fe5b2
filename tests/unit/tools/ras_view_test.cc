// What `tutti ras` makes of the answers of a job: made-up looks, so that every verdict has its own.
#include "tools/ras_look.h"
#include "tools/ras_view.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tutti;
using namespace tutti::tools::ras_live;

namespace {

constexpr int64_t kSecond = 1'000'000'000, kNow = 1000 * kSecond;

OperationState all_reduce(uint64_t number, int64_t called) {
  OperationState o;
  o.seq = o.call.number = number;
  o.call.dtype = TUTTI_DT_FLOAT32;
  o.call.count = 64;
  o.text = describe(o.call);
  o.enqueued_ns = o.started_ns = called;
  return o;
}

// A job of one rank a process, `per_host` of them on each host.
struct Job {
  int nranks = 4, per_host = 4;
  Snapshot s;
  explicit Job(int n, int hosted = 1 << 20) : nranks(n), per_host(hosted) {
    s.at_ns = kNow;
    for (int r = 0; r < n; r++) add(r);
  }
  static uint64_t process(int rank) { return 100 + static_cast<uint64_t>(rank); }
  std::string host(int rank) const { return fmt::format("n{}", rank / per_host); }
  void add(int rank) {
    ras::ProcessReport p;
    p.process = process(rank);
    p.pid = 1000 + rank;
    p.host = host(rank);
    p.version = "0.1.0";
    p.now_ns = kNow;
    p.started_ns = kNow - 60 * kSecond;
    ras::CommReport c;
    c.flight.who = {0xab, 0xab, "world", rank, nranks, p.host, p.pid, p.version};
    c.flight.written_ns = c.flight.record.state.now_ns = kNow;
    p.comms.push_back(c);
    s.processes[p.process] = p;
  }
  ras::CommReport &comm(int rank) { return s.processes.at(process(rank)).comms.front(); }
  EngineState &state(int rank) { return comm(rank).flight.record.state; }
  void idle(int rank, uint64_t completed) {
    EngineState &e = state(rank);
    e.enqueued = e.started = e.completed = completed;
    e.doing = EngineState::Doing::idle;
    if (!completed) return;
    e.last = all_reduce(completed, kNow - 20 * kSecond);
    e.last->completed_ns = kNow - 10 * kSecond;
    comm(rank).flight.record.operations = {*e.last};
  }
  void wait(int rank, uint64_t number, std::vector<int> peers, int64_t seconds) {
    EngineState &e = state(rank);
    e.enqueued = e.started = number;
    e.completed = number - 1;
    e.doing = EngineState::Doing::waiting;
    e.oldest = all_reduce(number, kNow - seconds * kSecond);
    for (const int peer : peers) e.waits.push_back({peer, true, 0, -1, kNow - seconds * kSecond});
    comm(rank).flight.record.operations.push_back(*e.oldest);
  }
  void silence(int rank, ras::Look::Seen seen, const std::string &why) {
    s.processes.erase(process(rank));
    ras::Silent q;
    q.process = process(rank);
    q.pid = 1000 + rank;
    q.host = host(rank);
    q.why = why;
    q.look.seen = seen;
    q.look.pid = q.pid;
    q.heard_ns = kNow - 7 * kSecond;
    q.places = {{0xab, rank}};
    s.silent[q.process] = q;
  }
  View view(const Snapshot *before = nullptr, ViewOptions o = {}) const { return make_view(before, s, o); }
};

const CommView &only(const View &v) {
  REQUIRE(v.jobs.size() == 1);
  REQUIRE(v.jobs.front().comms.size() == 1);
  return v.jobs.front().comms.front();
}

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a rank that never called is the culprit once the others have waited long enough") {
  Job j(4);
  for (const int r : {0, 1, 3}) j.wait(r, 8, {2}, 5);
  j.idle(2, 7);
  const View v = j.view();
  CHECK(only(v).verdict == Verdict::stalled);
  CHECK(only(v).kind == "absent");
  CHECK(only(v).culprits == std::vector<int>{2});
  CHECK(has(only(v).text, "rank 2 never called all_reduce #8 (64 float sum) that ranks 0, 1, 3 wait in since 5.0 s"));
  CHECK(only(v).oldest_age_ns == 5 * kSecond);
  CHECK(only(j.view(nullptr, {.stall_ns = 6 * kSecond})).verdict == Verdict::running);
}

TEST_CASE("what moves between two looks is not stalled, however long somebody has waited") {
  Job j(2);
  j.wait(0, 8, {1}, 5);
  j.idle(1, 7);
  Snapshot before = j.s;
  before.at_ns -= kSecond;
  CHECK(only(j.view(&before)).verdict == Verdict::stalled);
  before.processes.at(Job::process(1)).comms[0].flight.record.state.completed = 5;
  const View v = j.view(&before);
  CHECK(only(v).verdict == Verdict::running);
  CHECK(only(v).operations == doctest::Approx(2));
}

TEST_CASE("a stopped process is to blame after one second already, at the end of a chain of waits") {
  Job j(4, 2);
  j.wait(0, 8, {1}, 2);
  j.wait(1, 8, {3}, 2);
  j.wait(2, 8, {3}, 2);
  j.silence(3, ras::Look::Seen::stopped, "is stopped, by a signal or a debugger");
  const View v = j.view();
  CHECK(only(v).verdict == Verdict::stalled);
  CHECK(only(v).culprits == std::vector<int>{3});
  CHECK(has(only(v).text,
            "rank 3 (pid 1003 on n1) is stopped, by a signal or a debugger, while ranks 0-2 wait for it in all_reduce #8"));
  const std::string text = view_text(v, {});
  CHECK(has(text, "host n1: pid 1003: is stopped, by a signal or a debugger, last heard of 7.0 s ago"));
  CHECK(has(text, "2 hosts"));
}

TEST_CASE("a process that is silent but not stopped gets the ordinary patience") {
  Job j(2);
  j.wait(0, 8, {1}, 2);
  j.silence(1, ras::Look::Seen::running, "no answer within 2.0 s");
  CHECK(only(j.view()).verdict == Verdict::running);
  Job k(2);
  k.wait(0, 8, {1}, 4);
  k.silence(1, ras::Look::Seen::running, "no answer within 2.0 s");
  CHECK(only(k.view()).verdict == Verdict::stalled);
  CHECK(has(only(k.view()).text, "no answer within 2.0 s"));
}

TEST_CASE("idle, failed and joining communicators are told apart, and the error is that of who found out itself") {
  Job idle(2);
  idle.idle(0, 3);
  idle.idle(1, 3);
  CHECK(only(idle.view()).verdict == Verdict::idle);
  Job failed(2);
  Error heard;
  heard.code = Code::remote;
  heard.message = "rank 1 failed: it heard";
  Error own;
  own.code = Code::timeout;
  own.message = "too late";
  own.peer = 1;
  failed.state(0).error = Status(heard);
  failed.state(1).error = Status(own);
  CHECK(only(failed.view()).verdict == Verdict::failed);
  CHECK(only(failed.view()).text == "too late");
  Job joining(2);
  joining.comm(0).joining = "rank 1 has not connected";
  joining.silence(1, ras::Look::Seen::gone, "has ended");
  CHECK(only(joining.view()).verdict == Verdict::setup);
  CHECK(has(only(joining.view()).text, "rank 1 has not connected"));
}

TEST_CASE("communicators that share a process are one job, the worst of them first; others are another") {
  Job j(4);
  for (int r = 0; r < 4; r++) j.idle(r, 1);
  ras::CommReport sub;
  sub.flight.who = {0xcd, 0xab, "rows", 0, 2, "n0", 1001, "0.1.0"};
  sub.flight.written_ns = kNow;
  sub.flight.record.state.error = tutti::fail(Code::timeout, "late");
  j.s.processes.at(Job::process(1)).comms.push_back(sub);
  ras::ProcessReport other;
  other.process = 7;
  other.pid = 7;
  other.host = "n0";
  other.version = "0.2.0";
  ras::CommReport alone;
  alone.flight.who = {0xef, 0xef, "", 0, 1, "n0", 7, "0.2.0"};
  other.comms.push_back(alone);
  j.s.processes[7] = other;
  const View v = j.view();
  REQUIRE(v.jobs.size() == 2);
  const JobView &big = v.jobs[0].nranks == 4 ? v.jobs[0] : v.jobs[1];
  REQUIRE(big.comms.size() == 2);
  CHECK(big.id == 0xab);
  CHECK(big.comms[0].name == "rows");
  CHECK(big.comms[0].missing == std::vector<int>{1});
  CHECK(j.view(nullptr, {.job = "00000000000000ef"}).jobs.size() == 1);
  CHECK(j.view(nullptr, {.pid = 7}).jobs.size() == 1);
  CHECK(j.view(nullptr, {.comm = "rows"}).jobs.front().comms.size() == 1);
  CHECK(j.view(nullptr, {.comm = "nosuch"}).jobs.empty());
}

TEST_CASE("hundreds of ranks fit a terminal: ranges instead of lists, no line wider than asked") {
  Job j(256, 64);
  for (int r = 0; r < 256; r++)
    if (r == 77)
      j.idle(r, 7);
    else
      j.wait(r, 8, {77}, 40);
  const std::string text = view_text(j.view(), {});
  CHECK(has(text, "ranks 0-76, 78-255: in all_reduce #8 (64 float sum), waits for rank 77"));
  CHECK(has(text, "rank 77: idle after all_reduce #7 (64 float sum)"));
  CHECK(has(text, "host n3: pids 1192-1255: answering"));
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); lines++) {
    const size_t end = text.find('\n', at);
    CHECK(end - at <= 100);
    at = end + 1;
  }
  CHECK(lines < 20);
}

TEST_CASE("names of other processes cannot steer the terminal") {
  Job j(1);
  j.comm(0).flight.who.name = "x\x1b[2J\n";
  j.s.processes.begin()->second.host = "\x1b]0;h\a";
  const std::string text = view_text(j.view(), {});
  CHECK_FALSE(has(text, "\x1b"));
  CHECK_FALSE(has(text, "\a"));
}

TEST_CASE("the JSON has every rank with what is known of it") {
  Job j(3);
  j.wait(0, 8, {2}, 5);
  j.idle(1, 8);
  j.state(0).links = {{1, 0, true, 0, LinkClass::shm, "ll", 4, 400, 0, 0}, {2, 0, true, 0, LinkClass::net, "ll", 4, 400, 0, 0}};
  j.comm(0).ways[2] = "net socket eth0";
  j.silence(2, ras::Look::Seen::gone, "has ended");
  const auto json = nlohmann::json::parse(view_json(j.view(), -1));
  CHECK(json["format"] == "tutti.ras/1");
  const auto &c = json["jobs"][0]["communicators"][0];
  CHECK(c["missing"] == nlohmann::json::array({2}));
  CHECK(c["verdict"]["state"] == "STALLED");
  CHECK(c["ranks"].size() == 3);
  CHECK(c["ranks"][0]["waits_for"][0]["rank"] == 2);
  CHECK(c["ranks"][0]["links"][0]["state"] == "connected");
  CHECK(c["ranks"][0]["links"][1]["state"] == "lost");
  CHECK(c["ranks"][0]["links"][1]["way"] == "net socket eth0");
  CHECK(c["ranks"][2]["answered"] == false);
  CHECK(json["jobs"][0]["processes"].size() == 3);
}

TEST_CASE("processes that use the library are found by their listeners alone") {
  const std::string text = "Num       RefCount Protocol Flags    Type St Inode Path\n"
                           "0000000000000000: 00000002 00000000 00010000 0001 01 12345 @tutti-00000000000000ab\n"
                           "0000000000000000: 00000003 00000000 00000000 0001 03 12346 @tutti-00000000000000cd\n"
                           "0000000000000000: 00000002 00000000 00010000 0001 01 12347 @tutti-job-00000000000000ef\n"
                           "0000000000000000: 00000002 00000000 00010000 0001 01 12348 /run/x @tutti-0000000000000012\n"
                           "0000000000000000: 00000002 00000000 00010000 0001 01 12349 @tutti-00000000000000a\n"
                           "0000000000000000: 00000002 00000000 00010000 0001 01 12350\n\n @tutti-\n"
                           "0000000000000000: 00000002 00000000 00010000 0001 01 12351 @tutti-00000000000000fe";
  CHECK(listeners(text) == std::vector<uint64_t>{0x12, 0xab, 0xfe});
  CHECK(listeners("").empty());
}

TEST_CASE("rates are short") {
  CHECK(rate_text(0, false) == "0/s");
  CHECK(rate_text(25'300, false) == "25.3 k/s");
  CHECK(rate_text(1.65e9, true) == "1.65 GB/s");
}
