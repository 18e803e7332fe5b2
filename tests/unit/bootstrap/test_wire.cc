#include "bootstrap/crypto.h"
#include "bootstrap/launch.h"
#include "bootstrap/wire.h"
#include "help.h"
#include <arpa/inet.h>

using namespace tutti::boot;
using namespace help;

namespace {

Endpoint v4(const char *ip, uint16_t port) {
  Endpoint e;
  e.storage.ss_family = AF_INET;
  inet_pton(AF_INET, ip, &reinterpret_cast<sockaddr_in *>(&e.storage)->sin_addr);
  e.set_port(port);
  return e;
}

Endpoint v6(const char *ip, uint16_t port) {
  Endpoint e;
  e.storage.ss_family = AF_INET6;
  inet_pton(AF_INET6, ip, &reinterpret_cast<sockaddr_in6 *>(&e.storage)->sin6_addr);
  e.set_port(port);
  return e;
}

} // namespace

TEST_CASE("a unique id survives its 128 bytes and drops the addresses that do not fit") {
  UniqueId id;
  random_bytes(id.secret);
  id.base = random_u64();
  id.generation = 7;
  id.from_address = true;
  id.endpoints = {v4("10.0.0.1", 1234), v6("fd00::1", 99), v6("fd00::2", 99),
                  v6("fd00::3", 99),    v6("fd00::4", 99), v4("10.0.0.2", 1)};
  const auto back = decode(encode(id));
  REQUIRE(back.ok());
  CHECK(back.value().secret == id.secret);
  CHECK(back.value().base == id.base);
  CHECK(back.value().generation == 7);
  CHECK(back.value().from_address);
  REQUIRE(back.value().endpoints.size() >= 3);
  CHECK(back.value().endpoints[0].text() == "10.0.0.1:1234");
  CHECK(back.value().endpoints[1].text() == "[fd00::1]:99");
}

TEST_CASE("a unique id with any byte changed is refused") {
  UniqueId id;
  random_bytes(id.secret);
  id.endpoints = {v4("10.0.0.1", 1234)};
  const tuttiUniqueId good = encode(id);
  REQUIRE(decode(good).ok());
  for (size_t i = 0; i < sizeof good.internal; i++) {
    tuttiUniqueId bad = good;
    bad.internal[i] = static_cast<char>(bad.internal[i] ^ 1);
    CHECK_FALSE(decode(bad).ok());
  }
}

TEST_CASE("handshake messages and headers are refused when short, long or of unknown kind") {
  Hello h;
  h.comm = 5;
  h.from = 1;
  h.to = 0;
  Bytes b = encode(h);
  REQUIRE(b.size() == kHelloBytes);
  REQUIRE(decode_hello(b));
  CHECK(decode_hello(b)->comm == 5);
  CHECK_FALSE(decode_hello(std::span(b).first(kHelloBytes - 1)));
  b.push_back(std::byte(0));
  CHECK_FALSE(decode_hello(b));
  CHECK(encode(Challenge{}).size() == kChallengeBytes);
  CHECK(encode_proof(Mac{}).size() == kProofBytes);
  std::array<std::byte, kFrameHeader> header;
  encode(FrameHeader{kFrameLimit, FrameType::message, true, 9}, header.data());
  REQUIRE(decode_header(header));
  CHECK(decode_header(header)->fd);
  encode(FrameHeader{kFrameLimit + 1, FrameType::message, false, 9}, header.data());
  CHECK_FALSE(decode_header(header));
  encode(FrameHeader{1, static_cast<FrameType>(77), false, 9}, header.data());
  CHECK_FALSE(decode_header(header));
}

TEST_CASE("proofs differ by key, side, nonce and greeting") {
  Secret a{}, b{};
  b[0] = std::byte(1);
  Hello h, g;
  g.from = 3;
  Challenge n{}, m{}, e{};
  m.nonce[3] = std::byte(1);
  e.security = kCanEncrypt;
  const Mac base = server_mac(a, h, n);
  CHECK(same(base, server_mac(a, h, n)));
  CHECK_FALSE(same(base, server_mac(b, h, n)));
  CHECK_FALSE(same(base, client_mac(a, h, n)));
  CHECK_FALSE(same(base, server_mac(a, g, n)));
  CHECK_FALSE(same(base, server_mac(a, h, m)));
  CHECK_FALSE(same(base, server_mac(a, h, e)));
  g = h;
  g.security = kWantsEncryption;
  CHECK_FALSE(same(base, server_mac(a, g, n)));
}

TEST_CASE("errors and contacts travel, and their control characters do not") {
  Error e;
  e.code = Code::remote;
  e.peer = 5;
  e.message = "rank 5: closed\nfaked line";
  const auto back = decode_error(encode(e));
  REQUIRE(back);
  CHECK(back->peer == 5);
  CHECK(back->message == "rank 5: closed?faked line");
}

TEST_CASE("ranks are listed in groups and the list is bounded") {
  const std::vector<int> a{0, 2, 3, 5, 6, 7, 9};
  CHECK(list_ranks(a) == "0, 2, 3, 5-7, 9");
  std::vector<int> b;
  for (int i = 0; i < 100; i++) b.push_back(2 * i);
  CHECK(list_ranks(b, 2) == "0, 2 and 98 more");
}

TEST_CASE("host:port is taken with names, IPv4 and bracketed IPv6 only") {
  CHECK(parse_host_port("a.b:80").value().host == "a.b");
  CHECK(parse_host_port("[fd00::1]:80").value().host == "fd00::1");
  CHECK(parse_host_port("[fd00::1]:80").value().port == 80);
  for (const char *bad : {"", "a", "a:", ":80", "a:0", "a:65536", "fd00::1:80", "[fd00::1]", "[]:80", "a:80x", "a b:80"})
    CHECK_FALSE(parse_host_port(bad).ok());
}
