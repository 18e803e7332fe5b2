#include "help.h"
#include <fcntl.h>
#include <new>
#include <sys/epoll.h>
#include <sys/mman.h>

using namespace help;

TEST_CASE("64 thread ranks join, gather pieces of different lengths and leave") {
  const auto start = Clock::now();
  auto w = world(64);
  CHECK(Clock::now() - start < 3s);
  each(64, [&](int r) {
    for (int round = 0; round < 3; round++) {
      auto all = w[static_cast<size_t>(r)]->allgather(bytes(std::string(static_cast<size_t>(r), 'x')), soon(), "test");
      REQUIRE(all.ok());
      for (size_t i = 0; i < 64; i++) CHECK(all.value()[i].size() == i);
    }
    CHECK(w[static_cast<size_t>(r)]->barrier(soon(), "test").ok());
    CHECK(w[static_cast<size_t>(r)]->peer(5).rank == 5);
  });
  CHECK(w[0]->comm_id() == w[63]->comm_id());
  close(w);
}

TEST_CASE("one rank alone can do everything") {
  auto w = world(1);
  CHECK(w[0]->barrier(soon(), "test").ok());
  CHECK(w[0]->send(0, make_tag(MsgKind::user, 1), bytes("hi")).ok());
  CHECK(text(w[0]->recv(0, make_tag(MsgKind::user, 1), soon(), "test").value().data) == "hi");
  auto child = w[0]->split(0, 0, config(), soon());
  REQUIRE(child.ok());
  CHECK(child.value()->nranks() == 1);
}

TEST_CASE("messages are kept by sender and tag and stay in order") {
  auto w = world(3);
  for (int i = 0; i < 10; i++) {
    REQUIRE(w[1]->send(0, make_tag(MsgKind::user, 1), bytes("a" + std::to_string(i))).ok());
    REQUIRE(w[1]->send(0, make_tag(MsgKind::user, 2), bytes("b" + std::to_string(i))).ok());
    REQUIRE(w[2]->send(0, make_tag(MsgKind::user, 1), bytes("c" + std::to_string(i))).ok());
  }
  for (int i = 0; i < 10; i++) {
    CHECK(text(w[0]->recv(2, make_tag(MsgKind::user, 1), soon(), "t").value().data) == "c" + std::to_string(i));
    CHECK(text(w[0]->recv(1, make_tag(MsgKind::user, 2), soon(), "t").value().data) == "b" + std::to_string(i));
    CHECK(text(w[0]->recv(1, make_tag(MsgKind::user, 1), soon(), "t").value().data) == "a" + std::to_string(i));
  }
  Message none;
  CHECK_FALSE(w[0]->try_recv(1, make_tag(MsgKind::user, 1), &none));
  close(w);
}

TEST_CASE("a wait that expires names who is missing") {
  auto w = world(4);
  auto m = w[0]->recv(2, make_tag(MsgKind::user, 1), Deadline::in(50ms), "waiting for work");
  REQUIRE_FALSE(m.ok());
  CHECK(m.status().code() == Code::timeout);
  CHECK(m.status().error().peer == 2);
  CHECK(line(m.status()).find("rank 0: waiting for work: no message from rank 2 (pid ") == 0);
  std::vector<std::string> lines(4);
  each(4, [&](int r) {
    if (r == 2) return;
    auto all = w[static_cast<size_t>(r)]->allgather({}, Deadline::in(100ms), "meeting");
    REQUIRE_FALSE(all.ok());
    lines[static_cast<size_t>(r)] = line(all.status());
  });
  CHECK(lines[1].find("rank 1: meeting: 3 of 4 ranks came within 0.1 s; missing: 2 (pid ") == 0);
  close(w);
}

TEST_CASE("descriptors travel with messages") {
  auto w = world(2);
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(write(fd.get(), "content", 7) == 7);
  REQUIRE(w[0]->send(1, make_tag(MsgKind::link, 1), bytes("x"), fd.get()).ok());
  auto m = w[1]->recv(0, make_tag(MsgKind::link, 1), soon(), "t");
  REQUIRE(m.ok());
  char buf[8] = "";
  CHECK(pread(m.value().fd.get(), buf, 7, 0) == 7);
  CHECK(std::string(buf) == "content");
  close(w);
}

TEST_CASE("handlers get queued messages first, may send themselves, and are quiet after removal") {
  auto w = world(2);
  const uint64_t tag = make_tag(MsgKind::user, 3);
  REQUIRE(w[0]->send(1, tag, bytes("first")).ok());
  std::vector<std::string> seen;
  w[1]->set_handler(MsgKind::user, [&](Message m) {
    seen.push_back(text(m.data));
    CHECK(w[1]->send(0, tag, bytes("re:" + text(m.data))).ok());
  });
  REQUIRE(w[0]->send(1, tag, bytes("second")).ok());
  CHECK(text(w[0]->recv(1, tag, soon(), "t").value().data) == "re:first");
  CHECK(text(w[0]->recv(1, tag, soon(), "t").value().data) == "re:second");
  w[1]->set_handler(MsgKind::user, nullptr);
  REQUIRE(w[0]->send(1, tag, bytes("third")).ok());
  CHECK(text(w[1]->recv(0, tag, soon(), "t").value().data) == "third");
  CHECK(seen == std::vector<std::string>{"first", "second"});
  close(w);
}

TEST_CASE("a reported failure ends every wait and reaches every rank once") {
  auto w = world(8);
  std::atomic<int> calls{0};
  for (auto &b : w) b->on_failure([&](const Error &) { calls++; });
  each(8, [&](int r) {
    auto &b = *w[static_cast<size_t>(r)];
    if (r == 3) {
      Error e;
      e.code = Code::system;
      e.message = "out of paper";
      b.report_failure(e);
      return;
    }
    auto m = b.recv(3, make_tag(MsgKind::user, 1), soon(), "t");
    REQUIRE_FALSE(m.ok());
    CHECK(m.status().code() == Code::remote);
    CHECK(m.status().error().peer == 3);
    CHECK(m.status().error().rank == r);
    CHECK(line(m.status()).find("rank 3 (pid ") != std::string::npos);
    CHECK(line(m.status()).find("out of paper") != std::string::npos);
  });
  CHECK(calls == 8);
  CHECK(w[3]->failure().code() == Code::system);
  CHECK_FALSE(w[0]->barrier(soon(), "t").ok());
}

TEST_CASE("where the service thread finds no memory, every communicator ends and says so, and the next one works") {
  for (const bool timer : {false, true}) {
    auto w = world(3), other = world(2);
    std::atomic<int> after = 0;
    const auto runs_out = []() -> void { throw std::bad_alloc(); };
    boot::Service::get().post([&] {
      if (timer)
        boot::Service::get().at(Clock::now(), runs_out);
      else
        boot::Service::get().post(runs_out);
    });
    for (auto *one : {&w, &other})
      each(static_cast<int>(one->size()), [&](int r) {
        const auto m = (*one)[static_cast<size_t>(r)]->recv(0, make_tag(MsgKind::user, 1), soon(), "t");
        CHECK(line(m.status()).find("out of memory") != std::string::npos);
        after++;
      });
    CHECK(after == 5);
    help::close(w);
    help::close(other);
    auto next = world(3);
    each(3, [&](int r) { CHECK(line(next[static_cast<size_t>(r)]->barrier(soon(), "t")) == ""); });
    help::close(next);
  }
}

TEST_CASE("a descriptor whose bytes nobody has the memory for does not keep the service thread busy") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd a(ends[0]), b(ends[1]);
  std::atomic<int> woken = 0;
  uint64_t token = 0;
  on_service([&] {
    CHECK(boot::Service::get()
              .add(
                  a.get(), EPOLLIN,
                  [&](uint32_t) {
                    woken++;
                    throw std::bad_alloc();
                  },
                  &token)
              .ok());
  });
  REQUIRE(write(b.get(), "x", 1) == 1);
  const Deadline limit = soon();
  while (woken < 2 && !limit.expired()) on_service([] {});
  for (int i = 0; i < 20; i++) on_service([] {});
  CHECK(woken == 2);
}

TEST_CASE("splits nest, follow key and rank, and leave out those without a color") {
  auto w = world(8);
  each(8, [&](int r) {
    auto &b = *w[static_cast<size_t>(r)];
    for (int round = 0; round < 3; round++) {
      auto half = b.split(r == 7 ? -1 : r % 2, -r, config(), soon());
      CHECK(line(half) == "");
      if (!half.ok()) return;
      if (r == 7) {
        CHECK(half.value() == nullptr);
        continue;
      }
      auto &h = *half.value();
      CHECK(h.nranks() == (r % 2 ? 3 : 4));
      auto all = h.allgather(bytes(std::to_string(r)), soon(), "t");
      CHECK(line(all) == "");
      if (!all.ok()) return;
      CHECK(text(all.value()[0]) == (r % 2 ? "5" : "6"));
      CHECK(text(all.value()[static_cast<size_t>(h.rank())]) == std::to_string(r));
      auto quarter = h.split(h.rank() / 2, 0, config(), soon());
      CHECK(line(quarter) == "");
      if (!quarter.ok()) return;
      CHECK(quarter.value()->barrier(soon(), "t").ok());
      quarter.value()->expect_close();
      h.expect_close();
    }
    CHECK(b.barrier(soon(), "t").ok());
  });
  close(w);
}

TEST_CASE("missing ranks are named at the deadline, to everybody") {
  auto c = config();
  auto id = Bootstrap::create_id(*c);
  REQUIRE(id.ok());
  std::vector<std::string> lines(8);
  each(8, [&](int r) {
    if (r == 5) return;
    auto b = Bootstrap::join(id.value(), 8, r, c, Deadline::in(500ms));
    REQUIRE_FALSE(b.ok());
    CHECK(b.status().code() == Code::timeout);
    lines[static_cast<size_t>(r)] = line(b.status());
  });
  for (int r = 0; r < 8; r++)
    if (r != 5)
      CHECK(lines[static_cast<size_t>(r)] == "rank " + std::to_string(r) + ": 7 of 8 ranks checked in after 0.5 s; missing: 5");
}

TEST_CASE("ranks that disagree about the number of ranks, or come twice, are told so") {
  auto c = config();
  auto id = Bootstrap::create_id(*c);
  std::vector<std::string> lines(2);
  each(2, [&](int r) { lines[static_cast<size_t>(r)] = line(Bootstrap::join(id.value(), 4 + r, r, c, soon()).status()); });
  for (const auto &l : lines) CHECK(l.find("was started with ") != std::string::npos);
  auto again = Bootstrap::create_id(*c);
  each(2, [&](int r) { lines[static_cast<size_t>(r)] = line(Bootstrap::join(again.value(), 3, 1, c, soon()).status()); });
  for (const auto &l : lines) CHECK(l.find("rank 1 checked in twice") != std::string::npos);
  CHECK_FALSE(Bootstrap::join(again.value(), 3, 3, c, soon()).ok());
}
