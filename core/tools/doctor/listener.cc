#include "tools/doctor/listener.h"
#include "bootstrap/hub.h"
#include "tools/doctor/tree.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>

namespace tutti::doctor {
namespace {

constexpr size_t kMostGuests = 64;
constexpr size_t kMostPlaces = 8;
constexpr auto kTick = std::chrono::milliseconds(100); // between two looks at whether to stop
constexpr auto kIdle = std::chrono::seconds(20);       // a guest that says nothing for so long is gone

int family_of(const Config &config) {
  const std::string &f = config.text("socket.family");
  return f == "AF_INET" ? AF_INET : f == "AF_INET6" ? AF_INET6 : 0;
}

Result<UniqueFd> bound(const Place &place, int type, uint16_t port) {
  const auto at = endpoint_of(place, port);
  UniqueFd fd(socket(at->family(), type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "cannot open a socket");
  const int on = 1;
  if (at->family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&at->storage), at->length()) != 0 ||
      (type == SOCK_STREAM && listen(fd.get(), 256) != 0))
    return fail_errno(errno, fmt::format("cannot listen at {}", at->text()));
  return fd;
}

uint16_t port_of(int fd) {
  boot::Endpoint e;
  socklen_t n = sizeof e.storage;
  getsockname(fd, reinterpret_cast<sockaddr *>(&e.storage), &n);
  return e.port();
}

// At a port of the range, or at any.
Result<UniqueFd> bound_in(const Config &config, const Place &place, int type) {
  const auto [low, high] = boot::port_range(config);
  if (low == 0) return bound(place, type, 0);
  Status last;
  const int count = high - low + 1, start = static_cast<int>(boot::random_u64() % static_cast<uint64_t>(count));
  for (int i = 0; i < count; i++) {
    auto fd = bound(place, type, static_cast<uint16_t>(low + (start + i) % count));
    if (fd.ok()) return fd;
    last = std::move(fd.status());
    if (last.error().sys_errno != EADDRINUSE && last.error().sys_errno != EACCES) break;
  }
  return last;
}

} // namespace

Status Listener::listen_at(const Config &config, Place place) {
  TUTTI_ASSIGN(stream, bound_in(config, place, SOCK_STREAM));
  place.port = port_of(stream.get());
  if (auto datagrams = bound_in(config, place, SOCK_DGRAM); datagrams.ok()) { // without it the MTU is not measured
    place.datagrams = port_of(datagrams->get());
    datagrams_.push_back(std::move(*datagrams));
  }
  streams_.push_back(std::move(stream));
  places_.push_back(std::move(place));
  return {};
}

Result<std::unique_ptr<Listener>> Listener::open(const Config &config, const boot::Secret &key, int rank) {
  std::unique_ptr<Listener> out(new Listener(key, rank));
  const std::string &rule = config.text("socket.ifname");
  const auto chosen = netif::select(rule, family_of(config));
  if (!chosen.error.empty()) return fail(Code::invalid_usage, "{}", chosen.error);
  Status last = fail(Code::system, "no address to listen at: {} are loopback or link-local", chosen.choices.size());
  const Tree files;
  for (const auto &choice : chosen.choices) {
    if (choice.address.link_local() || (choice.interface.loopback && rule.empty()) || out->places_.size() == kMostPlaces)
      continue;
    Place p;
    p.interface = choice.interface.name;
    p.address = netif::to_text(choice.address);
    p.prefix = choice.address.prefix;
    p.mtu = files.number("/sys/class/net/" + p.interface + "/mtu").value_or(0);
    p.speed_mbps = choice.interface.speed_mbps;
    p.made = choice.interface.made;
    if (Status s = out->listen_at(config, p); !s.ok()) last = std::move(s);
  }
  if (out->places_.empty()) return last;
  out->thread_ = std::thread([self = out.get()] { self->loop(); });
  return out;
}

Listener::~Listener() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (Guest &g : guests_) {
    shutdown(g.fd.get(), SHUT_RDWR); // ends its waits
    g.thread.join();
  }
}

void Listener::admit(UniqueFd fd) {
  guests_.remove_if([](Guest &g) {
    if (!g.done) return false;
    g.thread.join();
    return true;
  });
  if (!fd || guests_.size() >= kMostGuests) return; // closed at once
  Guest &g = guests_.emplace_back();
  g.fd = std::move(fd);
  g.thread = std::thread([this, &g] {
    serve(g.fd.get());
    shutdown(g.fd.get(), SHUT_RDWR);
    g.done = true;
  });
}

void Listener::loop() {
  std::vector<pollfd> fds;
  for (const auto *group : {&streams_, &datagrams_})
    for (const UniqueFd &fd : *group) fds.push_back({fd.get(), POLLIN, 0});
  while (!stop_) {
    if (poll(fds.data(), fds.size(), static_cast<int>(std::chrono::milliseconds(kTick).count())) <= 0) continue;
    for (size_t i = 0; i < fds.size(); i++) {
      if (!(fds[i].revents & POLLIN)) continue;
      if (i >= streams_.size()) {
        answer_datagram(fds[i].fd);
        continue;
      }
      admit(UniqueFd(accept4(fds[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    }
  }
}

void Listener::answer_datagram(int fd) {
  std::vector<std::byte> datagram(65536);
  boot::Endpoint from;
  socklen_t n = sizeof from.storage;
  const ssize_t got =
      recvfrom(fd, datagram.data(), datagram.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr *>(&from.storage), &n);
  if (got < 0 || !datagram_proved(key_, std::span(datagram).first(static_cast<size_t>(got)))) return;
  (void)sendto(fd, datagram.data(), kDatagramHead, MSG_DONTWAIT, reinterpret_cast<const sockaddr *>(&from.storage), n);
}

// The handshake of the control plane: hello, challenge, proof.
void Listener::serve(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const Deadline greeting = Deadline::in(std::chrono::seconds(5));
  std::array<std::byte, boot::kHelloBytes> hello_bytes{};
  if (!receive_all(fd, hello_bytes.data(), hello_bytes.size(), greeting).ok()) return;
  const auto hello = boot::decode_hello(hello_bytes);
  if (!hello || hello->to != rank_) return;
  boot::Challenge challenge;
  boot::random_bytes(challenge.nonce);
  challenge.mac = boot::server_mac(key_, *hello, challenge);
  const Bytes out = boot::encode(challenge);
  std::array<std::byte, boot::kProofBytes> proof_bytes{};
  if (!send_all(fd, out.data(), out.size(), greeting).ok() ||
      !receive_all(fd, proof_bytes.data(), proof_bytes.size(), greeting).ok())
    return;
  const auto proof = boot::decode_proof(proof_bytes);
  if (!proof || !boot::same(*proof, boot::client_mac(key_, *hello, challenge))) return;
  auto heard = Clock::now();
  while (!stop_ && Clock::now() - heard < kIdle) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(std::chrono::milliseconds(kTick).count())) <= 0) continue;
    if (!answer(fd).ok()) return;
    heard = Clock::now();
  }
}

Status Listener::answer(int fd) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(15)); // clients give up before
  std::array<std::byte, 16> head{};
  TUTTI_TRY(receive_all(fd, head.data(), head.size(), deadline));
  const Request r = decode_request(head);
  if (r.bytes > kMostBytes || (r.op == Op::ping && r.bytes > kPingBytes)) return fail(Code::remote, "too much was asked for");
  std::vector<char> buffer(r.op == Op::take || r.op == Op::give ? 1 << 20 : kPingBytes);
  switch (r.op) {
  case Op::ping:
    for (uint32_t i = 0; i < r.count && !stop_; i++) {
      TUTTI_TRY(receive_all(fd, buffer.data(), r.bytes, deadline));
      TUTTI_TRY(send_all(fd, buffer.data(), r.bytes, deadline));
    }
    return {};
  case Op::take:
    for (uint64_t left = r.bytes; left > 0 && !stop_;) {
      const size_t n = std::min<uint64_t>(left, buffer.size());
      TUTTI_TRY(receive_all(fd, buffer.data(), n, deadline));
      left -= n;
    }
    return send_all(fd, head.data(), 8, deadline);
  case Op::give:
    for (uint64_t left = r.bytes; left > 0 && !stop_;) {
      const size_t n = std::min<uint64_t>(left, buffer.size());
      TUTTI_TRY(send_all(fd, buffer.data(), n, deadline));
      left -= n;
    }
    return {};
  case Op::clock:
    for (uint32_t i = 0; i < r.count && !stop_; i++) {
      TUTTI_TRY(receive_all(fd, buffer.data(), 1, deadline));
      const int64_t now = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
      TUTTI_TRY(send_all(fd, &now, sizeof now, deadline));
    }
    return {};
  }
  return fail(Code::remote, "no such request");
}

} // namespace tutti::doctor
