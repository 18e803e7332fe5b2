// tutti/plugins/net-socket/resume.cc
#include "resume.h"

namespace tutti::net_socket {

namespace {

constexpr uint8_t resume_magic[8] = {'t', 'u', 't', 't', 'i', 'n', 'r', '1'};
constexpr char acceptor_role = 'A', dialler_role = 'D', state_role = 'S'; // others than those of the first handshake

void sign(uint8_t (&mac)[crypto_auth_BYTES], char role, const ResumeHello &hello, const ResumeAnswer &answer, uint64_t position,
          const Secret &secret) {
  uint8_t text[1 + sizeof hello + sizeof answer.nonce + sizeof position], *at = text;
  *at++ = static_cast<uint8_t>(role);
  std::memcpy(at, &hello, sizeof hello);
  std::memcpy(at += sizeof hello, answer.nonce, sizeof answer.nonce);
  std::memcpy(at + sizeof answer.nonce, &position, sizeof position);
  crypto_auth(mac, text, sizeof text, secret.bytes);
}

bool signed_by(const uint8_t (&mac)[crypto_auth_BYTES], char role, const ResumeHello &hello, const ResumeAnswer &answer,
               uint64_t position, const Secret &secret) {
  uint8_t want[crypto_auth_BYTES];
  sign(want, role, hello, answer, position, secret);
  return sodium_memcmp(mac, want, sizeof want) == 0;
}

} // namespace

ResumeHello make_resume_hello(uint16_t index, uint32_t attempt, const Identity &connection) {
  ResumeHello h{};
  std::memcpy(h.magic, resume_magic, sizeof h.magic);
  h.version = wire_version;
  h.index = index;
  h.attempt = attempt;
  h.connection = connection;
  randombytes_buf(h.wire.data(), h.wire.size());
  randombytes_buf(h.nonce, sizeof h.nonce);
  return h;
}

Step ResumeDialler::advance(Fd &fd) {
  if (stage_ == 0) {
    if (const Step s = transfer_.send(fd, &hello_, sizeof hello_); s != Step::done) return s;
    stage_ = 1;
  }
  if (stage_ == 1) {
    if (const Step s = transfer_.receive(fd, &answer_, sizeof answer_); s != Step::done) return s;
    if (answer_.unknown || answer_.reserved || !signed_by(answer_.mac, acceptor_role, hello_, answer_, 0, secret_))
      return Step::denied;
    sign(proof_.mac, dialler_role, hello_, answer_, 0, secret_);
    stage_ = 2;
  }
  if (stage_ == 2) {
    if (const Step s = transfer_.send(fd, &proof_, sizeof proof_); s != Step::done) return s;
    stage_ = 3;
  }
  if (stage_ == 3) {
    const Step s = securing_.advance(fd, TUTTI_TLS_CLIENT, secret_, &hello_, sizeof hello_, answer_.nonce);
    if (s != Step::done) return s;
    stage_ = 4;
  }
  if (const Step s = transfer_.receive(fd, &state_, sizeof state_); s != Step::done) return s;
  return signed_by(state_.mac, state_role, hello_, answer_, state_.position, secret_) ? Step::done : Step::denied;
}

Step ResumeAcceptor::advance(Fd &fd, Find find, void *where) {
  if (stage_ == 0) {
    if (const Step s = transfer_.receive(fd, &hello_, sizeof hello_); s != Step::done) return s;
    if (std::memcmp(hello_.magic, resume_magic, sizeof resume_magic) != 0 || hello_.version != wire_version)
      return Step::denied;
    const Secret *secret = find(where, hello_);
    randombytes_buf(answer_.nonce, sizeof answer_.nonce);
    answer_.unknown = secret ? 0 : 1;
    if (secret) sign(answer_.mac, acceptor_role, hello_, answer_, 0, secret_ = *secret);
    stage_ = 1;
  }
  if (stage_ == 1) {
    if (const Step s = transfer_.send(fd, &answer_, sizeof answer_); s != Step::done) return s;
    if (answer_.unknown) return Step::closed;
    stage_ = 2;
  }
  if (stage_ == 2) {
    if (const Step s = transfer_.receive(fd, &proof_, sizeof proof_); s != Step::done) return s;
    if (!signed_by(proof_.mac, dialler_role, hello_, answer_, 0, secret_)) return Step::denied;
    stage_ = 3;
  }
  const Step s = securing_.advance(fd, TUTTI_TLS_SERVER, secret_, &hello_, sizeof hello_, answer_.nonce);
  return s == Step::done ? Step::verified : s;
}

// The socket has carried little yet: what does not go out at once never will.
bool ResumeAcceptor::finish(const Fd &fd, uint64_t position) {
  ResumeState state{};
  state.position = position;
  sign(state.mac, state_role, hello_, answer_, position, secret_);
  return transfer_.send(fd, &state, sizeof state) == Step::done;
}

} // namespace tutti::net_socket
