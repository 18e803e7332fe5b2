// How a control connection is encrypted: after the handshake, under a secret that both have by it.
#include "bootstrap/conn.h"
#include "bootstrap/hub.h"
#include <atomic>

namespace tutti::boot {
namespace {

std::atomic<bool> g_wanted{false}; // relaxed: set long before the connections that it is for

std::string_view wish(uint16_t security) {
  return security & kWantsEncryption ? "\"encrypted\"" : "\"authenticated\"";
}

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

uint16_t Conn::own_security() const {
  if (is_unix_ || !can_encrypt()) return 0;
  return static_cast<uint16_t>(kCanEncrypt | (wants_encryption() ? kWantsEncryption : 0));
}

bool Conn::to_encrypt() const {
  return ((hello_.security | challenge_.security) & kWantsEncryption) != 0;
}

// Both ends know that the other one has said so itself.
bool Conn::disagree() {
  if (!to_encrypt() || (hello_.security & challenge_.security & kCanEncrypt)) return false;
  const bool dialled = state_ == State::verified;
  const uint16_t here = dialled ? hello_.security : challenge_.security;
  const uint16_t there = dialled ? challenge_.security : hello_.security;
  lost(fail(Code::invalid_usage, "core.security is {} here and {} there, and {} was built without OpenSSL", wish(here),
            wish(there), here & kCanEncrypt ? "the library there" : "this library")
           .hint("set core.security (TUTTI_SECURITY) alike on all ranks"));
  return true;
}

void Conn::begin_session(Tls::Role role) {
  auto made = Tls::create(role, tls_secret(key_, hello_, challenge_));
  if (!made.ok()) return lost(std::move(made.status()));
  tls_ = std::move(made).value();
  secure();
}

bool Conn::secure() {
  const Tls::Step step = tls_->handshake();
  take_sealed();
  if (state_ == State::closed) return false;
  if (step == Tls::Step::again) return true;
  if (step != Tls::Step::done) {
    lost(fail(Code::remote, "the connection cannot be encrypted: {}",
              tls_->error().empty() ? "the other end gave up" : tls_->error()));
    return false;
  }
  secured();
  return state_ != State::closed;
}

void Conn::secured() {
  service_.cancel(timer_);
  timer_ = 0;
  auto unsealed = std::move(unsealed_);
  unsealed_.clear();
  for (Out &o : unsealed) {
    if (queued_bytes) queued_bytes->fetch_sub(o.data.size());
    if (state_ != State::closed) put(std::move(o));
  }
  if (state_ == State::securing) opened();
  if (state_ != State::open || !std::exchange(finish_sealed_, false)) return;
  service_.draining--;
  finish();
}

void Conn::take_sealed() {
  Bytes data = tls_->take();
  if (data.empty()) return;
  Out o;
  o.data = std::move(data);
  if (queued_bytes) queued_bytes->fetch_add(o.data.size());
  out_.push_back(std::move(o));
  if (out_.size() == 1) writable();
}

bool Conn::unseal_some() {
  const Ptr self = shared_from_this();
  if (!tls_->feed(sealed_)) {
    lost(fail(Code::system, "no memory for {} bytes of an encrypted connection", sealed_.size()));
    return false;
  }
  sealed_.clear();
  if (!tls_->ready() && !secure()) return false;
  if (!tls_->ready()) return true;
  for (;;) {
    constexpr size_t kStep = Tls::kMostRecord;
    const size_t old = in_.size();
    size_t got = 0;
    in_.resize(old + kStep);
    const Tls::Step step = tls_->read(std::span(in_).subspan(old), &got);
    in_.resize(old + got);
    if (step == Tls::Step::done) continue;
    if (step == Tls::Step::again) return true; // an answer of the session's own goes out with the next frame
    lost(step == Tls::Step::closed ? ended(0)
                                   : fail(Code::remote, "what came was not written by the other end: {}", tls_->error()));
    return false;
  }
}

} // namespace tutti::boot
