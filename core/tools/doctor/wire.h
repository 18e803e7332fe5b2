// tutti/core/tools/doctor/wire.h: what the two ends of a test of a pair say to each other, over TCP after the library's own
// handshake, and in datagrams.
#pragma once
#include "base/fd.h"
#include "base/time.h"
#include "bootstrap/crypto.h"
#include "bootstrap/wire.h"
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tutti::doctor {

// Where a host listens for tests.
struct Place {
  std::string interface, address; // address as text, without the port
  uint32_t prefix = 0;
  uint16_t port = 0, datagrams = 0; // TCP, UDP
  int64_t mtu = 0, speed_mbps = -1; // 0, -1 = not known
  bool made = false;                // of containers: others may not reach it
};
nlohmann::json to_json(const Place &place);
std::optional<Place> place_from(const nlohmann::json &json);
std::optional<boot::Endpoint> endpoint_of(const Place &place, uint16_t port);
bool same_subnet(const Place &a, const Place &b);

// Requests on a connection: 16 bytes, little endian.
enum class Op : uint32_t {
  ping = 1,  // count messages of `bytes` (at most kPingBytes) are sent back, one at a time
  take = 2,  // `bytes` follow; then 8 bytes say that they are there
  give = 3,  // `bytes` are sent
  clock = 4, // 8 bytes: the wall clock in ns, once for each of `count` single bytes that come
};
constexpr uint32_t kPingBytes = 4096;
constexpr uint64_t kMostBytes = 1ull << 32; // of take and give
struct Request {
  Op op{};
  uint32_t count = 0;
  uint64_t bytes = 0;
};
std::array<std::byte, 16> encode(const Request &r);
Request decode_request(std::span<const std::byte, 16> bytes);

// All of it by the deadline; the sockets do not block.
Status send_all(int fd, const void *data, size_t bytes, Deadline deadline);
Status receive_all(int fd, void *data, size_t bytes, Deadline deadline);

// A datagram of the size that it states, with a proof that its sender has the key. The answer is its head alone.
constexpr size_t kDatagramHead = 8 + 16 + 4 + 32;
std::vector<std::byte> make_datagram(const boot::Secret &key, std::span<const std::byte, 16> nonce, uint32_t size);
bool datagram_proved(const boot::Secret &key, std::span<const std::byte> datagram);

} // namespace tutti::doctor
