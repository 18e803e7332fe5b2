// tutti.host.tls/1: sessions for plugins.
#include "bootstrap/crypto.h"
#include "bootstrap/tls.h"
#include <algorithm>
#include <cstring>

struct tutti_tls {
  std::unique_ptr<tutti::boot::Tls> session;
  const tutti_host *host = nullptr;
  bool by_memory = false;
  tutti::Bytes out; // for take()
  size_t given = 0; // of it
};

namespace tutti {
namespace {

using boot::Tls;
constexpr uint32_t kLeastSecret = 16, kMostSecret = 4096, kMostContext = 65536;

tutti_status refuse(const tutti_host *host, tutti_status status, const std::string &why) {
  if (const void *diag = host->get_iface(host, TUTTI_HOST_DIAG))
    static_cast<const tutti_host_diag_v1 *>(diag)->set_error(host, status, why.c_str());
  return status;
}

tutti_status result(const tutti_tls &t, Tls::Step step) {
  switch (step) {
  case Tls::Step::done:
    return TUTTI_OK;
  case Tls::Step::again:
    return TUTTI_AGAIN;
  case Tls::Step::closed:
    return refuse(t.host, TUTTI_ERR_REMOTE, "the peer closed the encrypted connection");
  case Tls::Step::failed:
    break;
  }
  if (t.session->system_error() != 0) return refuse(t.host, TUTTI_ERR_REMOTE, t.session->error());
  return refuse(t.host, TUTTI_ERR_DENIED, "the encrypted connection failed: " + t.session->error());
}

Result<std::unique_ptr<tutti_tls>> make(const tutti_host *host, const tutti_tls_config &c) {
  const auto secret = std::span(static_cast<const std::byte *>(c.secret), c.secret_bytes);
  const auto context = std::span(static_cast<const std::byte *>(c.context), c.context_bytes);
  boot::Secret key = boot::derive(boot::hash_to_secret("tutti plugin secret", secret), "tutti plugin tls", context);
  auto session = Tls::create(c.role == TUTTI_TLS_CLIENT ? Tls::Role::client : Tls::Role::server, key, c.fd);
  if (!session.ok()) return std::move(session.status());
  auto made = std::make_unique<tutti_tls>();
  made->session = std::move(session).value();
  made->host = host;
  made->by_memory = c.fd < 0;
  return made;
}

tutti_status create(const tutti_host *host, const tutti_tls_config *config, tutti_tls **out) TUTTI_NOEXCEPT {
  tutti_tls_config c{};
  std::memcpy(&c, config, std::min<size_t>(config->struct_size, sizeof c));
  if (!boot::can_encrypt()) return refuse(host, TUTTI_ERR_UNSUPPORTED, "this library was built without OpenSSL");
  if (c.role > TUTTI_TLS_SERVER || !c.secret || c.secret_bytes < kLeastSecret || c.secret_bytes > kMostSecret ||
      c.context_bytes > kMostContext || (c.context_bytes && !c.context))
    return refuse(
        host, TUTTI_ERR_INVALID,
        fmt::format("a session with role {}, a secret of {} bytes and a context of {}: the role is 0 or 1, a secret has "
                    "{} to {} bytes, a context up to {}",
                    c.role, c.secret ? c.secret_bytes : 0, c.context_bytes, kLeastSecret, kMostSecret, kMostContext));
  try {
    auto made = make(host, c);
    if (!made.ok()) return refuse(host, TUTTI_ERR_NO_MEMORY, made.status().error().message);
    *out = made.value().release();
    return TUTTI_OK;
  } catch (const std::bad_alloc &) {
    return refuse(host, TUTTI_ERR_NO_MEMORY, "no memory for an encrypted connection");
  }
}

void destroy(tutti_tls *t) TUTTI_NOEXCEPT {
  delete t;
}

tutti_status handshake(tutti_tls *t) TUTTI_NOEXCEPT {
  return result(*t, t->session->handshake());
}

tutti_status too_early(const tutti_tls &t, uint64_t bytes) {
  return refuse(t.host, TUTTI_ERR_INVALID,
                bytes ? "the handshake of the encrypted connection is not over" : "0 bytes over an encrypted connection");
}

tutti_status write(tutti_tls *t, const tutti_tls_part *parts, uint32_t n, uint64_t *written) TUTTI_NOEXCEPT {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < n; i++) bytes += parts[i].bytes;
  if (!t->session->ready() || bytes == 0) return too_early(*t, bytes);
  if (bytes < t->session->owed())
    return refuse(t->host, TUTTI_ERR_INVALID,
                  fmt::format("{} bytes where {} were to be written before", bytes, t->session->owed()));
  size_t taken = 0;
  const Tls::Step step = t->session->write(std::span(parts, n), &taken);
  if (step == Tls::Step::done) *written = taken;
  return result(*t, step);
}

tutti_status read(tutti_tls *t, void *data, uint64_t cap, uint64_t *got) TUTTI_NOEXCEPT {
  if (!t->session->ready() || cap == 0) return too_early(*t, cap);
  size_t n = 0;
  const Tls::Step step = t->session->read(std::span(static_cast<std::byte *>(data), cap), &n);
  if (step == Tls::Step::done) *got = n;
  return result(*t, step);
}

uint32_t wants(const tutti_tls *t) TUTTI_NOEXCEPT {
  if (!t->session->ready()) return t->session->wants_write() ? TUTTI_TLS_READ | TUTTI_TLS_WRITE : TUTTI_TLS_READ;
  return t->session->wants_write() ? TUTTI_TLS_WRITE : TUTTI_TLS_READ;
}

int32_t sys_errno(const tutti_tls *t) TUTTI_NOEXCEPT {
  return t->session->system_error();
}

uint32_t in_kernel(const tutti_tls *) TUTTI_NOEXCEPT {
  return 0;
}

tutti_status feed(tutti_tls *t, const void *data, uint64_t bytes) TUTTI_NOEXCEPT {
  if (!t->by_memory) return refuse(t->host, TUTTI_ERR_INVALID, "bytes for a session that reads a descriptor");
  if (!t->session->feed(std::span(static_cast<const std::byte *>(data), bytes)))
    return refuse(t->host, TUTTI_ERR_NO_MEMORY, fmt::format("no memory for {} bytes of an encrypted connection", bytes));
  return TUTTI_OK;
}

tutti_status take(tutti_tls *t, void *data, uint64_t cap, uint64_t *bytes) TUTTI_NOEXCEPT {
  if (!t->by_memory) return refuse(t->host, TUTTI_ERR_INVALID, "bytes of a session that writes a descriptor");
  if (t->given == t->out.size()) {
    t->out = t->session->take();
    t->given = 0;
  }
  *bytes = std::min<uint64_t>(cap, t->out.size() - t->given);
  if (*bytes) std::memcpy(data, t->out.data() + t->given, *bytes);
  t->given += *bytes;
  return TUTTI_OK;
}

} // namespace

const tutti_host_tls_v1 *host_tls_service() {
  static const tutti_host_tls_v1 table = {
      sizeof(tutti_host_tls_v1), 0, create, destroy, handshake, write, read, wants, sys_errno, in_kernel, feed, take};
  return &table;
}

} // namespace tutti
