// Whoever does not belong, and members that break the rules of the wire.
#include "members.h"
#include "raw.h"
#include "work.h"
#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>

using namespace collnet;
using namespace tutti::aggd;
using Milliseconds = std::chrono::milliseconds;

namespace {

// Two raw members, in.
struct Two {
  Token token = any_token();
  Raw a, b;
  Two(const Daemon &daemon, const Folder &folder, uint32_t progress_ms = 1000) : a(daemon), b(daemon) {
    const Key key = key_of(folder);
    if (!a.join(join_of(token, 0, 2, progress_ms), key) || !b.join(join_of(token, 1, 2, progress_ms), key) || !a.started() ||
        !b.started())
      throw std::runtime_error("two members do not become a group");
  }
};

// The last words that a member hears.
Fault last_words(Raw &raw) {
  std::vector<uint8_t> body;
  for (;;) {
    const auto h = raw.frame(&body, Milliseconds(10'000));
    if (!h) return {};
    if (h->kind == Kind::error) return read_fault(body).value_or(Fault{});
  }
}

Header chunk(uint32_t seq, uint32_t offset, uint32_t bytes, uint32_t total) {
  Header h = chunk_header(TUTTI_COLL_ALL_REDUCE, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 0);
  h.seq = seq;
  h.offset = offset;
  h.bytes = bytes;
  h.total = total;
  return h;
}

// That the daemon still serves.
void healthy(const Daemon &daemon, const Folder &folder) {
  Two two(daemon, folder);
  std::vector<float> in(16, 2.0f);
  const Header h = chunk(0, 0, 64, 64);
  for (Raw *raw : {&two.a, &two.b}) REQUIRE((raw->send(h) && raw->send(in.data(), 64)));
  for (Raw *raw : {&two.a, &two.b}) {
    std::vector<uint8_t> body;
    const auto got = raw->frame(&body);
    REQUIRE((got && body.size() == 64));
    float first = 0;
    std::memcpy(&first, body.data(), 4);
    CHECK(first == 4.0f);
    raw->send(goodbye_frame());
  }
}

bool forgets(const Daemon &daemon) {
  return daemon.becomes([](const auto &s) { return s["groups"].empty() && s["memory"]["reserved"] == 0; });
}

} // namespace

TEST_CASE("garbage, silence and half a hello end the connection, and members come in all the while") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[timeouts]\nhandshake = \"1s\"\n[limits]\nstrangers = 8\n");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    std::vector<std::unique_ptr<Raw>> silent;
    for (int k = 0; k < 200; k++) silent.push_back(std::make_unique<Raw>(daemon)); // more than there is room for
    std::vector<uint8_t> noise(4096);
    random_fill(noise);
    Raw garbage(daemon), half(daemon);
    garbage.send(noise.data(), noise.size());
    const Hello hello = make_hello(Role::member);
    half.send(&hello, 20);
    healthy(daemon, folder);
    CHECK(garbage.ends());
    CHECK(half.ends());
    CHECK(daemon.within(0));
    for (auto &raw : silent) CHECK(raw->ends());
    CHECK(forgets(daemon));
  }
  CHECK(daemon.status()["totals"]["strangers"] >= 202 * static_cast<unsigned>(repetitions()));
}

TEST_CASE("connections that others make and leave do not keep members out") {
  Folder folder;
  Daemon daemon(folder, "aggd", "metrics = \"127.0.0.1:0\"\n[limits]\nconnections = 8\nstrangers = 4\n");
  REQUIRE(daemon.metrics_port() > 0);
  std::vector<std::unique_ptr<Raw>> idle;
  for (int i = 0; i < 40; i++) idle.push_back(std::make_unique<Raw>(daemon.metrics_port())); // and ask nothing
  for (int i = 0; i < repetitions(); i++) {
    happened();
    for (int k = 0; k < 20; k++) {
      Raw gone(daemon);
      gone.send("what is this?\n                                            ", 48);
      CHECK(gone.ends());
    }
    healthy(daemon, folder);
  }
  CHECK(idle.front()->ends());
  CHECK_FALSE(daemon.status().is_null());
}

namespace {

// Takes connections as a daemon does that drops them when they have proved themselves, before it lets anybody in.
void drop(int port, int connections, const Key &key) {
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  (void)::setsockopt(listening.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0);
  REQUIRE(::listen(listening.get(), 16) == 0);
  for (int i = 0; i < connections; i++) {
    pollfd p{listening.get(), POLLIN, 0};
    REQUIRE(::poll(&p, 1, 10'000) == 1);
    const Fd fd(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello{};
    REQUIRE(::recv(fd.get(), &hello, sizeof hello, MSG_WAITALL) == ssize_t{sizeof hello});
    const Challenge challenge = make_challenge(key, hello);
    REQUIRE(::send(fd.get(), &challenge, sizeof challenge, MSG_NOSIGNAL) == ssize_t{sizeof challenge});
    Proof proof{};
    REQUIRE(::recv(fd.get(), &proof, sizeof proof, MSG_WAITALL) == ssize_t{sizeof proof});
    CHECK(proves(key, hello, challenge, proof));
  }
}

} // namespace

TEST_CASE("a member that is dropped before it was let in comes again") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    daemon.signal(SIGTERM);
    REQUIRE(daemon.wait(Milliseconds(5000)) == 0);
    Run run(2, [&](Member &m) {
      auto options = options_for(folder, {daemon.address()});
      options["connect_timeout"] = "\"20s\"";
      check(m.open(options), m.text);
      check(m.join(1, 30'000) == TUTTI_OK, m.text);
    });
    drop(daemon.port(), 2, key_of(folder));
    daemon.restart();
    for (const End &e : run.wait()) {
      INFO(e.said);
      CHECK(e.status == 0);
    }
  }
}

TEST_CASE("a daemon that joins and brings no member is named, and so is whom nobody knows") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  const Key key = key_of(folder);
  const Token token = any_token();
  Raw below(daemon), a(daemon), b(daemon);
  REQUIRE(below.join(join_of(token, -1, 2), key));
  REQUIRE(below.frame().has_value());
  REQUIRE((a.join(join_of(token, 0, 2), key) && a.frame().has_value() && b.join(join_of(token, 1, 2), key)));
  const Fault heard = last_words(a);
  INFO(heard.text);
  CHECK(heard.text.find("(no members yet) has joined, and all 2 members are at other daemons") != std::string::npos);
}

TEST_CASE("who cannot prove the key is closed, and counted") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  Raw raw(daemon);
  const Hello hello = make_hello(Role::member);
  Challenge challenge{};
  REQUIRE(raw.send(hello));
  REQUIRE(raw.receive(&challenge, sizeof challenge));
  CHECK(challenge.version == version_last);
  Key wrong{};
  CHECK_FALSE(proves(wrong, hello, challenge));
  raw.send(make_proof(wrong, hello, challenge));
  CHECK(raw.ends());
  CHECK(daemon.becomes([](const auto &s) { return s["totals"]["wrong_key"] == 1; }));
}

TEST_CASE("another version is told which ones the daemon speaks") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Raw raw(daemon);
    const Hello hello = make_hello(Role::member, 7, 9);
    Challenge challenge{};
    REQUIRE(raw.send(hello));
    REQUIRE(raw.receive(&challenge, sizeof challenge));
    CHECK(challenge.version == 0);
    CHECK(challenge.first == version_first);
    CHECK(challenge.last == version_last);
    CHECK(raw.ends());
  }
  healthy(daemon, folder);
}

TEST_CASE("a proved member that sends garbage is named to the others; its group ends and no other") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  Two bystanders(daemon, folder, 60'000);
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Header bad[] = {chunk(0, 0, 64, 32), chunk(0, 0, 1 << 20, 1 << 20), chunk(0, 2, 64, 66),
                    chunk(0, 0, 64, 64), chunk(0, 0, 64, 64),           chunk(0, 0, 64, 64)};
    bad[3].dtype = 200;
    bad[4].magic = 7;
    bad[5].kind = Kind::join;
    for (const Header &h : bad) {
      Two two(daemon, folder);
      two.b.send(h);
      const Fault heard = last_words(two.a);
      INFO(heard.text);
      CHECK(heard.reason == Reason::member_lost);
      CHECK(heard.member == 1);
      CHECK(heard.text.find("member 1 (127.0.0.1:") == 0);
    }
  }
  const std::vector<float> in(16, 1.0f);
  for (Raw *raw : {&bystanders.a, &bystanders.b}) REQUIRE((raw->send(chunk(0, 0, 64, 64)) && raw->send(in.data(), 64)));
  CHECK(bystanders.a.frame().has_value());
  CHECK(bystanders.b.frame().has_value());
}

TEST_CASE("what a member says of others is passed on as its words, whatever it says") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (const bool abruptly : {false, true})
    for (const Reason reason : {Reason::member_lost, Reason::aggregator_lost, Reason::auth}) {
      Two two(daemon, folder);
      if (abruptly) two.b.send(chunk(0, 0, 64, 64)); // half of it never comes
      const std::vector<float> half(abruptly ? 16 : 0, 1.0f);
      two.b.send(half.data(), half.size() * sizeof(float));
      two.b.send(frame(Fault{reason, Field::none, 0, 0, 0, "member 0 stole the towels"}));
      two.b.close();
      const Fault heard = last_words(two.a);
      INFO(heard.text);
      CHECK(heard.member == 1);
      CHECK(heard.hearsay);
      CHECK(heard.reason == (reason == Reason::auth ? Reason::member_lost : reason));
      CHECK(heard.text.find("member 1 (127.0.0.1:") == 0);
      CHECK(heard.text.find(") left: member 0 stole") != std::string::npos);
    }
  Two two(daemon, folder);
  two.b.send(frame(Fault{Reason::member_lost, Field::none, 1, 0, 0, "it had enough"}));
  CHECK_FALSE(last_words(two.a).hearsay);
}

TEST_CASE("a member's last words are found behind what its ring has no room for") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Two two(daemon, folder, 20'000);
    const std::vector<uint8_t> body(8 << 10); // 64 KiB of ring; nobody else posts
    for (uint32_t seq = 0; seq < 12; seq++)
      REQUIRE((two.b.send(chunk(seq, 0, 8 << 10, 8 << 10)) && two.b.send(body.data(), body.size())));
    two.b.send(frame(Fault{Reason::aggregator_lost, Field::none, -1, 0, 0, "aggd2 is gone"}));
    two.b.close();
    const Fault heard = last_words(two.a);
    INFO(heard.text);
    CHECK(heard.reason == Reason::aggregator_lost);
    CHECK(heard.text.find("left: aggd2 is gone") != std::string::npos);
  }
}

TEST_CASE("a member that does not take its results is named, and the daemon keeps no more than its window") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\nmemory = \"256KiB\"\nmemory_per_job = \"256KiB\"\n");
  for (int i = 0; i < repetitions(); i++) {
    happened();
    Two two(daemon, folder, 500);
    // `a` sends and reads, `b` only sends: its buffers fill, then its window, and then everything stands.
    const std::vector<uint8_t> body(8 << 10);
    Fault heard;
    const int blocking = ::fcntl(two.b.fd(), F_GETFL);
    ::fcntl(two.b.fd(), F_SETFL, blocking | O_NONBLOCK);
    ::fcntl(two.a.fd(), F_SETFL, ::fcntl(two.a.fd(), F_GETFL) | O_NONBLOCK);
    struct Out {
      Raw &raw;
      std::string pending;
      uint32_t seq = 0;
      void push(const std::vector<uint8_t> &bytes) {
        for (int turn = 0; turn < 64; turn++) {
          if (pending.empty()) {
            const Header h = chunk(seq++, 0, static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(bytes.size()));
            pending.assign(reinterpret_cast<const char *>(&h), sizeof h);
            pending.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
          }
          const ssize_t n = ::send(raw.fd(), pending.data(), pending.size(), MSG_NOSIGNAL);
          if (n <= 0) return;
          pending.erase(0, static_cast<size_t>(n));
        }
      }
    } from_a{two.a, {}}, from_b{two.b, {}};
    std::vector<uint8_t> stream;
    bool bounded = true;
    uint32_t turns = 0;
    for (const auto end = collnet::Clock::now() + std::chrono::seconds(20);
         heard.reason == Reason::none && collnet::Clock::now() < end;) {
      if (++turns % 256 == 0) bounded = bounded && daemon.within(256);
      from_a.push(body);
      from_b.push(body);
      uint8_t buffer[65536];
      const ssize_t n = ::recv(two.a.fd(), buffer, sizeof buffer, 0);
      if (n == 0) break;
      if (n > 0) stream.insert(stream.end(), buffer, buffer + n);
      size_t at = 0;
      Header h;
      while (stream.size() - at >= sizeof h) {
        std::memcpy(&h, stream.data() + at, sizeof h);
        if (stream.size() - at < frame_bytes(h)) break;
        if (h.kind == Kind::error) heard = read_fault({stream.data() + at + sizeof h, h.bytes}).value_or(Fault{});
        at += frame_bytes(h);
      }
      stream.erase(stream.begin(), stream.begin() + static_cast<ptrdiff_t>(at));
    }
    INFO(heard.text);
    CHECK(bounded);
    CHECK(daemon.within(256));
    CHECK(heard.reason == Reason::timeout);
    CHECK(heard.member == 1);
    CHECK(heard.text.find("has not taken its results") != std::string::npos);
    CHECK(forgets(daemon));
  }
  CHECK(daemon.status()["memory"]["most"] <= 256 << 10);
}

TEST_CASE("a member number that is taken, and another number of members, end the group with the reason") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  const Key key = key_of(folder);
  const Token token = any_token();
  Raw first(daemon), again(daemon);
  REQUIRE(first.join(join_of(token, 0, 2), key));
  REQUIRE(first.frame().has_value());
  REQUIRE(again.join(join_of(token, 0, 2), key));
  CHECK(last_words(again).text == "member 0 has joined already");
  CHECK(last_words(first).reason == Reason::mismatch);
  const Token other = any_token();
  Raw two(daemon), three(daemon);
  REQUIRE(two.join(join_of(other, 0, 2), key));
  REQUIRE(two.frame().has_value());
  REQUIRE(three.join(join_of(other, 1, 3), key));
  CHECK(last_words(two).field == Field::members);
}

TEST_CASE("quotas of groups, groups of a job and members are refusals with limit and use") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\ngroups = 3\ngroups_per_job = 2\nmembers = 4\n");
  const Key key = key_of(folder);
  std::vector<std::unique_ptr<Raw>> held;
  const auto ask = [&](uint64_t job, uint32_t members) {
    held.push_back(std::make_unique<Raw>(daemon));
    Join j = join_of(any_token(), 0, members);
    j.job = job;
    REQUIRE(held.back()->join(j, key));
    std::vector<uint8_t> body;
    const auto h = held.back()->frame(&body);
    REQUIRE(h.has_value());
    return h->kind == Kind::error ? read_fault(body).value_or(Fault{}) : Fault{};
  };
  CHECK(ask(1, 5).limit == 4);
  CHECK(ask(1, 2).reason == Reason::none);
  CHECK(ask(1, 2).reason == Reason::none);
  const Fault third = ask(1, 2);
  CHECK(third.reason == Reason::no_resource);
  CHECK((third.limit == 2 && third.in_use == 2));
  CHECK(ask(2, 2).reason == Reason::none);
  const Fault fourth = ask(3, 2);
  CHECK((fourth.limit == 3 && fourth.in_use == 3));
  CHECK(fourth.text.find("job 0x1 holds") != std::string::npos);
}

TEST_CASE("however often a member is refused or its groups end, the log grows slowly, and counts") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\nmembers = 2\n");
  const Key key = key_of(folder);
  for (uint32_t i = 0; i < 300; i++) {
    Raw raw(daemon);
    REQUIRE(raw.join(join_of(any_token(), 0, 2 + i % 2), key)); // three members are refused; two never become a group
    REQUIRE(raw.frame().has_value());
  }
  CHECK(daemon.becomes([](const auto &s) { return s["totals"]["refused"] == 150 && s["groups"].empty(); }));
  std::this_thread::sleep_for(Milliseconds(1100)); // the next line is due
  Raw last(daemon);
  REQUIRE(last.join(join_of(any_token(), 0, 3), key));
  REQUIRE(last.frame().has_value());
  CHECK(daemon.becomes([&](const auto &) { return daemon.log().find(" more like it before)") != std::string::npos; }));
  const std::string log = daemon.log();
  CHECK(std::count(log.begin(), log.end(), '\n') < 100);
}

TEST_CASE("no job takes all memory: large windows leave most of what is free, and each job has its share") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\nmemory = \"2MiB\"\n");
  const Key key = key_of(folder);
  std::vector<std::unique_ptr<Raw>> held;
  Fault refused;
  const auto ask = [&](uint64_t job) { // the window granted to a group of two that wants a large one; 0: none
    held.push_back(std::make_unique<Raw>(daemon));
    Join j = join_of(any_token(), 0, 2);
    j.job = job;
    j.window = 1 << 20;
    REQUIRE(held.back()->join(j, key));
    std::vector<uint8_t> body;
    const auto h = held.back()->frame(&body);
    REQUIRE(h.has_value());
    if (h->kind == Kind::error) refused = read_fault(body).value_or(Fault{});
    return h->kind == Kind::error ? 0 : read_grant(body).value_or(Grant{}).window;
  };
  CHECK(ask(1) == 128 << 10); // three of a quarter
  CHECK(ask(1) == 128 << 10);
  CHECK(ask(1) == 64 << 10);
  CHECK(ask(1) == 0);
  CHECK(refused.reason == Reason::no_resource);
  CHECK((refused.limit == 1 << 20 && refused.in_use == 15 * (64 << 10)));
  CHECK(refused.text.find("limits.memory_per_job = 1024 KiB, of which job 0x1 holds 960 KiB") != std::string::npos);
  CHECK(ask(2) == 64 << 10);
  CHECK(daemon.status()["memory"]["reserved"] == 18 * (64 << 10));
}

TEST_CASE("status is told in text and JSON, metrics over HTTP") {
  Folder folder;
  Daemon daemon(folder, "aggd", "metrics = \"127.0.0.1:0\"\n");
  Two two(daemon, folder);
  const std::string text = daemon.command({"status"});
  CHECK(text.find("job 0x4d: running, 2 members, window 64 KiB") != std::string::npos);
  CHECK(nlohmann::json::parse(daemon.command({"status", "--json"}))["groups"].size() == 1);
  REQUIRE(daemon.metrics_port() > 0);
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(daemon.metrics_port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr *>(&to), sizeof to) == 0);
  const std::string question = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  REQUIRE(::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(question.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, static_cast<size_t>(n));
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(answer.find("\ntutti_aggd_groups 1\n") != std::string::npos);
  CHECK(answer.find("\ntutti_aggd_memory_reserved_bytes 196608\n") != std::string::npos);
}

TEST_CASE("a key file that others may read, and a wrong line of the file, are said with what is allowed") {
  Folder folder;
  const std::string loose = folder.key("loose");
  ::chmod(loose.c_str(), 0644);
  CHECK_THROWS_WITH(Daemon(folder, "a", "", nullptr, loose), doctest::Contains("has mode 0644"));
  CHECK_THROWS_WITH(Daemon(folder, "b", "[limits]\nmemry = 3\n"), doctest::Contains("did you mean \"limits.memory\""));
}
