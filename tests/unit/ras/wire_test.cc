// What questions and answers look like on the wire, and what is made of texts of the kernel and of HTTP clients.
#include "ras/desk.h"
#include "ras/http.h"
#include "ras/metrics.h"
#include "ras/neighbours.h"
#include "ras/question.h"
#include "ras/report.h"
#include <doctest/doctest.h>
#include <regex>
#include <set>
#include <unistd.h>

using namespace tutti;
using namespace tutti::ras;

namespace {

ProcessReport sample() {
  ProcessReport r;
  r.process = 0x1234;
  r.pid = 77;
  r.host = "node \"7\"\x1b[2J";
  r.host_id = 0xfeed;
  r.version = "1.2.3";
  r.now_ns = 1000;
  r.started_ns = 10;
  r.cpu_ns = 5;
  r.rss = 4096;
  r.fds = 9;
  r.threads = 3;
  r.addresses = {"10.0.0.1:80"};
  CommReport c;
  c.flight.who = {0xab, 0xcd, "wor\"ld\n\xff", 1, 4, r.host, 77, "1.2.3"};
  c.flight.written_ns = 20'000'000'000;
  EngineState &s = c.flight.record.state;
  s.enqueued = s.started = 3;
  s.completed = 2;
  s.calls[TUTTI_COLL_ALL_REDUCE] = 2;
  s.calls[TUTTI_COLL_BARRIER] = 1;
  s.blocked_ns = 1'500'000'000;
  s.doing = EngineState::Doing::waiting;
  s.waits = {{3, true, 0, -1, 12'000'000'000}};
  s.links = {{3, 0, true, 0, LinkClass::shm, "ll", 10, 1000, 0, 0}, {3, 0, false, 0, LinkClass::net, "simple", 5, 500, 0, 0}};
  OperationState o;
  o.seq = o.call.number = 3;
  o.call.dtype = TUTTI_DT_FLOAT32;
  o.text = describe(o.call);
  o.enqueued_ns = 11'000'000'000;
  c.flight.record.operations.push_back(o);
  c.flight.record.state.oldest = o;
  c.memory = 100;
  c.fds = 2;
  c.ways[3] = "net socket eth0";
  c.left = {2};
  c.restoring[3] = "connection to rank 3 (10.0.0.2) lost 12 s ago, not restored yet: no answer";
  c.set_up_ns = 7;
  r.comms.push_back(c);
  CommReport joining;
  joining.flight.who = {0xef, 0xef, "", 0, 2, r.host, 77, ""};
  joining.joining = "rank 1 has not connected";
  r.comms.push_back(joining);
  r.neighbours.push_back({0x99, {Look::Seen::stopped, 78, -1, 5}});
  ProcessReport::Known k;
  k.contact.process[0] = 0x55;
  k.contact.host = 0xfeed;
  k.contact.pid = 79;
  k.contact.hostname = "n8";
  k.contact.endpoints = {*endpoint("10.0.0.2:81"), *endpoint("[fd00::2]:82")};
  k.under = 0x77;
  k.places = {{0xab, 3}, {0xef, 1}};
  r.more.push_back(k);
  r.notes = {"written"};
  return r;
}

} // namespace

TEST_CASE("a question comes back as it was asked, and anything else than one is refused") {
  Question q;
  q.ask = Ask::collect;
  q.relay = true;
  q.budget_ms = 1234;
  q.known = {1, 2, UINT64_MAX};
  const Bytes data = encode(q);
  const auto back = decode_question(data);
  REQUIRE(back);
  CHECK(back->ask == Ask::collect);
  CHECK(back->relay);
  CHECK(back->budget_ms == 1234);
  CHECK(back->known == q.known);
  for (size_t n = 0; n < data.size(); n++) CHECK_FALSE(decode_question(std::span(data).first(n)));
  Bytes longer = data;
  longer.push_back(std::byte(0));
  CHECK_FALSE(decode_question(longer));
  for (const size_t at : {0, 4, 5, 9, 13}) { // version, ask, relay, budget, count
    Bytes bad = data;
    bad[at] = std::byte(0xff);
    CHECK_FALSE(decode_question(bad));
  }
  q.known.assign(kMostKnown + 5, 1);
  CHECK(encode(q).size() <= kMostQuestionBytes);
  CHECK(decode_question(encode(q))->known.size() == kMostKnown);
}

TEST_CASE("a report comes back as it was, whatever bytes its names have") {
  const ProcessReport r = sample();
  const std::string text = encode(r);
  const auto back = parse_report(text, "test");
  REQUIRE_MESSAGE(back.ok(), (back.ok() ? "" : back.status().error().line()));
  CHECK(encode(*back) == text);
  CHECK(back->comms.size() == 2);
  CHECK(back->comms[0].flight.record.state.calls[TUTTI_COLL_BARRIER] == 1);
  CHECK(back->comms[0].flight.record.state.blocked_ns == 1'500'000'000);
  REQUIRE(back->comms[0].flight.record.state.oldest);
  CHECK(back->comms[1].joining == "rank 1 has not connected");
  CHECK(back->comms[0].restoring == r.comms[0].restoring);
  CHECK(back->neighbours[0].look.seen == Look::Seen::stopped);
  CHECK(back->more[0].contact.endpoints[1].text() == "[fd00::2]:82");
  CHECK(back->more[0].places == r.more[0].places);
  for (size_t n = 0; n < text.size(); n += 7) CHECK_FALSE(parse_report(text.substr(0, n), "part").ok());
}

TEST_CASE("who is silent comes back as it was told") {
  Silent s;
  s.process = 3;
  s.pid = 4;
  s.host_id = 5;
  s.host = "h";
  s.why = "is stopped";
  s.look = {Look::Seen::stopped, 4, 0, 6};
  s.heard_ns = 7;
  s.places = {{0xab, 1}};
  const auto back = parse_silent(encode(s), "test");
  REQUIRE(back.ok());
  CHECK(encode(*back) == encode(s));
  CHECK_FALSE(parse_silent("{}", "test").ok());
  CHECK_FALSE(parse_silent("[", "test").ok());
}

TEST_CASE("the kernel's line about a process is read whatever the process is called") {
  const std::string rest = " T 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 7 0 4242 1000000 25 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
  for (const char *name : {"(python3)", "(a b) (c)", "(R) R 1 2", "()"}) {
    const auto s = parse_stat("77 (" + std::string(name) + ")" + rest);
    REQUIRE(s);
    CHECK(s->state == 'T');
    CHECK(s->threads == 7);
    CHECK(s->start == 4242);
    CHECK(s->cpu_ns == 200 * (1'000'000'000 / ::sysconf(_SC_CLK_TCK)));
    CHECK(s->rss == 25 * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  }
  for (const char *bad : {"", ")", "1 (x", "1 (x) ", "1 (x) S 1 2", "1 (x) SS 1 2 3 4 5 6 7 8 9 10 1 1 0 0 20 0 7 0 4242 1 1"})
    CHECK_FALSE(parse_stat(bad));
  const auto self = read_stat(::getpid());
  REQUIRE(self);
  CHECK(self->start > 0);
  CHECK_FALSE(read_stat(0));
}

TEST_CASE("addresses are numbers with a port, and nothing else") {
  CHECK(endpoint("127.0.0.1:5")->text() == "127.0.0.1:5");
  CHECK(endpoint("[::1]:65535")->text() == "[::1]:65535");
  for (const char *bad :
       {"", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:8x", "host:80", "[::1:80", "[]:80"})
    CHECK_FALSE(endpoint(bad));
}

TEST_CASE("an HTTP request is read to its end and no further, and what is none is seen at once") {
  using State = HttpRequest::State;
  const auto r = parse_http("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(r.state == State::ready);
  CHECK(r.method == "GET");
  CHECK(r.path == "/metrics");
  CHECK(parse_http("GET / HTTP/1.0\n\n").state == State::ready);
  CHECK(parse_http("DELETE /metrics HTTP/1.1\r\n\r\n").method == "DELETE");
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t n = 0; n < whole.size(); n++) CHECK(parse_http(whole.substr(0, n)).state == State::more);
  for (const char *bad : {"\x16\x03\x01", "GET\t/", " GET /", "\r\n\r\n", "GETTHEWHOLEPAGENOW /",
                          "GET metrics HTTP/1.1\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics SPDY/1\r\n\r\n", "GET\r\n\r\n"})
    CHECK(parse_http(bad).state == State::bad);
  CHECK(parse_http("GET / HTTP/1.1\r\n" + std::string(kMostRequestBytes, 'a')).state == State::bad);
  const auto page = [] { return std::string("x 1\n"); };
  CHECK(http_answer(r, page).starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
  CHECK(http_answer(r, page).ends_with("Content-Length: 4\r\nConnection: close\r\n\r\nx 1\n"));
  CHECK(http_answer(parse_http("POST / HTTP/1.1\r\n\r\n"), page).starts_with("HTTP/1.1 405 "));
  CHECK(http_answer(parse_http("GET /etc/passwd HTTP/1.1\r\n\r\n"), page).starts_with("HTTP/1.1 404 "));
  CHECK(http_answer(parse_http("\1"), page).starts_with("HTTP/1.1 400 "));
}

TEST_CASE("metrics keep the text format: each name has one HELP and TYPE before its samples, labels are escaped") {
  const std::string text = metrics_text(sample());
  const std::regex sample_line(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-z_]+="(\\["\\n]|[^"\\\n])*")(,[a-z_]+="(\\["\\n]|[^"\\\n])*")*\})? (\S+))re");
  std::set<std::string> helped, typed;
  std::string current;
  std::set<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    std::smatch m;
    CAPTURE(line);
    if (line.starts_with("# HELP ")) {
      current = line.substr(7, line.find(' ', 7) - 7);
      CHECK(helped.insert(current).second);
    } else if (line.starts_with("# TYPE ")) {
      CHECK(line.substr(7, current.size()) == current);
      CHECK(typed.insert(current).second);
      const std::string kind = line.substr(8 + current.size());
      CHECK((kind == "gauge" || kind == "counter"));
      CHECK((kind == "counter") == current.ends_with("_total"));
    } else {
      REQUIRE(std::regex_match(line, m, sample_line));
      CHECK(m[1] == current);
      CHECK_NOTHROW((void)std::stod(m[7]));
      CHECK(lines.insert(line.substr(0, line.rfind(' '))).second); // no series twice
    }
  }
  const std::string labels = R"({comm="00000000000000ab",name="wor\"ld\n)"
                             "\xef\xbf\xbd"
                             R"(",rank="1")";
  for (const std::string &part : std::vector<std::string>{
           "tutti_operations_total" + labels + ",coll=\"all_reduce\"} 2\n", "tutti_stalled" + labels + "} 1\n",
           "tutti_oldest_operation_seconds" + labels + "} 9\n", "tutti_blocked_seconds_total" + labels + "} 1.5\n",
           "tutti_link_bytes_total" + labels + ",class=\"shm\",direction=\"send\"} 1000\n",
           "tutti_operations_queued" + labels + "} 1\n", "tutti_ranks_left" + labels + "} 1\n"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
}

TEST_CASE("a place to serve metrics at is an address and a port or a range of them") {
  const auto one = parse_metrics_at("127.0.0.1:9100");
  REQUIRE(one.ok());
  CHECK(one->addresses.size() == 1);
  CHECK(one->low == 9100);
  CHECK(one->high == 9100);
  CHECK(parse_metrics_at("[::1]:9100-9200")->high == 9200);
  CHECK(parse_metrics_at(":0")->addresses.size() == 2);
  CHECK(parse_metrics_at("localhost:0")->addresses.front().text() == "127.0.0.1:1");
  for (const char *bad : {"", "9100", "host:9100", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:5-4", "127.0.0.1:0-4",
                          "127.0.0.1:5-", "127.0.0.1:5x"})
    CHECK_FALSE(parse_metrics_at(bad).ok());
}
