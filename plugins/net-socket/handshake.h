// tutti/plugins/net-socket/handshake.h: how the two ends of a socket prove to each other that they know the listener's secret.
//
//   connector -> acceptor   Hello    which connection, which of its sockets, how messages are striped, a nonce
//   acceptor -> connector   Answer   a nonce, and the MAC of (role, hello, nonce) under the secret
//   connector -> acceptor   Proof    the MAC of the same with its own role
// and then both make a TLS session, where the context is to encrypt.
// The secret itself never travels here; it reaches the connector over the core's channel, in the address.
#pragma once
#include "wires.h"
#include <sodium.h>

namespace tutti::net_socket {

struct Secret {
  uint8_t bytes[crypto_auth_KEYBYTES];
};

// The address of a listener: every place where it listens, best first. Fixed width, little endian as all our hosts.
struct Place {
  uint16_t family, port; // 4 or 6
  uint8_t ip[16];
};
struct Blob {
  static constexpr uint16_t capacity = 10;
  uint32_t magic;
  uint16_t version, count;
  Place places[capacity];
  uint16_t resume[capacity]; // at each place: the port for lost connections, 0: none
  Identity listener;         // the context that listens
  Secret secret;
};
inline constexpr uint32_t blob_magic = 0x74536b74;
inline constexpr uint16_t wire_version = 3;

struct Hello {
  uint8_t magic[8];
  uint16_t version, index, count; // index 0: control; count: sockets of the connection
  uint16_t resumes;               // 1: the connector comes back when the connection is lost
  uint64_t min_task;
  Identity connection, from; // equal for all sockets of one connection; the context that connects
  uint8_t nonce[32];
};
struct Answer {
  uint8_t nonce[32];
  uint8_t mac[crypto_auth_BYTES];
};
struct Proof {
  uint8_t mac[crypto_auth_BYTES];
};
static_assert(sizeof(Blob) == 276 && sizeof(Hello) == 88);

Blob make_blob(const Secret &secret, const Identity &listener);
void add_place(Blob &blob, const Address &address, uint16_t resume_port);
// Throws on anything that those two would not have written. link_local addresses take the connector's interface.
std::vector<Address> blob_places(const Blob &blob, uint32_t interface_index);
// Of those the ones where a lost connection can be resumed, with the port for that.
std::vector<Address> resume_places(const Blob &blob, uint32_t interface_index);

enum class Step { again, verified, done, closed, denied, failed };

// Moves the bytes of one struct over a non-blocking socket, piece by piece.
class Transfer {
public:
  Step send(const Fd &fd, const void *data, size_t bytes);
  Step receive(const Fd &fd, void *data, size_t bytes);
  int error() const { return error_; }

private:
  size_t done_ = 0;
  int error_ = 0;
};

// The last part of a handshake: the socket gets its session, if any, under the secret and what both have said.
class Securing {
public:
  explicit Securing(const Encryption *encryption) : encryption_(encryption) {}
  Step advance(Fd &fd, tutti_tls_role role, const Secret &secret, const void *said, size_t bytes, const uint8_t (&nonce)[32]);
  int error() const { return error_; }

private:
  const Encryption *encryption_;
  int error_ = 0;
};

class ConnectorHandshake {
public:
  ConnectorHandshake(const Hello &hello, const Secret &secret, const Encryption *encryption);
  // `verified`: the other side knows the secret; the proof goes out after confirm().
  Step advance(Fd &fd);
  void confirm() { stage_ = 3; }
  int error() const { return securing_.error() ? securing_.error() : transfer_.error(); }

private:
  Hello hello_;
  Secret secret_;
  Answer answer_{};
  Proof proof_{};
  int stage_ = 0;
  Transfer transfer_;
  Securing securing_;
};

class AcceptorHandshake {
public:
  AcceptorHandshake(const Secret &secret, const Encryption *encryption) : secret_(secret), securing_(encryption) {}
  Step advance(Fd &fd);
  const Hello &hello() const { return hello_; } // trustworthy once advance() said done

private:
  Secret secret_;
  Hello hello_{};
  Answer answer_{};
  Proof proof_{};
  int stage_ = 0;
  Transfer transfer_;
  Securing securing_;
};

Hello make_hello(uint16_t index, uint16_t count, bool resumes, uint64_t min_task, const Identity &connection,
                 const Identity &from);

} // namespace tutti::net_socket
