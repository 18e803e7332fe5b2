#include "tools/doctor/wire.h"
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <poll.h>

namespace tutti::doctor {

nlohmann::json to_json(const Place &p) {
  return {{"interface", p.interface}, {"address", p.address}, {"prefix", p.prefix},    {"port", p.port},
          {"datagrams", p.datagrams}, {"mtu", p.mtu},         {"speed", p.speed_mbps}, {"made", p.made}};
}

std::optional<Place> place_from(const nlohmann::json &j) {
  try {
    Place p;
    p.interface = j.at("interface").get<std::string>();
    p.address = j.at("address").get<std::string>();
    p.prefix = j.at("prefix").get<uint32_t>();
    p.port = j.at("port").get<uint16_t>();
    p.datagrams = j.at("datagrams").get<uint16_t>();
    p.mtu = j.at("mtu").get<int64_t>();
    p.speed_mbps = j.at("speed").get<int64_t>();
    p.made = j.at("made").get<bool>();
    const auto e = endpoint_of(p, p.port);
    if (e && p.prefix <= (e->family() == AF_INET ? 32u : 128u)) return p;
  } catch (const nlohmann::json::exception &) { // another version of this program
  }
  return std::nullopt;
}

std::optional<boot::Endpoint> endpoint_of(const Place &place, uint16_t port) {
  boot::Endpoint e;
  auto *v4 = reinterpret_cast<sockaddr_in *>(&e.storage);
  auto *v6 = reinterpret_cast<sockaddr_in6 *>(&e.storage);
  if (inet_pton(AF_INET, place.address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    e = {};
    if (inet_pton(AF_INET6, place.address.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
    v6->sin6_family = AF_INET6;
  }
  e.set_port(port);
  return e;
}

bool same_subnet(const Place &a, const Place &b) {
  unsigned char x[16], y[16];
  const int family = a.address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(family, a.address.c_str(), x) != 1 || inet_pton(family, b.address.c_str(), y) != 1) return false;
  for (uint32_t i = 0; i < a.prefix; i++)
    if ((x[i / 8] ^ y[i / 8]) & (0x80 >> (i % 8))) return false;
  return true;
}

std::array<std::byte, 16> encode(const Request &r) {
  boot::Writer w;
  w.u32(static_cast<uint32_t>(r.op));
  w.u32(r.count);
  w.u64(r.bytes);
  std::array<std::byte, 16> out{};
  const Bytes bytes = w.take();
  std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

Request decode_request(std::span<const std::byte, 16> bytes) {
  boot::Reader r(bytes);
  Request out;
  out.op = static_cast<Op>(r.u32());
  out.count = r.u32();
  out.bytes = r.u64();
  return out;
}

namespace {
Status wait_for(int fd, short events, Deadline deadline) {
  pollfd p{fd, events, 0};
  while (true) {
    const int n = poll(&p, 1, deadline.left_ms());
    if (n > 0) return {};
    if (n == 0) return fail(Code::timeout, "nothing moved in time").sys(ETIMEDOUT);
    if (errno != EINTR) return fail_errno(errno, "poll");
  }
}
} // namespace

Status send_all(int fd, const void *data, size_t bytes, Deadline deadline) {
  const auto *at = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_errno(errno, "sending");
    if (n < 0)
      TUTTI_TRY(wait_for(fd, POLLOUT, deadline));
    else
      at += n, bytes -= static_cast<size_t>(n);
  }
  return {};
}

Status receive_all(int fd, void *data, size_t bytes, Deadline deadline) {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
    if (n == 0) return fail(Code::remote, "the other end closed the connection").sys(ECONNRESET);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_errno(errno, "receiving");
    if (n < 0)
      TUTTI_TRY(wait_for(fd, POLLIN, deadline));
    else
      at += n, bytes -= static_cast<size_t>(n);
  }
  return {};
}

namespace {
constexpr uint64_t kDatagramMagic = 0x7475747469646f63;

boot::Secret datagram_proof(const boot::Secret &key, std::span<const std::byte> nonce, uint32_t size) {
  boot::Writer w;
  w.raw(nonce);
  w.u32(size);
  const Bytes data = w.take();
  return boot::derive(key, "tutti doctor datagram", data);
}
} // namespace

std::vector<std::byte> make_datagram(const boot::Secret &key, std::span<const std::byte, 16> nonce, uint32_t size) {
  boot::Writer w;
  w.u64(kDatagramMagic);
  w.raw(nonce);
  w.u32(size);
  w.raw(datagram_proof(key, nonce, size));
  std::vector<std::byte> out = w.take();
  out.resize(std::max<size_t>(size, kDatagramHead));
  return out;
}

bool datagram_proved(const boot::Secret &key, std::span<const std::byte> datagram) {
  if (datagram.size() < kDatagramHead) return false;
  boot::Reader r(datagram);
  if (r.u64() != kDatagramMagic) return false;
  const auto nonce = r.raw(16);
  const uint32_t size = r.u32();
  const auto proof = r.raw(32);
  const boot::Secret expected = datagram_proof(key, nonce, size);
  boot::Secret theirs;
  std::copy(proof.begin(), proof.end(), theirs.begin());
  return theirs == expected;
}

} // namespace tutti::doctor
