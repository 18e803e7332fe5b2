// Control connections that are lost and come back. Rank 1 is played by the test, byte by byte, as a process of another host.
#include "bootstrap/crypto.h"
#include "bootstrap/member.h"
#include "help.h"
#include <cstring>
#include <poll.h>

using namespace help;
using namespace tutti::boot;

namespace {

constexpr uint64_t kTag = make_tag(MsgKind::user, 1);

Bytes read_all(const UniqueFd &fd, size_t size) {
  Bytes data(size);
  const ssize_t n = size ? recv(fd.get(), data.data(), size, MSG_WAITALL) : 0;
  data.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return data;
}

void write_all(const UniqueFd &fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL);
    REQUIRE(n > 0);
    data = data.subspan(static_cast<size_t>(n));
  }
}

void limit_waits(const UniqueFd &fd) {
  const timeval limit{15, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

Bytes frame_bytes(FrameType type, uint64_t tag, std::span<const std::byte> payload) {
  Bytes out(kFrameHeader);
  encode(FrameHeader{static_cast<uint32_t>(payload.size()), type, false, tag}, out.data());
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

struct Heard {
  FrameType type{};
  uint64_t tag = 0;
  Bytes payload;
};

std::optional<Heard> hear(const UniqueFd &fd) {
  const Bytes head = read_all(fd, kFrameHeader);
  if (head.size() < kFrameHeader) return {};
  const auto h = decode_header(std::span<const std::byte, kFrameHeader>(head.data(), kFrameHeader));
  if (!h) return {};
  return Heard{h->type, h->tag, read_all(fd, h->length)};
}

uint64_t attempt_of(const Heard &h) {
  Reader r(h.payload);
  return r.u64();
}

Bytes resume_bytes(uint64_t come, uint64_t attempt) {
  Writer w;
  w.u64(attempt);
  return frame_bytes(FrameType::resume, come, w.take());
}

UniqueFd connect_to(const Endpoint &to) {
  UniqueFd fd(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  limit_waits(fd);
  if (connect(fd.get(), reinterpret_cast<const sockaddr *>(&to.storage), to.length()) != 0) fd.reset();
  return fd;
}

// Rank 1 of 2, and rank 0 as it is.
class Pair {
public:
  explicit Pair(const Environment &environment = {}) {
    config_ = config(environment);
    const auto id = Bootstrap::create_id(*config_);
    REQUIRE(id.ok());
    const UniqueId parsed = decode(id.value()).value();
    key_ = comm_identity(std::span(&parsed, 1)).key;
    comm_ = comm_identity(std::span(&parsed, 1)).comm;
    listener = tcp_listener(&at_);
    REQUIRE(listener);
    std::thread joining([&] {
      auto b = Bootstrap::join(id.value(), 2, 0, config_, soon());
      if (b.ok()) rank = std::move(b).value();
    });
    meet(parsed);
    joining.join();
    REQUIRE(rank);
  }
  ~Pair() {
    if (rank) rank->expect_close();
    if (link) write_all(link, frame_bytes(FrameType::goodbye, 0, Bytes{std::byte(1)}));
    rank.reset();
  }

  // What rank 0 dials. Its offer is read, and answered with `come`.
  Heard accept(uint64_t come) {
    Heard offer = accept_offer();
    write_all(link, resume_bytes(come, attempt = attempt_of(offer)));
    return offer;
  }
  Heard accept_offer() {
    for (;;) { // it may look, or have given up an attempt
      pollfd p{listener.get(), POLLIN, 0};
      REQUIRE(poll(&p, 1, 15'000) == 1);
      link = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      limit_waits(link);
      if (const auto offer = greet(link); offer && offer->type == FrameType::resume) return *offer;
    }
  }
  // As the one that dials.
  UniqueFd dial() {
    UniqueFd fd = connect_to(rank0_.endpoints.front());
    REQUIRE(fd);
    prove(fd, comm_, 0, key_);
    return fd;
  }
  void cut() { link.reset(); }
  void message(uint64_t n, size_t size, Bytes *out) const {
    Bytes data(size + 8, std::byte(n));
    std::memcpy(data.data(), &n, sizeof n);
    const Bytes f = frame_bytes(FrameType::message, kTag, data);
    out->insert(out->end(), f.begin(), f.end());
  }
  std::string recv_number(uint64_t *n) {
    const auto m = rank->recv(1, kTag, soon(), "t");
    if (!m.ok()) return line(m);
    if (m.value().data.size() < 8) return "short";
    std::memcpy(n, m.value().data.data(), 8);
    return "";
  }

  std::unique_ptr<Bootstrap> rank;
  UniqueFd listener, link;
  uint64_t attempt = 0;

private:
  static void prove(const UniqueFd &fd, uint64_t comm, int to, const Secret &key) {
    Hello h;
    h.library = library_version();
    h.comm = comm;
    h.from = 1;
    h.to = to;
    random_bytes(h.nonce);
    write_all(fd, encode(h));
    const auto c = decode_challenge(read_all(fd, kChallengeBytes));
    REQUIRE(c);
    REQUIRE(c->refusal == Refusal::none);
    write_all(fd, encode_proof(client_mac(key, h, *c)));
  }
  std::optional<Heard> greet(const UniqueFd &fd) const {
    const auto h = decode_hello(read_all(fd, kHelloBytes));
    if (!h) return {};
    Challenge c;
    random_bytes(c.nonce);
    c.mac = server_mac(key_, *h, c);
    write_all(fd, encode(c));
    const auto proof = decode_proof(read_all(fd, kProofBytes));
    if (!proof || !same(*proof, client_mac(key_, *h, c))) return {};
    return hear(fd);
  }
  void meet(const UniqueId &id) {
    const Identity root = root_identity(id);
    UniqueFd to_root;
    for (size_t i = 0; !to_root && i < id.endpoints.size(); i++) to_root = connect_to(id.endpoints[i]);
    REQUIRE(to_root);
    prove(to_root, root.comm, kRootRank, root.key);
    CheckIn in;
    in.nranks = 2;
    in.rank = 1;
    in.library = library_version();
    in.left_ns = in.span_ns = 20'000'000'000;
    in.ids = hash_ids(std::span(&id, 1));
    in.security = "authenticated";
    in.contact.process = {random_u64(), random_u64()};
    in.contact.host = random_u64();
    in.contact.pid = 7;
    in.contact.hostname = "elsewhere";
    in.contact.endpoints = {at_};
    write_all(to_root, frame_bytes(FrameType::check_in, 0, encode(in)));
    (void)accept(0);
    write_all(to_root, frame_bytes(FrameType::in_ring, 0, {}));
    Writer w; // what it says of itself to all
    w.i32(1);
    w.u8(0);
    put(w, in.contact);
    write_all(link, frame_bytes(FrameType::gather, 0, w.take()));
    const auto theirs = hear(link);
    REQUIRE(theirs);
    REQUIRE(theirs->type == FrameType::gather);
    Reader r(theirs->payload);
    (void)r.i32(), (void)r.u8();
    REQUIRE(get(r, &rank0_));
  }

  std::shared_ptr<const Config> config_;
  Secret key_{};
  uint64_t comm_ = 0;
  Endpoint at_;
  Contact rank0_;
};

} // namespace

TEST_CASE("wherever a connection is cut, what the other end sent arrives once, and in order") {
  Pair p;
  const std::vector<size_t> sizes = {0, 1, 100, 70'000, 0, 17};
  std::vector<size_t> cuts;
  Bytes whole;
  for (size_t i = 0; i < sizes.size(); i++) {
    const size_t from = whole.size();
    p.message(0, sizes[i], &whole);
    for (const size_t in : {size_t(0), size_t(1), size_t(15), size_t(16), size_t(17), (whole.size() - from) - 1})
      cuts.push_back(from + in);
  }
  cuts.push_back(whole.size());
  uint64_t sent = 1, next = 0; // frames of rank 1: the first one was that of joining
  for (const size_t cut : cuts) {
    CAPTURE(cut);
    Bytes stream;
    size_t complete = 0;
    std::vector<size_t> ends;
    for (size_t i = 0; i < sizes.size(); i++) {
      p.message(next + i, sizes[i], &stream);
      ends.push_back(stream.size());
      complete += stream.size() <= cut;
    }
    write_all(p.link, std::span(stream).first(cut));
    shutdown(p.link.get(), SHUT_WR); // all that was written arrives before the end
    const Heard offer = p.accept(1);
    CHECK(offer.tag == sent + complete);
    write_all(p.link, std::span(stream).subspan(complete ? ends[complete - 1] : 0));
    sent += sizes.size();
    for (size_t i = 0; i < sizes.size(); i++, next++) {
      uint64_t n = 0;
      REQUIRE(p.recv_number(&n) == "");
      CHECK(n == next);
    }
  }
  Message none;
  CHECK(!p.rank->try_recv(1, kTag, &none));
}

TEST_CASE("wherever a connection is cut, what this end sent goes out again from where the other one says") {
  Pair p;
  constexpr uint64_t kMessages = 5;
  uint64_t come = 1; // as rank 1 counts
  for (uint64_t whole = 0; whole <= kMessages; whole++)
    for (const size_t part : {size_t(0), size_t(7), size_t(20)}) {
      CAPTURE(whole);
      for (uint64_t i = 0; i < kMessages; i++) REQUIRE(p.rank->send(1, kTag, std::as_bytes(std::span(&i, 1))).ok());
      uint64_t next = 0;
      for (; next < whole; next++) {
        const auto h = hear(p.link);
        REQUIRE(h);
        if (h->type == FrameType::ack) { // counts nothing
          next--;
          continue;
        }
        come++;
      }
      if (part && whole < kMessages) (void)read_all(p.link, part);
      p.cut(); // with what is unread in it: a reset
      (void)p.accept(come);
      while (next < kMessages) {
        const auto h = hear(p.link);
        REQUIRE(h);
        REQUIRE(h->type == FrameType::message);
        REQUIRE(h->payload.size() == 8);
        uint64_t n = 0;
        std::memcpy(&n, h->payload.data(), 8);
        CHECK(n == next++);
        come++;
      }
    }
  CHECK(!p.rank->failed());
}

TEST_CASE("a later connection of the other end takes over, an earlier one is closed") {
  Pair p;
  const UniqueFd late = p.dial();
  write_all(late, resume_bytes(1, p.attempt)); // the number of the one in use
  CHECK(!hear(late));
  UniqueFd fresh = p.dial();
  write_all(fresh, resume_bytes(1, p.attempt + 1));
  const auto answer = hear(fresh);
  REQUIRE(answer);
  CHECK(answer->type == FrameType::resume);
  CHECK(answer->tag == 1);
  CHECK(read_all(p.link, 1).empty()); // closed
  p.link = std::move(fresh);
  Bytes out;
  p.message(9, 3, &out);
  write_all(p.link, out);
  uint64_t n = 0;
  CHECK(p.recv_number(&n) == "");
  CHECK(n == 9);
}

TEST_CASE("frames before the first words of a connection, and counts that cannot be, end the communicator") {
  for (const bool count : {false, true}) {
    Pair p;
    if (count) {
      p.cut();
      (void)p.accept(77);
    } else {
      const UniqueFd fd = p.dial();
      Bytes out;
      p.message(1, 1, &out);
      write_all(fd, out);
      const Deadline limit = soon();
      while (!p.rank->failed() && !limit.expired()) std::this_thread::yield();
    }
    const auto m = p.rank->recv(1, kTag, soon(), "t");
    CHECK(line(m).find("sent a malformed message") != std::string::npos);
    p.link.reset();
  }
}

TEST_CASE("every so many frames the other end hears how many have come") {
  Pair p;
  Bytes out;
  for (uint64_t i = 0; i < 64; i++) p.message(i, 1, &out);
  write_all(p.link, out);
  const auto h = hear(p.link);
  REQUIRE(h);
  CHECK(h->type == FrameType::ack);
  CHECK(h->tag >= 32);
}

TEST_CASE("a process that has ended is gone within two seconds, though connections may come back") {
  Pair p;
  p.listener.reset();
  p.cut();
  const auto began = Clock::now();
  const auto m = p.rank->recv(1, kTag, soon(), "t");
  const std::string said = line(m);
  CHECK_MESSAGE(said.find("rank 1 (pid 7 on elsewhere): control connection closed") != std::string::npos, said);
  CHECK_MESSAGE(said.find("nobody listens at 127.0.0.1 any more") != std::string::npos, said);
  CHECK(Clock::now() - began < 10s); // 1.5 s where nothing else runs
}

TEST_CASE("who waits for a lost connection is told so, and after its time it is given up with what was tried") {
  Pair p(Environment{{"TUTTI_SOCKET_RECONNECT_TIMEOUT", "6s"}});
  p.cut(); // the listener's queue takes the attempts, and nobody answers
  const auto early = p.rank->recv(1, kTag, Deadline::in(3s), "waiting"); // one attempt has failed by then
  const std::string said = line(early);
  CHECK_MESSAGE(
      said.find("waiting: no message from rank 1 (pid 7 on elsewhere) within 3 s; connection to rank 1 (127.0.0.1) lost") !=
          std::string::npos,
      said);
  CHECK_MESSAGE(said.find("not restored yet: ") != std::string::npos, said);
  const auto late = p.rank->recv(1, kTag, soon(), "t");
  const std::string verdict = line(late);
  CHECK_MESSAGE(verdict.find("rank 1 (pid 7 on elsewhere): connection to 127.0.0.1 lost 6 s ago (control connection closed") !=
                    std::string::npos,
                verdict);
  CHECK_MESSAGE(verdict.find("attempts, the last: ") != std::string::npos, verdict);
}

TEST_CASE("what waits for a lost connection is bounded") {
  Pair p;
  p.cut();
  const Bytes data(4 << 20);
  Status s;
  size_t sent = 0;
  for (; s.ok() && sent < 100; sent++) s = p.rank->send(1, kTag, data);
  CHECK(sent <= 65);
  CHECK_MESSAGE(line(s).find("more than 268435456 bytes wait to be sent to other ranks; rank 1") != std::string::npos, line(s));
}

TEST_CASE("with reconnect_timeout = 0 a lost connection is an error at once") {
  Pair p(Environment{{"TUTTI_SOCKET_RECONNECT_TIMEOUT", "0s"}});
  p.cut();
  const auto m = p.rank->recv(1, kTag, soon(), "t");
  CHECK(line(m).find("rank 1 (pid 7 on elsewhere): control connection closed: process ended") != std::string::npos);
}
