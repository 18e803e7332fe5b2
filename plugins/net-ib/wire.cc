// tutti/plugins/net-ib/wire.cc
#include "wire.h"
#include <cstring>
#include <random>

namespace tutti::net_ib {
namespace {

constexpr uint32_t card_magic = 0x74696201; // "tib", version 1

uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdu;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

uint32_t card_checksum(Card card) {
  card.checksum = 0;
  return static_cast<uint32_t>(checksum(&card, sizeof card));
}

} // namespace

uint64_t checksum(const void *bytes, size_t n) {
  const auto *p = static_cast<const unsigned char *>(bytes);
  uint64_t sum = mix(n + 1), word = 0;
  for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
    std::memcpy(&word, p, sizeof word);
    sum = mix(sum ^ word) + 0x9e3779b97f4a7c15u;
  }
  word = 0;
  std::memcpy(&word, p, n);
  return mix(sum ^ word);
}

uint64_t random_number() {
  std::random_device source; // the system's
  return uint64_t{source()} << 32 | source();
}

void seal(Card &card) {
  card.magic = card_magic;
  card.checksum = card_checksum(card);
}

bool genuine(const Card &c) {
  if (c.magic != card_magic || c.checksum != card_checksum(c)) return false;
  if (c.ports < 1 || c.ports > max_paths || c.paths < 1 || c.paths > max_paths) return false;
  if (c.active < 1 || c.active > c.paths || c.queues < 1 || c.paths * (c.queues + 1u) > card_qpns) return false;
  if (c.paths * uint32_t{c.queues} > max_shares) return false; // a message goes over all of them at once
  if (c.messages < 1 || c.messages > max_calls * max_batch || c.piece < 4096) return false;
  for (uint32_t p = 0; p < c.paths; ++p)
    if (c.path_port[p] >= c.ports) return false;
  for (uint32_t p = 0; p < c.ports; ++p)
    if (c.port[p].mtu < IBV_MTU_256 || c.port[p].mtu > IBV_MTU_4096) return false;
  return true;
}

uint32_t psn_of(const Card &card, uint32_t qpn) {
  return static_cast<uint32_t>(mix(uint64_t{card.psn} << 32 | qpn)) & 0xffffff;
}

} // namespace tutti::net_ib
