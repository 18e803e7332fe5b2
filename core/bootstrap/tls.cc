#include "bootstrap/tls.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

namespace tutti::boot {
namespace {

constexpr const char *kIdentity = "tutti"; // of the secret; which one it is follows from the connection
constexpr uint64_t kMostRecords = 1 << 23; // RFC 8446 5.5: AES-GCM keys serve for 2^24.5 records

constexpr size_t kReadAhead = 64 << 10;      // of a descriptor, in one call
constexpr size_t kWriteTogether = 128 << 10; // to a descriptor

struct Free {
  void operator()(SSL *s) const { SSL_free(s); }
  void operator()(SSL_CTX *c) const { SSL_CTX_free(c); }
  void operator()(SSL_SESSION *s) const { SSL_SESSION_free(s); }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

// ---- how a session reads a socket, and where it writes to

struct Socket {
  int fd = -1;
  int broken = 0; // an errno: the system tells it only once, to the first who asks
  Bytes sealed;   // on its way to the kernel
};

int socket_write(BIO *bio, const char *data, int bytes) {
  Bytes &to = static_cast<Socket *>(BIO_get_data(bio))->sealed;
  const auto *first = reinterpret_cast<const std::byte *>(data);
  to.insert(to.end(), first, first + bytes);
  return bytes;
}

int socket_read(BIO *bio, char *data, int bytes) {
  BIO_clear_retry_flags(bio);
  auto &socket = *static_cast<Socket *>(BIO_get_data(bio));
  ssize_t n;
  do n = ::recv(socket.fd, data, static_cast<size_t>(bytes), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    BIO_set_retry_read(bio);
  else if (n < 0)
    socket.broken = errno;
  return static_cast<int>(n);
}

long socket_ctrl(BIO *, int command, long, void *) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO *socket_bio(Socket *socket) {
  static BIO_METHOD *const method = [] {
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket of tutti");
    if (!m) return m;
    BIO_meth_set_read(m, socket_read);
    BIO_meth_set_write(m, socket_write);
    BIO_meth_set_ctrl(m, socket_ctrl);
    return m;
  }();
  BIO *bio = method ? BIO_new(method) : nullptr;
  if (!bio) return nullptr;
  BIO_set_data(bio, socket);
  BIO_set_init(bio, 1);
  return bio;
}

// ---- what all sessions have alike

SSL_SESSION *session_of(SSL *ssl, const Secret &secret) {
  const unsigned char id[] = {0x13, 0x01}; // TLS_AES_128_GCM_SHA256: its hash is that of the secret
  Owned<SSL_SESSION> s(SSL_SESSION_new());
  const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, id);
  if (!s || !cipher || SSL_SESSION_set_cipher(s.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(s.get(), TLS1_3_VERSION) != 1 ||
      SSL_SESSION_set1_master_key(s.get(), reinterpret_cast<const unsigned char *>(secret.data()), secret.size()) != 1)
    return nullptr;
  return s.release();
}

const Secret &secret_of(SSL *ssl) {
  return *static_cast<const Secret *>(SSL_get_app_data(ssl));
}

int offer(SSL *ssl, const EVP_MD *, const unsigned char **id, size_t *bytes, SSL_SESSION **session) {
  *id = reinterpret_cast<const unsigned char *>(kIdentity);
  *bytes = std::strlen(kIdentity);
  *session = session_of(ssl, secret_of(ssl));
  return *session ? 1 : 0;
}

int find(SSL *ssl, const unsigned char *id, size_t bytes, SSL_SESSION **session) {
  *session = nullptr; // an unknown identity: no certificate is there, so the handshake fails
  if (bytes != std::strlen(kIdentity) || std::memcmp(id, kIdentity, bytes) != 0) return 1;
  *session = session_of(ssl, secret_of(ssl));
  return *session ? 1 : 0;
}

SSL_CTX *make_context() {
  // The host program's own settings, files and end are left alone, and ours do not depend on them.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  OSSL_LIB_CTX *library = OSSL_LIB_CTX_new();
  Owned<SSL_CTX> c(library ? SSL_CTX_new_ex(library, nullptr, TLS_method()) : nullptr);
  if (!c || SSL_CTX_set_min_proto_version(c.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(c.get(), "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(c.get(), "X25519:P-256") != 1)
    return nullptr;
  SSL_CTX_set_options(c.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(c.get(), 0);
  SSL_CTX_set_session_cache_mode(c.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(c.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_verify(c.get(), SSL_VERIFY_NONE, nullptr); // the secret proves who it is
  SSL_CTX_set_psk_use_session_callback(c.get(), offer);
  SSL_CTX_set_psk_find_session_callback(c.get(), find);
  return c.release();
}

SSL_CTX *context() {
  static SSL_CTX *const made = make_context(); // lives as long as the process: threads may end after main()
  return made;
}

std::string reason() {
  const unsigned long code = ERR_peek_last_error();
  const char *text = code ? ERR_reason_error_string(code) : nullptr;
  return text ? text : "no reason given";
}

} // namespace

bool can_encrypt() {
  return true;
}

struct Tls::Impl {
  Secret secret{};
  Socket socket;
  BIO *in = nullptr, *out = nullptr; // the session's own
  Owned<SSL> ssl;
  // With a descriptor: sealed records on their way to the kernel, and how many plain bytes end where.
  struct Record {
    size_t end, plain;
  };
  size_t given = 0; // of it, to the kernel
  std::deque<Record> records;
  size_t sealed_plain = 0; // in all records
  ~Impl() { OPENSSL_cleanse(secret.data(), secret.size()); }
  void collect(Bytes *to) { // what the session has to say
    char *data = nullptr;
    const long bytes = BIO_get_mem_data(out, &data);
    if (bytes <= 0) return;
    to->insert(to->end(), reinterpret_cast<std::byte *>(data), reinterpret_cast<std::byte *>(data) + bytes);
    (void)BIO_reset(out);
  }
};

Tls::Tls(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tls::~Tls() = default;

Result<std::unique_ptr<Tls>> Tls::create(Role role, const Secret &secret, int fd) {
  auto impl = std::make_unique<Impl>();
  impl->secret = secret;
  impl->socket.fd = fd;
  impl->ssl.reset(context() ? SSL_new(context()) : nullptr);
  if (!impl->ssl) return fail(Code::system, "OpenSSL cannot start: {}", reason());
  SSL *ssl = impl->ssl.get();
  impl->in = fd >= 0 ? socket_bio(&impl->socket) : BIO_new(BIO_s_mem());
  impl->out = fd >= 0 ? impl->in : BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, impl->in, impl->out);
  if (fd >= 0) {
    SSL_clear_mode(ssl, SSL_MODE_RELEASE_BUFFERS); // in use all the time
    SSL_set_read_ahead(ssl, 1);
    SSL_set_default_read_buffer_len(ssl, kReadAhead);
  }
  if (!impl->in || !impl->out) return fail(Code::system, "OpenSSL has no memory");
  SSL_set_app_data(ssl, &impl->secret);
  if (role == Role::client)
    SSL_set_connect_state(ssl);
  else
    SSL_set_accept_state(ssl);
  return std::unique_ptr<Tls>(new Tls(std::move(impl)));
}

Tls::Step Tls::over() {
  errno_ = impl_->socket.broken;
  if (errno_ == 0) return Step::closed;
  error_ = std::strerror(errno_);
  return Step::failed;
}

// Of a call that gave `result`.
Tls::Step Tls::outcome(int result) {
  switch (SSL_get_error(impl_->ssl.get(), result)) {
  case SSL_ERROR_NONE:
    return Step::done;
  case SSL_ERROR_WANT_READ:
  case SSL_ERROR_WANT_WRITE:
    return Step::again;
  case SSL_ERROR_ZERO_RETURN:
    return Step::closed;
  case SSL_ERROR_SYSCALL:
    return over();
  default:
    if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return over();
    error_ = "TLS: " + reason();
    return Step::failed;
  }
}

Tls::Step Tls::handshake() {
  if (!ready_) {
    ERR_clear_error();
    const Step s = outcome(SSL_do_handshake(impl_->ssl.get()));
    if (impl_->socket.fd >= 0 && flush() == Step::failed && s != Step::failed) return Step::failed;
    if (s != Step::done) return s;
    ready_ = true;
    OPENSSL_cleanse(impl_->secret.data(), impl_->secret.size());
  }
  if (SSL_session_reused(impl_->ssl.get()) != 1) { // cannot be: there is no certificate
    error_ = "TLS: the session was made without the secret";
    return Step::failed;
  }
  return impl_->socket.fd >= 0 ? flush() : Step::done;
}

// One record, or a part of it that fits into one.
Tls::Step Tls::seal(std::span<const std::byte> plain, size_t *taken) {
  ERR_clear_error();
  const Step s =
      outcome(SSL_write_ex(impl_->ssl.get(), plain.data(), std::min(plain.size(), kMostRecord), taken) == 1 ? 1 : -1);
  if (s != Step::done) return s;
  if (++records_ >= kMostRecords && SSL_key_update(impl_->ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) records_ = 0;
  return s;
}

// What has been sealed goes to the descriptor.
Tls::Step Tls::flush() {
  Impl &i = *impl_;
  while (i.given < i.socket.sealed.size()) {
    if (i.socket.broken) return over();
    const ssize_t n =
        ::send(i.socket.fd, i.socket.sealed.data() + i.given, i.socket.sealed.size() - i.given, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Step::again;
    if (n < 0) i.socket.broken = errno;
    if (n < 0) return over();
    i.given += static_cast<size_t>(n);
  }
  return Step::done;
}

// Plain bytes whose records are with the kernel, wholly.
size_t Tls::gave() {
  Impl &i = *impl_;
  size_t plain = 0;
  for (; !i.records.empty() && i.records.front().end <= i.given; i.records.pop_front()) plain += i.records.front().plain;
  i.sealed_plain -= plain;
  if (i.given == i.socket.sealed.size()) {
    i.socket.sealed.clear();
    i.given = 0;
  }
  return plain;
}

// What was sealed before and not taken comes first, and is here again. Small parts go into one record.
Tls::Step Tls::seal_all(std::span<const tutti_tls_part> parts) {
  Impl &i = *impl_;
  size_t skip = i.sealed_plain;
  size_t at = 0; // of the part
  const auto left = [&](const tutti_tls_part &p) { return p.bytes - at; };
  while (!parts.empty() && (skip > 0 || i.socket.sealed.size() < kWriteTogether)) {
    if (const size_t n = std::min<size_t>(skip, left(parts.front())); n > 0 || left(parts.front()) == 0) {
      skip -= n;
      at += n;
      if (left(parts.front()) == 0) parts = parts.subspan(1), at = 0;
      continue;
    }
    std::byte joined[kMostRecord];
    std::span<const std::byte> record(static_cast<const std::byte *>(parts.front().data) + at,
                                      std::min<size_t>(kMostRecord, left(parts.front())));
    if (record.size() < kMostRecord && parts.size() > 1) {
      size_t used = 0, from = at;
      for (const tutti_tls_part &p : parts) {
        const size_t n = std::min<size_t>(kMostRecord - used, p.bytes - from);
        if (n) std::memcpy(joined + used, static_cast<const std::byte *>(p.data) + from, n);
        used += n;
        from = 0;
        if (used == kMostRecord) break;
      }
      record = std::span(joined, used);
    }
    size_t n = 0;
    if (const Step s = seal(record, &n); s != Step::done) return s;
    i.records.push_back({i.socket.sealed.size(), n});
    i.sealed_plain += n;
    skip = n;
  }
  return Step::done;
}

Tls::Step Tls::write(std::span<const std::byte> plain, size_t *taken) {
  const tutti_tls_part part{plain.data(), plain.size()};
  return write(std::span(&part, 1), taken);
}

Tls::Step Tls::write(std::span<const tutti_tls_part> parts, size_t *taken) {
  *taken = 0;
  Impl &i = *impl_;
  if (i.socket.fd < 0) {
    while (!parts.empty() && parts.front().bytes == 0) parts = parts.subspan(1);
    if (parts.empty()) return Step::done;
    return seal({static_cast<const std::byte *>(parts.front().data), static_cast<size_t>(parts.front().bytes)}, taken);
  }
  if (const Step s = seal_all(parts); s != Step::done) return s;
  const Step s = flush();
  *taken = gave();
  return *taken > 0 ? Step::done : s;
}

Tls::Step Tls::read(std::span<std::byte> plain, size_t *got) {
  *got = 0;
  if (plain.empty()) return Step::done;
  ERR_clear_error();
  return outcome(SSL_read_ex(impl_->ssl.get(), plain.data(), plain.size(), got) == 1 ? 1 : -1);
}

bool Tls::wants_write() const {
  return impl_->given < impl_->socket.sealed.size();
}

bool Tls::feed(std::span<const std::byte> sealed) {
  size_t written = 0;
  return sealed.empty() || (BIO_write_ex(impl_->in, sealed.data(), sealed.size(), &written) == 1 && written == sealed.size());
}

size_t Tls::owed() const {
  return impl_->sealed_plain;
}

Bytes Tls::take() {
  Bytes out;
  impl_->collect(&out);
  return out;
}

} // namespace tutti::boot
