// tutti/core/bootstrap/tls.h: one end of a TLS 1.3 session between two that share a secret: no certificates, a new key for each
// session that the secret alone does not tell (PSK with Diffie-Hellman). OpenSSL is behind it, and nowhere else; without it
// nothing can be made here.
#pragma once
#include "bootstrap/wire.h"
#include "tutti/plugin/host_tls.h"
#include <memory>

namespace tutti::boot {

// Whether this build can encrypt, and if not, why.
bool can_encrypt();
// The process's core.security, of the latest communicator or root: an error where it cannot be had. [any thread]
Status use_security(const Config &config);
bool wants_encryption();

// Used by one thread at a time. With a descriptor (borrowed, non-blocking) the session reads and writes it; without one, what
// comes is fed to it and what goes out is taken from it.
class Tls {
public:
  enum class Role { client, server }; // the client speaks first
  enum class Step { done, again, closed, failed };
  static constexpr size_t kMostRecord = 16 << 10;

  static Result<std::unique_ptr<Tls>> create(Role role, const Secret &secret, int fd = -1);
  ~Tls();
  Tls(const Tls &) = delete;

  Step handshake();
  bool ready() const { return ready_; }
  // Takes as much as the descriptor has room for. What it does not take begins the next call: the same bytes, and no fewer.
  // `again`: nothing was taken.
  Step write(std::span<const tutti_tls_part> parts, size_t *taken);
  Step write(std::span<const std::byte> plain, size_t *taken);
  Step read(std::span<std::byte> plain, size_t *got);
  size_t owed() const;      // bytes that write() expects again
  bool wants_write() const; // something waits for room at the descriptor
  int system_error() const {
    return errno_;
  } // after `failed`: an errno where the connection broke, 0 where what came is no TLS
  const std::string &error() const { return error_; }

  // Without a descriptor.
  bool feed(std::span<const std::byte> sealed); // false: no memory for it
  Bytes take();                                 // what is to go out

private:
  struct Impl;
  explicit Tls(std::unique_ptr<Impl> impl);
  Step outcome(int result);
  Step seal(std::span<const std::byte> plain, size_t *taken);
  Step flush();
  Step over();
  size_t gave();
  Step seal_all(std::span<const tutti_tls_part> parts);
  std::unique_ptr<Impl> impl_;
  bool ready_ = false;
  uint64_t records_ = 0; // sent under the present key
  int errno_ = 0;
  std::string error_;
};

} // namespace tutti::boot

namespace tutti {
const tutti_host_tls_v1 *host_tls_service(); // the table of tutti.host.tls/1; static
} // namespace tutti
