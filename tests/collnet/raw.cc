#include "raw.h"
#include <arpa/inet.h>
#include <poll.h>
#include <stdexcept>

namespace collnet {

using namespace tutti::aggd;

Raw::Raw(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0)
    throw std::runtime_error("cannot connect to the daemon");
}

bool Raw::send(const void *data, size_t bytes) {
  return ::send(fd_.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

bool Raw::receive(void *data, size_t bytes, milliseconds limit) {
  const auto end = collnet::Clock::now() + limit;
  for (size_t got = 0; got < bytes;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - collnet::Clock::now()).count();
    pollfd p{fd_.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) return false;
    const ssize_t n = ::recv(fd_.get(), static_cast<char *>(data) + got, bytes - got, 0);
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return true;
}

bool Raw::ends(milliseconds limit) {
  const auto end = collnet::Clock::now() + limit;
  char drop[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - collnet::Clock::now()).count();
    pollfd p{fd_.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) return false;
    if (::recv(fd_.get(), drop, sizeof drop, 0) <= 0) return true;
  }
}

bool Raw::prove(const Key &key, Role role) {
  const Hello hello = make_hello(role);
  Challenge challenge{};
  if (!send(hello) || !receive(&challenge, sizeof challenge)) return false;
  return proves(key, hello, challenge) && send(make_proof(key, hello, challenge));
}

std::optional<Header> Raw::frame(std::vector<uint8_t> *body, milliseconds limit) {
  Header h{};
  if (!receive(&h, sizeof h, limit)) return {};
  std::vector<uint8_t> bytes(padded(body_bytes(h)));
  if (!bytes.empty() && !receive(bytes.data(), bytes.size(), limit)) return {};
  bytes.resize(body_bytes(h));
  if (body) *body = std::move(bytes);
  return h;
}

bool Raw::join(const Join &join, const Key &key) {
  return prove(key, join.member < 0 ? Role::daemon : Role::member) && send(tutti::aggd::frame(join));
}
bool Raw::started() {
  const auto grant = frame(), start = frame(nullptr);
  return grant && start && grant->kind == Kind::grant && start->kind == Kind::start;
}

Key key_of(const Folder &folder) {
  std::string why;
  const auto key = read_key(folder.key(), why);
  if (!key) throw std::runtime_error(why);
  return *key;
}

Join join_of(const Token &token, int member, uint32_t members, uint32_t progress_ms) {
  Join j;
  j.token = token;
  j.job = 77;
  j.members = members;
  j.member = member;
  j.local = members;
  j.window = least_window;
  j.outstanding = 8;
  j.chunk = 8 << 10;
  j.progress_ms = progress_ms;
  j.deadline_ms = 5000;
  return j;
}
Token any_token() {
  Token t;
  random_fill(t);
  return t;
}

} // namespace collnet
