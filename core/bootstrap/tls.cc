#include "bootstrap/tls.h"
#include "config/config.h"
#include <atomic>
#include <cerrno>
#include <cstring>
#ifdef TUTTI_WITH_TLS
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#endif

namespace tutti::boot {
namespace {

std::atomic<bool> g_wanted{false}; // relaxed: set long before the connections that it is for

} // namespace

bool wants_encryption() {
  return g_wanted.load(std::memory_order_relaxed);
}

Status use_security(const Config &config) {
  const bool wanted = config.text("core.security") == "encrypted";
  if (wanted && !can_encrypt())
    return fail(Code::invalid_usage, "core.security is \"encrypted\" ({}), and this library was built without OpenSSL",
                config.setting("core.security").origin)
        .phase("bootstrap")
        .hint("build with TUTTI_WITH_TLS=ON, or use \"authenticated\"");
  g_wanted.store(wanted, std::memory_order_relaxed);
  return {};
}

#ifdef TUTTI_WITH_TLS

namespace {

constexpr const char *kIdentity = "tutti"; // of the secret; which one it is follows from the connection
constexpr uint64_t kMostRecords = 1 << 23; // RFC 8446 5.5: AES-GCM keys serve for 2^24.5 records

struct Free {
  void operator()(SSL *s) const { SSL_free(s); }
  void operator()(SSL_CTX *c) const { SSL_CTX_free(c); }
  void operator()(SSL_SESSION *s) const { SSL_SESSION_free(s); }
  void operator()(BIO *b) const { BIO_free(b); }
  void operator()(BIO_METHOD *m) const { BIO_meth_free(m); }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

// ---- a socket that never raises SIGPIPE

int socket_write(BIO *bio, const char *data, int bytes) {
  BIO_clear_retry_flags(bio);
  ssize_t n;
  do n = ::send(*static_cast<int *>(BIO_get_data(bio)), data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int socket_read(BIO *bio, char *data, int bytes) {
  BIO_clear_retry_flags(bio);
  ssize_t n;
  do n = ::recv(*static_cast<int *>(BIO_get_data(bio)), data, static_cast<size_t>(bytes), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  return static_cast<int>(n);
}

long socket_ctrl(BIO *, int command, long, void *) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO *socket_bio(int *fd) {
  static BIO_METHOD *const method = [] {
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket of tutti");
    BIO_meth_set_write(m, socket_write);
    BIO_meth_set_read(m, socket_read);
    BIO_meth_set_ctrl(m, socket_ctrl);
    return m;
  }();
  BIO *bio = BIO_new(method);
  BIO_set_data(bio, fd);
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
  SSL_CTX_set_mode(c.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
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
  int fd = -1;
  BIO *in = nullptr, *out = nullptr; // the session's own; without a descriptor
  Owned<SSL> ssl;
  ~Impl() { OPENSSL_cleanse(secret.data(), secret.size()); }
};

Tls::Tls(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tls::~Tls() = default;

Result<std::unique_ptr<Tls>> Tls::create(Role role, const Secret &secret, int fd) {
  auto impl = std::make_unique<Impl>();
  impl->secret = secret;
  impl->fd = fd;
  impl->ssl.reset(context() ? SSL_new(context()) : nullptr);
  if (!impl->ssl) return fail(Code::system, "OpenSSL cannot start: {}", reason());
  SSL *ssl = impl->ssl.get();
  impl->in = fd >= 0 ? socket_bio(&impl->fd) : BIO_new(BIO_s_mem());
  impl->out = fd >= 0 ? impl->in : BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, impl->in, impl->out);
  if (!impl->in || !impl->out) return fail(Code::system, "OpenSSL has no memory");
  SSL_set_app_data(ssl, &impl->secret);
  if (role == Role::client)
    SSL_set_connect_state(ssl);
  else
    SSL_set_accept_state(ssl);
  return std::unique_ptr<Tls>(new Tls(std::move(impl)));
}

// Of a call that gave `result`.
Tls::Step Tls::outcome(int result) {
  const int err = errno; // of the descriptor's last call
  switch (SSL_get_error(impl_->ssl.get(), result)) {
  case SSL_ERROR_NONE:
    return Step::done;
  case SSL_ERROR_WANT_READ:
  case SSL_ERROR_WANT_WRITE:
    return Step::again;
  case SSL_ERROR_ZERO_RETURN:
    return Step::closed;
  case SSL_ERROR_SYSCALL:
    if (result < 0 && impl_->fd >= 0 && err != 0) {
      errno_ = err;
      error_ = std::strerror(err);
      return Step::failed;
    }
    return Step::closed;
  default:
    if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return Step::closed;
    error_ = "TLS: " + reason();
    return Step::failed;
  }
}

Tls::Step Tls::handshake() {
  if (ready_) return Step::done;
  ERR_clear_error();
  errno = 0;
  const Step s = outcome(SSL_do_handshake(impl_->ssl.get()));
  if (s != Step::done) return s;
  if (SSL_session_reused(impl_->ssl.get()) != 1) { // cannot be: there is no certificate
    error_ = "TLS: the session was made without the secret";
    return Step::failed;
  }
  ready_ = true;
  OPENSSL_cleanse(impl_->secret.data(), impl_->secret.size());
  return Step::done;
}

void Tls::heed_records(size_t bytes) {
  records_ += (bytes + kMostRecord - 1) / kMostRecord;
  if (records_ < kMostRecords || SSL_key_update(impl_->ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return;
  records_ = 0;
}

Tls::Step Tls::write(std::span<const std::byte> plain, size_t *taken) {
  *taken = 0;
  if (plain.empty()) return Step::done;
  ERR_clear_error();
  errno = 0;
  const Step s = outcome(SSL_write_ex(impl_->ssl.get(), plain.data(), plain.size(), taken) == 1 ? 1 : -1);
  if (s == Step::done) heed_records(*taken);
  return s;
}

Tls::Step Tls::read(std::span<std::byte> plain, size_t *got) {
  *got = 0;
  if (plain.empty()) return Step::done;
  ERR_clear_error();
  errno = 0;
  return outcome(SSL_read_ex(impl_->ssl.get(), plain.data(), plain.size(), got) == 1 ? 1 : -1);
}

bool Tls::wants_write() const {
  return SSL_want_write(impl_->ssl.get());
}

size_t Tls::waiting() const {
  return static_cast<size_t>(SSL_pending(impl_->ssl.get()));
}

void Tls::feed(std::span<const std::byte> sealed) {
  size_t written = 0;
  BIO_write_ex(impl_->in, sealed.data(), sealed.size(), &written);
}

Bytes Tls::take() {
  Bytes out(BIO_ctrl_pending(impl_->out));
  size_t n = 0;
  if (!out.empty()) BIO_read_ex(impl_->out, out.data(), out.size(), &n);
  out.resize(n);
  return out;
}

#else

bool can_encrypt() {
  return false;
}

struct Tls::Impl {};
Tls::Tls(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tls::~Tls() = default;
Result<std::unique_ptr<Tls>> Tls::create(Role, const Secret &, int) {
  return fail(Code::invalid_usage, "this library was built without OpenSSL");
}
Tls::Step Tls::outcome(int) {
  return Step::failed;
}
Tls::Step Tls::handshake() {
  return Step::failed;
}
void Tls::heed_records(size_t) {}
Tls::Step Tls::write(std::span<const std::byte>, size_t *) {
  return Step::failed;
}
Tls::Step Tls::read(std::span<std::byte>, size_t *) {
  return Step::failed;
}
bool Tls::wants_write() const {
  return false;
}
size_t Tls::waiting() const {
  return 0;
}
void Tls::feed(std::span<const std::byte>) {}
Bytes Tls::take() {
  return {};
}

#endif

} // namespace tutti::boot
