// The desk of a process with real listeners: who is told, who is refused, and that nobody who means harm does any.
#include "../bootstrap/help.h"
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "bootstrap/member.h"
#include "bootstrap/rendezvous.h"
#include "log/log.h"
#include "ras/asking.h"
#include "ras/desk.h"
#include <cstddef>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/un.h>

using namespace help;
using namespace tutti::boot;

namespace {

// A file of its own, removed when the tests end.
struct KeyFile {
  std::string path = "/tmp/tutti-ras-key-XXXXXX";
  KeyFile() {
    const UniqueFd fd(::mkstemp(path.data()));
    REQUIRE(::write(fd.get(), "0123456789abcdef0123456789abcdef", 32) == 32);
  }
  ~KeyFile() { ::unlink(path.c_str()); }
};
const KeyFile &key_file() {
  static const KeyFile f;
  return f;
}

// One process has one desk, opened with the first configuration: all tests share it.
std::shared_ptr<const Config> desk_config() {
  static const auto c = config({{"TUTTI_JOB_KEY_FILE", key_file().path}, {"TUTTI_SOCKET_HANDSHAKE_TIMEOUT", "5s"}});
  ras::open_desk(c);
  return c;
}

UniqueFd to_unix() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::string name = unix_listener_name(Service::get().hub().process()[0]);
  std::copy(name.begin(), name.end(), un.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr *>(&un), length) != 0) return {};
  return fd;
}

UniqueFd to_tcp() {
  const auto self = Service::get().hub().contact(*desk_config());
  for (const Endpoint &e : self->endpoints) {
    UniqueFd fd(socket(e.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr *>(&e.storage), e.length()) == 0) return fd;
  }
  return {};
}

void say(const UniqueFd &fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    data = data.subspan(static_cast<size_t>(n));
  }
}

Bytes hear(const UniqueFd &fd, size_t size) {
  Bytes data(size);
  size_t got = 0;
  const Deadline d = Deadline::in(10s);
  while (got < size && !d.expired()) {
    pollfd p{fd.get(), POLLIN, 0};
    if (poll(&p, 1, d.left_ms()) <= 0) break;
    const ssize_t n = recv(fd.get(), data.data() + got, size - got, 0);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  data.resize(got);
  return data;
}

bool closes(const UniqueFd &fd) {
  const Deadline d = Deadline::in(10s);
  char part[4096];
  while (!d.expired()) {
    pollfd p{fd.get(), POLLIN, 0};
    if (poll(&p, 1, d.left_ms()) > 0 && recv(fd.get(), part, sizeof part, 0) <= 0) return true;
  }
  return false;
}

Hello hello_for(const Identity &under) {
  Hello h;
  h.comm = under.comm;
  h.from = 0;
  h.to = kAskRank;
  random_bytes(h.nonce);
  return h;
}

Refusal shake(const UniqueFd &fd, const Identity &under) {
  const Hello h = hello_for(under);
  say(fd, encode(h));
  const auto c = decode_challenge(hear(fd, kChallengeBytes));
  if (!c) return Refusal::busy;
  if (c->refusal != Refusal::none) return c->refusal;
  CHECK(same(c->mac, server_mac(under.key, h, *c)));
  say(fd, encode_proof(client_mac(under.key, h, *c)));
  return Refusal::none;
}

void send_frame(const UniqueFd &fd, FrameType type, const Bytes &data, uint32_t length) {
  Bytes frame(kFrameHeader);
  encode(FrameHeader{length, type, false, 0}, frame.data());
  frame.insert(frame.end(), data.begin(), data.end());
  say(fd, frame);
}

// The first frame that comes back: a report, unless there is none.
std::optional<ras::ProcessReport> report_of(const UniqueFd &fd) {
  const Bytes head = hear(fd, kFrameHeader);
  if (head.size() != kFrameHeader) return {};
  const auto h = decode_header(std::span<const std::byte, kFrameHeader>(head.data(), kFrameHeader));
  if (!h || h->type != FrameType::answer || h->tag != static_cast<uint64_t>(ras::Answer::report)) return {};
  const Bytes body = hear(fd, h->length);
  auto r = ras::parse_report(text(body), "answer");
  CHECK_MESSAGE(r.ok(), line(r));
  return r.ok() ? std::optional(std::move(*r)) : std::nullopt;
}

std::optional<ras::ProcessReport> ask(const UniqueFd &fd, const Identity &under) {
  if (!fd || shake(fd, under) != Refusal::none) return {};
  const Bytes q = encode(ras::Question{});
  send_frame(fd, FrameType::question, q, static_cast<uint32_t>(q.size()));
  return report_of(fd);
}

} // namespace

TEST_CASE("this user is told on this host, and whoever has the job's key over the network") {
  const auto c = desk_config();
  auto ranks = world(3, c);
  const auto here = ask(to_unix(), local_ask_identity());
  REQUIRE(here);
  CHECK(here->pid == getpid());
  CHECK(here->comms.size() == 3);
  CHECK_FALSE(here->comms[0].joining.empty()); // without an engine
  const auto file = ask(to_tcp(), ask_identity(*read_job_key(key_file().path)));
  REQUIRE(file);
  CHECK(file->process == here->process);
  const auto member = Service::get().hub().members().front();
  CHECK(ask(to_tcp(), member->asking())); // as other processes of the job do
  close(ranks);
}

TEST_CASE("nobody is told over the network without a key of the job, also not as if from this host") {
  const auto c = desk_config();
  auto ranks = world(2, c);
  Identity other;
  other.comm = random_u64();
  CHECK(shake(to_tcp(), other) == Refusal::unknown);
  CHECK(shake(to_tcp(), local_ask_identity()) == Refusal::unknown);
  Identity guessed = Service::get().hub().members().front()->asking();
  guessed.key[0] ^= std::byte(1);
  const UniqueFd fd = to_tcp();
  const Hello h = hello_for(guessed);
  say(fd, encode(h));
  const auto challenge = decode_challenge(hear(fd, kChallengeBytes));
  REQUIRE(challenge);
  CHECK_FALSE(same(challenge->mac, server_mac(guessed.key, h, *challenge)));
  say(fd, encode_proof(client_mac(guessed.key, h, *challenge)));
  CHECK(closes(fd));
  close(ranks);
}

TEST_CASE("a proof that was heard once opens nothing a second time") {
  auto ranks = world(2, desk_config());
  const Identity under = Service::get().hub().members().front()->asking();
  const Hello h = hello_for(under);
  const UniqueFd first = to_tcp();
  say(first, encode(h));
  const auto c = decode_challenge(hear(first, kChallengeBytes));
  REQUIRE(c);
  const Bytes proof = encode_proof(client_mac(under.key, h, *c));
  say(first, proof);
  const UniqueFd second = to_tcp();
  say(second, encode(h));
  REQUIRE(decode_challenge(hear(second, kChallengeBytes)));
  say(second, proof);
  CHECK(closes(second));
  close(ranks);
}

TEST_CASE("garbage, huge lengths, wrong frames and second questions end the connection, and the next one is answered") {
  auto ranks = world(2, desk_config());
  const Bytes good = encode(ras::Question{});
  const auto n = static_cast<uint32_t>(good.size());
  const std::vector<std::function<void(const UniqueFd &)>> attacks = {
      [&](const UniqueFd &fd) { send_frame(fd, FrameType::question, {}, kFrameLimit); },
      [&](const UniqueFd &fd) { send_frame(fd, FrameType::question, good, ras::kMostQuestionBytes + 1); },
      [&](const UniqueFd &fd) { send_frame(fd, FrameType::question, {}, 0); },
      [&](const UniqueFd &fd) { send_frame(fd, FrameType::message, good, n); },
      [&](const UniqueFd &fd) { send_frame(fd, FrameType::failure, good, n); },
      [&](const UniqueFd &fd) { say(fd, Bytes(64, std::byte(0xff))); },
      [&](const UniqueFd &fd) {
        send_frame(fd, FrameType::question, good, n);
        send_frame(fd, FrameType::question, good, n);
      },
  };
  for (const auto &attack : attacks) {
    const UniqueFd fd = to_unix();
    REQUIRE(shake(fd, local_ask_identity()) == Refusal::none);
    attack(fd);
    CHECK(closes(fd));
    CHECK(ask(to_unix(), local_ask_identity()));
  }
  close(ranks);
}

TEST_CASE("hundreds that ask nothing, or do not read, crowd each other out and nobody else") {
  auto ranks = world(2, desk_config());
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 300; i++) {
    idle.push_back(to_unix());
    if (i % 3 == 0) continue; // says nothing at all
    REQUIRE(shake(idle.back(), local_ask_identity()) == Refusal::none);
    if (i % 3 == 2) {
      const Bytes q = encode(ras::Question{});
      send_frame(idle.back(), FrameType::question, q, static_cast<uint32_t>(q.size()));
    }
  }
  CHECK(ask(to_unix(), local_ask_identity()));
  CHECK(ask(to_tcp(), Service::get().hub().members().front()->asking()));
  // A rank still works: its control plane is the same listener.
  std::vector<std::string> errors(2);
  each(2, [&](int r) {
    errors[static_cast<size_t>(r)] = line(ranks[static_cast<size_t>(r)]->barrier(soon(), "after the crowd"));
  });
  CHECK(errors == std::vector<std::string>(2));
  close(ranks);
}

TEST_CASE("many processes are asked at once, until the deadline and no longer, and each silent one is named") {
  const auto c = desk_config();
  auto ranks = world(1, c);
  Endpoint mute, refusing;
  const UniqueFd listener = tcp_listener(&mute); // takes connections and says nothing
  { const UniqueFd gone = tcp_listener(&refusing); }
  const auto done = std::make_shared<std::promise<std::vector<ras::Silent>>>();
  std::shared_ptr<ras::Asking> asking;
  std::atomic<int> answers{0};
  ras::Neighbours neighbours;
  ras::Asking::Plan plan;
  plan.budget = 600ms;
  plan.config = c;
  plan.my_host = 1;
  plan.neighbours = &neighbours;
  for (uint64_t i = 0; i < 200; i++) {
    ras::Fellow f;
    f.contact.process[0] = 1000 + i;
    f.contact.host = 2;
    f.contact.pid = static_cast<int32_t>(i + 1);
    f.contact.endpoints = {i % 2 ? mute : refusing};
    f.places = {{0xab, static_cast<int>(i)}};
    plan.whom.push_back(f);
  }
  ras::Fellow real;
  real.contact = *Service::get().hub().contact(*c);
  real.contact.host = 1;
  real.under = local_ask_identity();
  plan.whom.push_back(real);
  plan.on_answer = [&](ras::Answer, const Bytes &, const ras::ProcessReport *r) { answers += r != nullptr; };
  plan.on_end = [done](std::vector<ras::Silent> s) { done->set_value(std::move(s)); };
  const auto began = Clock::now();
  on_service([&] { asking = ras::Asking::start(Service::get(), std::move(plan)); });
  auto future = done->get_future();
  REQUIRE(future.wait_for(10s) == std::future_status::ready);
  const auto silent = future.get();
  CHECK(Clock::now() - began < 5s); // 100 silent ones, 64 at a time, do not add up
  CHECK(answers == 1);
  CHECK(silent.size() == 200);
  int refused = 0;
  for (const ras::Silent &s : silent) {
    CHECK_FALSE(s.why.empty());
    CHECK(s.places.size() == 1);
    refused += s.why == "it refuses connections: it has ended, or a firewall rejects them";
  }
  CHECK(refused > 0);
  on_service([&] { asking = nullptr; });
  close(ranks);
}
