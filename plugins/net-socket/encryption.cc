// tutti/plugins/net-socket/encryption.cc
#include "encryption.h"
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::net_socket {

constexpr size_t max_parts = 256;
constexpr size_t drain_step = 64 << 10;

Session::Session(const Host &host, const tutti_host_tls_v1 &tls, tutti_tls_role role, int fd, const void *secret,
                 size_t secret_bytes, const std::vector<uint8_t> &said)
    : tls_(tls) {
  tutti_tls_config c{};
  c.struct_size = sizeof c;
  c.role = role;
  c.secret = secret;
  c.secret_bytes = static_cast<uint32_t>(secret_bytes);
  c.context = said.data();
  c.context_bytes = static_cast<uint32_t>(said.size());
  c.fd = fd;
  if (const tutti_status s = tls.create(host.c(), &c, &session_); s != TUTTI_OK) throw plugin::Error(s, "");
}

// The errno that a socket without encryption would have.
int Session::error(tutti_status s) const {
  if (s == TUTTI_AGAIN) return EAGAIN;
  if (s == TUTTI_ERR_DENIED) return EBADMSG;
  return s == TUTTI_ERR_REMOTE ? tls_.sys_errno(session_) : EPROTO;
}

int Session::handshake() {
  const tutti_status s = tls_.handshake(session_);
  if (s == TUTTI_OK) return 1;
  if (s == TUTTI_AGAIN) return 0;
  errno = error(s);
  return -1;
}

ssize_t Session::write(const iovec *parts, int count) {
  tutti_tls_part rest[max_parts];
  uint32_t n = 0;
  for (int i = 0; i < count && n < max_parts; ++i) rest[n++] = {parts[i].iov_base, parts[i].iov_len};
  tutti_tls_part *at = rest;
  uint64_t all = 0;
  for (;;) {
    while (n > 0 && at->bytes == 0) ++at, --n;
    if (n == 0) return static_cast<ssize_t>(all);
    uint64_t written = 0;
    const tutti_status s = tls_.write(session_, at, n, &written);
    if (s != TUTTI_OK) {
      if (all > 0) return static_cast<ssize_t>(all); // the error is told again
      errno = error(s);
      if (errno == 0) errno = EPIPE;
      return -1;
    }
    all += written;
    for (; n > 0 && written >= at->bytes; ++at, --n) written -= at->bytes;
    if (n > 0) *at = {static_cast<const uint8_t *>(at->data) + written, at->bytes - written};
  }
}

ssize_t Session::read_held(const iovec *parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const size_t n = std::min(parts[i].iov_len, held_.size() - held_at_);
    if (n) std::memcpy(parts[i].iov_base, &held_[held_at_], n);
    held_at_ += n;
    all += static_cast<ssize_t>(n);
  }
  if (all > 0) return all;
  errno = ECONNRESET;
  return -1;
}

ssize_t Session::read(const iovec *parts, int count) {
  if (drained_) return read_held(parts, count);
  ssize_t all = 0;
  for (int i = 0; i < count; ++i)
    for (size_t at = 0; at < parts[i].iov_len;) {
      uint64_t got = 0;
      const tutti_status s = tls_.read(session_, static_cast<uint8_t *>(parts[i].iov_base) + at, parts[i].iov_len - at, &got);
      if (s != TUTTI_OK) {
        if (all > 0) return all; // the error is told again
        errno = error(s);
        return errno == 0 ? 0 : -1;
      }
      at += got;
      all += static_cast<ssize_t>(got);
    }
  return all;
}

uint64_t Session::drain() {
  while (!drained_) {
    const size_t old = held_.size();
    held_.resize(old + drain_step);
    const iovec part{&held_[old], drain_step};
    const ssize_t n = read(&part, 1);
    held_.resize(old + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    drained_ = n <= 0;
  }
  return held_.size() - held_at_;
}

} // namespace tutti::net_socket
