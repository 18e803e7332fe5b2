// tutti/plugins/net-socket/resume.h: how a sender goes on, on a new socket, with a stream whose socket was lost.
//
//   sender -> receiver   Hello     which stream, which attempt, what the sender has done with the stream so far, a nonce
//   receiver -> sender   Answer    a nonce, and the MAC of (role, hello, nonce) under the secret of the connection; or that it
//   has
//                                  no such stream (any more)
//   sender -> receiver   Proof     the MAC of the same with its own role; then both make a session, where they are to encrypt
//   receiver -> sender   State     from which byte on the sender shall go on, and the MAC of that
// The receiver gives nothing away and changes nothing before the proof; both nonces are in every MAC, so that nothing that was
// recorded serves again. The secret is that of the listener which had accepted the connection.
#pragma once
#include "handshake.h"

namespace tutti::net_socket {

struct ResumeHello {
  uint8_t magic[8];
  uint16_t version, index; // of the stream in its connection: 0 control
  uint32_t attempt;        // counts up
  Identity connection;     // of the first handshake
  Identity wire;           // of the new socket
  // Where the control stream went over to a socket of the other direction, and the record that says so ends; 0: it did not.
  Identity moved_to;
  uint64_t moved_at;
  uint64_t void_before; // records that begin before this position mean nothing any more
  uint8_t nonce[32];
};
struct ResumeAnswer {
  uint32_t unknown; // 1: no such stream here
  uint32_t reserved;
  uint8_t nonce[32];
  uint8_t mac[crypto_auth_BYTES];
};
struct ResumeState {
  uint64_t position;
  uint8_t mac[crypto_auth_BYTES];
};
static_assert(sizeof(ResumeHello) == 112 && sizeof(ResumeAnswer) == 72 && sizeof(ResumeState) == 40);

ResumeHello make_resume_hello(uint16_t index, uint32_t attempt, const Identity &connection);

// Both sides report `again`, `closed`, `denied` and `failed` as the first handshake does; the sender's `unknown` besides, and
// `done` when position() may be used.
class ResumeDialler {
public:
  ResumeDialler(const ResumeHello &hello, const Secret &secret, const Encryption *encryption)
      : hello_(hello), secret_(secret), securing_(encryption) {}
  Step advance(Fd &fd);
  bool unknown() const { return answer_.unknown == 1; } // after `denied`
  uint64_t position() const { return state_.position; }
  const ResumeHello &hello() const { return hello_; }
  int error() const { return securing_.error() ? securing_.error() : transfer_.error(); }

private:
  ResumeHello hello_;
  Secret secret_;
  ResumeAnswer answer_{};
  Proof proof_{};
  ResumeState state_{};
  int stage_ = 0;
  Transfer transfer_;
  Securing securing_;
};

// The receiver's: `verified` once when the sender has proved itself; then finish() with the position.
class ResumeAcceptor {
public:
  // The secret of a stream, null: there is none.
  using Find = const Secret *(*)(void *where, const ResumeHello &hello);
  explicit ResumeAcceptor(const Encryption *encryption) : securing_(encryption) {}
  Step advance(Fd &fd, Find find, void *where);
  const ResumeHello &hello() const { return hello_; }
  bool finish(const Fd &fd, uint64_t position); // false: it cannot be said

private:
  ResumeHello hello_{};
  Secret secret_{};
  ResumeAnswer answer_{};
  Proof proof_{};
  int stage_ = 0;
  Transfer transfer_;
  Securing securing_;
};

} // namespace tutti::net_socket
