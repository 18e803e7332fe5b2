#include "bootstrap/crypto.h"
#include <cstring>
#include <sodium.h>

namespace tutti::boot {
namespace {

void ready() {
  static const int done = sodium_init(); // needed before use from several threads
  (void)done;
}

template <size_t N>
std::array<std::byte, N> plain_hash(std::span<const std::byte> key, std::string_view label, std::span<const std::byte> data) {
  ready();
  std::array<std::byte, N> out;
  crypto_generichash_state s;
  crypto_generichash_init(&s, reinterpret_cast<const unsigned char *>(key.data()), key.size(), N);
  const uint8_t length = static_cast<uint8_t>(label.size()); // so that label and data cannot be confused
  crypto_generichash_update(&s, &length, 1);
  crypto_generichash_update(&s, reinterpret_cast<const unsigned char *>(label.data()), label.size());
  crypto_generichash_update(&s, reinterpret_cast<const unsigned char *>(data.data()), data.size());
  crypto_generichash_final(&s, reinterpret_cast<unsigned char *>(out.data()), N);
  return out;
}

Secret secret_hash(std::span<const std::byte> key, std::string_view label, std::span<const std::byte> data) {
  auto plain = plain_hash<Secret::kBytes>(key, label, data);
  const Secret out(plain);
  wipe(plain);
  return out;
}

uint64_t first_u64(const Secret &s) {
  uint64_t v = 0;
  std::memcpy(&v, s.data(), sizeof v);
  return v;
}

Bytes over_both(const Hello &hello, const Challenge &challenge) {
  Writer w;
  w.raw(encode(hello));
  w.u16(challenge.security);
  w.raw(challenge.nonce);
  return w.take();
}

} // namespace

void random_bytes(std::span<std::byte> out) {
  ready();
  randombytes_buf(out.data(), out.size());
}

uint64_t random_u64() {
  uint64_t v = 0;
  random_bytes(std::as_writable_bytes(std::span(&v, 1)));
  return v;
}

Secret derive(const Secret &key, std::string_view label, std::span<const std::byte> data) {
  return secret_hash(key, label, data);
}
uint64_t derive_u64(const Secret &key, std::string_view label, std::span<const std::byte> data) {
  return first_u64(derive(key, label, data));
}
Secret hash_to_secret(std::string_view label, std::span<const std::byte> data) {
  return secret_hash({}, label, data);
}
uint64_t hash_u64(std::string_view label, std::string_view data) {
  return first_u64(hash_to_secret(label, std::as_bytes(std::span(data.data(), data.size()))));
}

Mac server_mac(const Secret &key, const Hello &hello, const Challenge &challenge) {
  return plain_hash<sizeof(Mac)>(key, "tutti server", over_both(hello, challenge));
}
Mac client_mac(const Secret &key, const Hello &hello, const Challenge &challenge) {
  return plain_hash<sizeof(Mac)>(key, "tutti client", over_both(hello, challenge));
}
Secret tls_secret(const Secret &key, const Hello &hello, const Challenge &challenge) {
  return secret_hash(key, "tutti tls", over_both(hello, challenge));
}
bool same(const Mac &a, const Mac &b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Identity root_identity(const UniqueId &id) {
  return {id.base, derive(id.secret, "tutti root", {})};
}

namespace {
void put_rest(Writer &w, std::span<const UniqueId> ids) { // those after the first
  for (size_t i = 1; i < ids.size(); i++) {
    const tuttiUniqueId raw = encode(ids[i]);
    w.raw(std::as_bytes(std::span(raw.internal)));
  }
}
} // namespace

Identity comm_identity(std::span<const UniqueId> ids) {
  const UniqueId &id = ids.front();
  Writer w;
  w.u64(id.base);
  w.u32(id.generation);
  put_rest(w, ids);
  const Bytes data = w.take();
  return {derive_u64(id.secret, "tutti comm id", data), derive(id.secret, "tutti comm key", data)};
}

uint64_t hash_ids(std::span<const UniqueId> ids) {
  Writer w;
  w.u64(ids.front().base);
  w.u32(ids.front().generation);
  put_rest(w, ids);
  return derive_u64(ids.front().secret, "tutti ids", w.take());
}

Bytes seal(const Secret &key, std::span<const std::byte> data) {
  ready();
  Bytes box(crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + data.size());
  random_bytes(std::span(box).first(crypto_secretbox_NONCEBYTES));
  const auto *nonce = reinterpret_cast<const unsigned char *>(box.data());
  crypto_secretbox_easy(reinterpret_cast<unsigned char *>(box.data() + crypto_secretbox_NONCEBYTES),
                        reinterpret_cast<const unsigned char *>(data.data()), data.size(), nonce,
                        reinterpret_cast<const unsigned char *>(key.data()));
  return box;
}

std::optional<Bytes> unseal(const Secret &key, std::span<const std::byte> box) {
  ready();
  constexpr size_t around = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES;
  if (box.size() < around) return {};
  Bytes data(box.size() - around);
  const auto *bytes = reinterpret_cast<const unsigned char *>(box.data());
  if (crypto_secretbox_open_easy(reinterpret_cast<unsigned char *>(data.data()), bytes + crypto_secretbox_NONCEBYTES,
                                 box.size() - crypto_secretbox_NONCEBYTES, bytes,
                                 reinterpret_cast<const unsigned char *>(key.data())) != 0)
    return {};
  return data;
}

Identity child_identity(const Identity &parent, uint64_t split, int color) {
  Writer w;
  w.u64(parent.comm);
  w.u64(split);
  w.i32(color);
  const Bytes data = w.take();
  return {derive_u64(parent.key, "tutti split id", data), derive(parent.key, "tutti split key", data)};
}

Identity shrunk_identity(const Identity &parent, uint64_t nonce, std::span<const int> members) {
  Writer w;
  w.u64(parent.comm);
  w.u64(nonce);
  for (const int r : members) w.i32(r);
  const Bytes data = w.take();
  return {derive_u64(parent.key, "tutti shrink id", data), derive(parent.key, "tutti shrink key", data)};
}

Identity ask_identity(const Secret &secret) {
  return {derive_u64(secret, "tutti ask id", {}) | 1, derive(secret, "tutti ask key", {})};
}

Identity local_ask_identity() {
  return {0, hash_to_secret("tutti ask on this host", {})};
}

} // namespace tutti::boot
