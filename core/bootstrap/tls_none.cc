// Of a build without OpenSSL: nothing can be made, so nothing of it is ever called.
#include "bootstrap/tls.h"

namespace tutti::boot {

struct Tls::Impl {};

bool can_encrypt() {
  return false;
}
Result<std::unique_ptr<Tls>> Tls::create(Role, const Secret &, int) {
  return fail(Code::invalid_usage, "this library was built without OpenSSL");
}
Tls::~Tls() = default;
Tls::Step Tls::handshake() {
  return Step::failed;
}
Tls::Step Tls::write(std::span<const std::byte>, size_t *) {
  return Step::failed;
}
Tls::Step Tls::write(std::span<const tutti_tls_part>, size_t *) {
  return Step::failed;
}
Tls::Step Tls::read(std::span<std::byte>, size_t *) {
  return Step::failed;
}
size_t Tls::owed() const {
  return 0;
}
bool Tls::wants_write() const {
  return false;
}
bool Tls::feed(std::span<const std::byte>) {
  return false;
}
Bytes Tls::take() {
  return {};
}

} // namespace tutti::boot
