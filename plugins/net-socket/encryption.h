// tutti/plugins/net-socket/encryption.h: a socket's TLS session, by tutti.host.tls/1.
//
// Where a context is to encrypt, each socket goes on in a session as soon as both ends have proved themselves: under the secret
// that they proved, and with what they said for that. Everything that counts bytes of a stream counts plain ones.
#pragma once
#include "tutti/plugin/cxx/host.hpp"
#include "tutti/plugin/host_tls.h"
#include <memory>
#include <sys/types.h>
#include <sys/uio.h>
#include <vector>

namespace tutti::net_socket {

using plugin::Host;

class Session {
public:
  static constexpr uint64_t most_record = 16 << 10; // plain bytes that arrive together or not at all
  Session(const Host &host, const tutti_host_tls_v1 &tls, tutti_tls_role role, int fd, const void *secret, size_t secret_bytes,
          const std::vector<uint8_t> &said);
  ~Session() { tls_.destroy(session_); }
  Session(const Session &) = delete;

  // 1 done, 0 to be called again, -1 with errno.
  int handshake();
  // As sendmsg() and recvmsg() of a non-blocking socket, but that both go on until there is nothing more to do.
  ssize_t write(const iovec *parts, int count);
  ssize_t read(const iovec *parts, int count);
  // Takes what has come out of the kernel, once: so many bytes read() still gives, and no more.
  uint64_t drain();

private:
  int error(tutti_status s) const;
  ssize_t read_held(const iovec *parts, int count);
  const tutti_host_tls_v1 &tls_;
  tutti_tls *session_ = nullptr;
  bool drained_ = false;
  std::vector<uint8_t> held_;
  size_t held_at_ = 0;
};

// What a context needs to encrypt; null: it does not.
struct Encryption {
  Host host;
  const tutti_host_tls_v1 &tls;
};

} // namespace tutti::net_socket
