#include "tools/doctor/probe.h"
#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace tutti::doctor {
namespace {

Reach reach_of(int err) {
  switch (err) {
  case 0:
    return Reach::ok;
  case ECONNREFUSED:
    return Reach::refused;
  case ETIMEDOUT:
    return Reach::timed_out;
  case EHOSTUNREACH:
  case ENETUNREACH:
  case EADDRNOTAVAIL:
    return Reach::no_route;
  default:
    return Reach::failed;
  }
}

int start(Attempt &a, const Place &own, const Place &other) {
  const auto from = endpoint_of(own, 0), to = endpoint_of(other, other.port);
  if (!from || !to) return EINVAL;
  a.fd.reset(socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!a.fd) return errno;
  const int on = 1;
  setsockopt(a.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (bind(a.fd.get(), reinterpret_cast<const sockaddr *>(&from->storage), from->length()) != 0) return errno;
  if (connect(a.fd.get(), reinterpret_cast<const sockaddr *>(&to->storage), to->length()) == 0 || errno == EINPROGRESS)
    return 0;
  return errno;
}

// hello, challenge, proof: whether what answers is the rank that is meant.
Reach shake_hands(int fd, const boot::Secret &key, int rank, int other, Deadline deadline) {
  boot::Hello hello;
  hello.library = boot::library_version();
  hello.from = rank;
  hello.to = other;
  boot::random_bytes(hello.nonce);
  const Bytes out = boot::encode(hello);
  std::array<std::byte, boot::kChallengeBytes> in{};
  if (!send_all(fd, out.data(), out.size(), deadline).ok()) return Reach::failed;
  if (const Status s = receive_all(fd, in.data(), in.size(), deadline); !s.ok())
    return s.code() == Code::timeout ? Reach::timed_out : Reach::stranger;
  const auto challenge = boot::decode_challenge(in);
  if (!challenge || !boot::same(challenge->mac, boot::server_mac(key, hello, *challenge))) return Reach::stranger;
  const Bytes proof = boot::encode_proof(boot::client_mac(key, hello, *challenge));
  return send_all(fd, proof.data(), proof.size(), deadline).ok() ? Reach::ok : Reach::failed;
}

void read_tcp_info(Attempt &a) {
  tcp_info info{};
  socklen_t n = sizeof info;
  if (getsockopt(a.fd.get(), IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return;
  a.mss = static_cast<int>(info.tcpi_snd_mss);
  a.path_mtu = static_cast<int>(info.tcpi_pmtu);
}

} // namespace

std::string_view reach_name(Reach reach) {
  constexpr std::string_view kNames[] = {"ok", "refused", "timed_out", "no_route", "stranger", "failed"};
  return kNames[static_cast<size_t>(reach)];
}

std::vector<Attempt> try_all(const std::vector<Place> &own, const std::vector<Place> &other, const boot::Secret &key, int rank,
                             int other_rank, Nanos patience) {
  const auto begin = Clock::now();
  const Deadline deadline = Deadline::in(patience);
  std::vector<Attempt> all;
  std::vector<bool> open;
  for (size_t f = 0; f < own.size(); f++)
    for (size_t t = 0; t < other.size(); t++) {
      if ((own[f].address.find(':') == std::string::npos) != (other[t].address.find(':') == std::string::npos)) continue;
      Attempt a;
      a.from = static_cast<int>(f);
      a.to = static_cast<int>(t);
      a.err = start(a, own[f], other[t]);
      a.reach = a.err ? reach_of(a.err) : Reach::timed_out;
      open.push_back(a.err == 0);
      all.push_back(std::move(a));
    }
  while (!deadline.expired() && std::count(open.begin(), open.end(), true) > 0) {
    std::vector<pollfd> fds;
    std::vector<size_t> which;
    for (size_t i = 0; i < all.size(); i++)
      if (open[i]) fds.push_back({all[i].fd.get(), POLLOUT, 0}), which.push_back(i);
    if (poll(fds.data(), fds.size(), deadline.left_ms()) <= 0) break;
    for (size_t k = 0; k < fds.size(); k++) {
      if (!fds[k].revents) continue;
      Attempt &a = all[which[k]];
      open[which[k]] = false;
      socklen_t n = sizeof a.err;
      if (getsockopt(a.fd.get(), SOL_SOCKET, SO_ERROR, &a.err, &n) != 0) a.err = errno;
      a.reach = reach_of(a.err);
      // A process that answers does so at once; what swallows the greeting is cut off when all others are through.
      if (a.reach == Reach::ok)
        a.reach = shake_hands(
            a.fd.get(), key, rank, other_rank,
            Deadline::in(std::min<Nanos>(std::chrono::seconds(1), deadline.left() + std::chrono::milliseconds(200))));
      a.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      if (a.reach == Reach::ok) read_tcp_info(a);
    }
  }
  for (Attempt &a : all)
    if (a.reach != Reach::ok) {
      if (a.reach == Reach::timed_out) a.err = ETIMEDOUT;
      a.fd.reset();
    }
  return all;
}

namespace {

using Seconds = std::chrono::duration<double>;

Status ask(int fd, const Request &r, Deadline deadline) {
  const auto head = encode(r);
  return send_all(fd, head.data(), head.size(), deadline);
}

Status measure_latency(int fd, Measured &out, Deadline deadline) {
  constexpr uint32_t kRounds = 200;
  TUTTI_TRY(ask(fd, {Op::ping, kRounds, 8}, deadline));
  std::vector<double> times;
  for (uint32_t i = 0; i < kRounds; i++) {
    uint64_t word = i;
    const auto begin = Clock::now();
    TUTTI_TRY(send_all(fd, &word, sizeof word, deadline));
    TUTTI_TRY(receive_all(fd, &word, sizeof word, deadline));
    times.push_back(Seconds(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  out.latency_us = times[kRounds / 2] / 2 * 1e6;
  return {};
}

// Seconds that `bytes` take. out: to the other end, until it says that it has them.
Status time_bulk(int fd, bool out, uint64_t bytes, Deadline deadline, double *seconds) {
  std::vector<char> buffer(1 << 20);
  const auto begin = Clock::now();
  TUTTI_TRY(ask(fd, {out ? Op::take : Op::give, 0, bytes}, deadline));
  for (uint64_t left = bytes; left > 0;) {
    const size_t n = std::min<uint64_t>(left, buffer.size());
    if (out)
      TUTTI_TRY(send_all(fd, buffer.data(), n, deadline));
    else
      TUTTI_TRY(receive_all(fd, buffer.data(), n, deadline));
    left -= n;
  }
  if (out) TUTTI_TRY(receive_all(fd, buffer.data(), 8, deadline));
  *seconds = Seconds(Clock::now() - begin).count();
  return {};
}

// 64 KiB, then four times more until it takes long enough to count.
Status measure_bandwidth(int fd, bool out, double *gbs, Nanos each, Deadline deadline) {
  const double long_enough = Seconds(each).count();
  for (uint64_t bytes = 64 << 10;; bytes *= 4) {
    double seconds = 0;
    TUTTI_TRY(time_bulk(fd, out, bytes, deadline, &seconds));
    *gbs = static_cast<double>(bytes) / seconds / 1e9;
    if (seconds * 2 <= long_enough && bytes * 4 <= kMostBytes) continue;
    // Once more: something else may have run.
    TUTTI_TRY(time_bulk(fd, out, bytes, deadline, &seconds));
    *gbs = std::max(*gbs, static_cast<double>(bytes) / seconds / 1e9);
    return {};
  }
}

Status measure_clock(int fd, Measured &out, Deadline deadline) {
  constexpr uint32_t kRounds = 16;
  TUTTI_TRY(ask(fd, {Op::clock, kRounds, 0}, deadline));
  for (uint32_t i = 0; i < kRounds; i++) {
    const auto now = [] { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); };
    int64_t theirs = 0;
    const int64_t before = now();
    TUTTI_TRY(send_all(fd, &i, 1, deadline));
    TUTTI_TRY(receive_all(fd, &theirs, sizeof theirs, deadline));
    const int64_t after = now();
    const double error = static_cast<double>(after - before) / 2e6;
    if (out.clock_error_ms >= 0 && error >= out.clock_error_ms) continue;
    out.clock_error_ms = error;
    out.clock_ms = static_cast<double>(theirs - before) / 1e6 - error;
  }
  return {};
}

// Whether a datagram that makes an IP packet of this size is answered. Whole packets alone: routers may not cut them.
bool answered(int fd, bool v6, int size, const boot::Secret &key, Deadline deadline) {
  std::array<std::byte, 16> nonce{};
  boot::random_bytes(nonce);
  const auto datagram = make_datagram(key, nonce, static_cast<uint32_t>(size - (v6 ? 48 : 28)));
  for (int tries = 0; tries < 3 && !deadline.expired(); tries++) {
    if (send(fd, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EMSGSIZE) return false; // larger than the interface's own
      continue;                            // an ICMP error of an earlier one
    }
    const Deadline wait = Deadline::in(std::min<Nanos>(deadline.left(), std::chrono::milliseconds(100)));
    pollfd p{fd, POLLIN, 0};
    while (poll(&p, 1, wait.left_ms()) > 0) {
      std::array<std::byte, kDatagramHead> answer{};
      const ssize_t n = recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
      if (n == static_cast<ssize_t>(answer.size()) && std::equal(answer.begin(), answer.end(), datagram.begin())) return true;
      if (n < 0 && errno != EAGAIN) break;
    }
  }
  return false;
}

void measure_mtu(const Place &own, const Place &other, const boot::Secret &key, Measured &out, Deadline deadline) {
  if (other.datagrams == 0 || own.mtu <= 0 || other.mtu <= 0) return;
  const auto from = endpoint_of(own, 0), to = endpoint_of(other, other.datagrams);
  const bool v6 = to->family() == AF_INET6;
  const UniqueFd fd(socket(to->family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int probe = IP_PMTUDISC_PROBE;
  if (!fd ||
      setsockopt(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &probe, sizeof probe) !=
          0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr *>(&from->storage), from->length()) != 0 ||
      connect(fd.get(), reinterpret_cast<const sockaddr *>(&to->storage), to->length()) != 0)
    return;
  const int64_t largest = std::min<int64_t>({own.mtu, other.mtu, 65000});
  std::vector<int> sizes{static_cast<int>(largest)};
  for (int size : {9000, 8900, 4200, 2048, 1500, 1492, 1476, 1450, 1420, 1400, 1280, 1000, 576})
    if (size < largest) sizes.push_back(size);
  if (!answered(fd.get(), v6, 200, key, deadline)) {
    if (!deadline.expired()) out.datagram_mtu = 0;
    return;
  }
  int lost = 0;
  for (const int size : sizes) {
    const bool through = answered(fd.get(), v6, size, key, deadline);
    if (!through && deadline.expired()) return; // no answer to it either way
    if (through) {
      out.datagram_mtu = size;
      out.datagram_lost = lost;
      return;
    }
    lost = size;
  }
  out.datagram_mtu = 200;
  out.datagram_lost = lost;
}

} // namespace

Measured measure(Attempt &attempt, const Place &own, const Place &other, const boot::Secret &key, Nanos each,
                 Deadline deadline) {
  Measured out;
  const int fd = attempt.fd.get();
  Status s = measure_latency(fd, out, deadline);
  if (s.ok()) s = measure_clock(fd, out, deadline);
  if (!s.ok()) out.problem = "small messages: " + s.error().message;
  measure_mtu(own, other, key, out, Deadline::in(deadline.left() / 2)); // the rest is for what takes a stream
  if (!s.ok()) return out;
  s = measure_bandwidth(fd, true, &out.out_gbs, each, deadline);
  if (s.ok()) s = measure_bandwidth(fd, false, &out.in_gbs, each, deadline);
  if (!s.ok()) out.problem = "large messages: " + s.error().message;
  read_tcp_info(attempt);
  return out;
}

} // namespace tutti::doctor
