// tutti/plugins/net-socket/handshake.cc
#include "handshake.h"

namespace tutti::net_socket {

namespace {

constexpr uint8_t hello_magic[8] = {'t', 'u', 't', 't', 'i', 'n', 's', '1'};

// role tells the two directions apart, so that no side can be used to answer for itself.
void sign(uint8_t (&mac)[crypto_auth_BYTES], char role, const Hello &hello, const uint8_t (&nonce)[32], const Secret &secret) {
  uint8_t text[1 + sizeof hello + sizeof nonce];
  text[0] = static_cast<uint8_t>(role);
  std::memcpy(text + 1, &hello, sizeof hello);
  std::memcpy(text + 1 + sizeof hello, nonce, sizeof nonce);
  crypto_auth(mac, text, sizeof text, secret.bytes);
}

bool signed_by(const uint8_t (&mac)[crypto_auth_BYTES], char role, const Hello &hello, const uint8_t (&nonce)[32],
               const Secret &secret) {
  uint8_t want[crypto_auth_BYTES];
  sign(want, role, hello, nonce, secret);
  return sodium_memcmp(mac, want, sizeof want) == 0;
}

constexpr char acceptor_role = 'a', connector_role = 'c';

} // namespace

Blob make_blob(const Secret &secret, const Identity &listener) {
  Blob b{};
  b.magic = blob_magic;
  b.version = wire_version;
  b.listener = listener;
  b.secret = secret;
  return b;
}

void add_place(Blob &blob, const Address &address, uint16_t resume_port) {
  blob.resume[blob.count] = resume_port;
  Place &p = blob.places[blob.count++];
  p.family = address.family() == AF_INET6 ? 6 : 4;
  p.port = port_of(address);
  if (p.family == 6)
    std::memcpy(p.ip, &reinterpret_cast<const sockaddr_in6 *>(&address.storage)->sin6_addr, 16);
  else
    std::memcpy(p.ip, &reinterpret_cast<const sockaddr_in *>(&address.storage)->sin_addr, 4);
}

std::vector<Address> blob_places(const Blob &b, uint32_t interface_index) {
  if (b.magic != blob_magic) plugin::fail(TUTTI_ERR_INVALID, "the address is not one of net-socket");
  if (b.version != wire_version)
    plugin::fail(TUTTI_ERR_UNSUPPORTED, "the peer's net-socket speaks version ", b.version, ", this one version ",
                 wire_version);
  bool good = b.count > 0 && b.count <= Blob::capacity;
  std::vector<Address> out;
  for (uint16_t i = 0; good && i < b.count; ++i) {
    const Place &p = b.places[i];
    good = (p.family == 4 || p.family == 6) && p.port != 0;
    Address a;
    a.storage.ss_family = p.family == 6 ? AF_INET6 : AF_INET;
    if (p.family == 6) {
      auto *s = reinterpret_cast<sockaddr_in6 *>(&a.storage);
      std::memcpy(&s->sin6_addr, p.ip, 16);
      if (a.link_local()) s->sin6_scope_id = interface_index;
    } else {
      std::memcpy(&reinterpret_cast<sockaddr_in *>(&a.storage)->sin_addr, p.ip, 4);
    }
    set_port(a, p.port);
    out.push_back(a);
  }
  if (!good) plugin::fail(TUTTI_ERR_INVALID, "the address of net-socket is damaged");
  return out;
}

std::vector<Address> resume_places(const Blob &b, uint32_t interface_index) {
  std::vector<Address> all = blob_places(b, interface_index), out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (b.resume[i] == 0) continue;
    set_port(all[i], b.resume[i]);
    out.push_back(all[i]);
  }
  return out;
}

Hello make_hello(uint16_t index, uint16_t count, bool resumes, uint64_t min_task, const Identity &connection,
                 const Identity &from) {
  Hello h{};
  std::memcpy(h.magic, hello_magic, sizeof h.magic);
  h.version = wire_version;
  h.index = index;
  h.count = count;
  h.resumes = resumes;
  h.min_task = min_task;
  h.connection = connection;
  h.from = from;
  randombytes_buf(h.nonce, sizeof h.nonce);
  return h;
}

Step Transfer::send(const Fd &fd, const void *data, size_t bytes) {
  while (done_ < bytes) {
    iovec part{const_cast<char *>(static_cast<const char *>(data)) + done_, bytes - done_};
    const ssize_t n = fd.write(&part, 1);
    if (n < 0 && would_block(errno)) return Step::again;
    if (n < 0) return error_ = errno, Step::failed;
    done_ += static_cast<size_t>(n);
  }
  done_ = 0;
  return Step::done;
}

Step Transfer::receive(const Fd &fd, void *data, size_t bytes) {
  while (done_ < bytes) {
    const ssize_t n = fd.read(static_cast<char *>(data) + done_, bytes - done_);
    if (n == 0) return Step::closed;
    if (n < 0 && would_block(errno)) return Step::again;
    if (n < 0) return error_ = errno, Step::failed;
    done_ += static_cast<size_t>(n);
  }
  done_ = 0;
  return Step::done;
}

Step Securing::advance(Fd &fd, tutti_tls_role role, const Secret &secret, const void *said, size_t bytes,
                       const uint8_t (&nonce)[32]) {
  if (!encryption_) return Step::done;
  if (!fd.session()) {
    const auto *first = static_cast<const uint8_t *>(said);
    std::vector<uint8_t> all(first, first + bytes);
    all.insert(all.end(), nonce, nonce + sizeof nonce);
    fd.secure(
        std::make_unique<Session>(encryption_->host, encryption_->tls, role, fd.get(), secret.bytes, sizeof secret.bytes, all));
  }
  const int done = fd.session()->handshake();
  if (role == TUTTI_TLS_SERVER) acknowledge_at_once(fd.get()); // as for the proof
  if (done >= 0) return done ? Step::done : Step::again;
  error_ = errno;
  return error_ == 0 ? Step::closed : error_ == EBADMSG ? Step::denied : Step::failed;
}

ConnectorHandshake::ConnectorHandshake(const Hello &hello, const Secret &secret, const Encryption *encryption)
    : hello_(hello), secret_(secret), securing_(encryption) {}

Step ConnectorHandshake::advance(Fd &fd) {
  if (stage_ == 0) {
    if (const Step s = transfer_.send(fd, &hello_, sizeof hello_); s != Step::done) return s;
    stage_ = 1;
  }
  if (stage_ == 1) {
    if (const Step s = transfer_.receive(fd, &answer_, sizeof answer_); s != Step::done) return s;
    if (!signed_by(answer_.mac, acceptor_role, hello_, answer_.nonce, secret_)) return Step::denied;
    sign(proof_.mac, connector_role, hello_, answer_.nonce, secret_);
    stage_ = 2;
  }
  if (stage_ == 2) return Step::verified;
  if (stage_ == 3) {
    if (const Step s = transfer_.send(fd, &proof_, sizeof proof_); s != Step::done) return s;
    stage_ = 4;
  }
  return securing_.advance(fd, TUTTI_TLS_CLIENT, secret_, &hello_, sizeof hello_, answer_.nonce);
}

Step AcceptorHandshake::advance(Fd &fd) {
  if (stage_ == 0) {
    if (const Step s = transfer_.receive(fd, &hello_, sizeof hello_); s != Step::done) return s;
    if (std::memcmp(hello_.magic, hello_magic, sizeof hello_magic) != 0 || hello_.version != wire_version) return Step::denied;
    if (hello_.count == 0 || hello_.count > 65 || hello_.index >= hello_.count || hello_.min_task == 0) return Step::denied;
    randombytes_buf(answer_.nonce, sizeof answer_.nonce);
    sign(answer_.mac, acceptor_role, hello_, answer_.nonce, secret_);
    stage_ = 1;
  }
  if (stage_ == 1) {
    if (const Step s = transfer_.send(fd, &answer_, sizeof answer_); s != Step::done) return s;
    acknowledge_at_once(fd.get()); // the connector waits for word that its proof has come
    stage_ = 2;
  }
  if (stage_ == 2) {
    if (const Step s = transfer_.receive(fd, &proof_, sizeof proof_); s != Step::done) return s;
    if (!signed_by(proof_.mac, connector_role, hello_, answer_.nonce, secret_)) return Step::denied;
    stage_ = 3;
  }
  return securing_.advance(fd, TUTTI_TLS_SERVER, secret_, &hello_, sizeof hello_, answer_.nonce);
}

} // namespace tutti::net_socket
