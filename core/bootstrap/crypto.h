// tutti/core/bootstrap/crypto.h: keys and proofs of control connections (libsodium behind it).
#pragma once
#include "bootstrap/wire.h"

namespace tutti::boot {

void random_bytes(std::span<std::byte> out);
uint64_t random_u64();
// Keyed hash of label and data: what is derived tells nothing about the key. Labels separate uses.
Secret derive(const Secret &key, std::string_view label, std::span<const std::byte> data);
uint64_t derive_u64(const Secret &key, std::string_view label, std::span<const std::byte> data);
Secret hash_to_secret(std::string_view label, std::span<const std::byte> data);
uint64_t hash_u64(std::string_view label, std::string_view data);

// Of all that both ends have said: nobody between them can have changed it.
Mac server_mac(const Secret &key, const Hello &hello, const Challenge &challenge);
Mac client_mac(const Secret &key, const Hello &hello, const Challenge &challenge);
Secret tls_secret(const Secret &key, const Hello &hello, const Challenge &challenge); // for the rest of the connection
bool same(const Mac &a, const Mac &b);                                                // in constant time

// What a unique id stands for.
struct Identity {
  uint64_t comm = 0;
  Secret key{};
};
Identity root_identity(const UniqueId &id);            // comm = id.base
Identity comm_identity(std::span<const UniqueId> ids); // ids: of all roots
uint64_t hash_ids(std::span<const UniqueId> ids);      // tells nothing of their secrets
// What only those who know the key can read, and nobody else can have written.
Bytes seal(const Secret &key, std::span<const std::byte> data);
std::optional<Bytes> unseal(const Secret &key, std::span<const std::byte> box);
Identity child_identity(const Identity &parent, uint64_t split, int color);
Identity shrunk_identity(const Identity &parent, uint64_t nonce, std::span<const int> members);
// Under what processes of a job ask each other (core/ras), and tools that have its secret; it tells nothing of that.
Identity ask_identity(const Secret &secret);
// comm 0: within a host, where the kernel says who asks.
Identity local_ask_identity();

} // namespace tutti::boot
