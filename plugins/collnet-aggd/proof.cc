// tutti/plugins/collnet-aggd/proof.cc: that both sides of a connection know the key.
#include "wire.h"
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace tutti::aggd {

static_assert(crypto_auth_KEYBYTES == sizeof(Key) && crypto_auth_BYTES == sizeof(Mac));

bool crypto_ready() {
  static const int rc = sodium_init();
  return rc >= 0;
}
void random_fill(std::span<uint8_t> out) {
  randombytes_buf(out.data(), out.size());
}

std::optional<Key> read_key(const std::string &path, std::string &why) {
  struct Fd {
    int fd;
    ~Fd() {
      if (fd >= 0) ::close(fd);
    }
  };
  const auto system = [&](const char *what) {
    why = std::string(" cannot be ") + what + ": " + std::generic_category().message(errno);
    return std::nullopt;
  };
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return system("opened");
  struct stat facts {};
  if (::fstat(file.fd, &facts) != 0) return system("looked at");
  if (!S_ISREG(facts.st_mode)) return why = " is no regular file", std::nullopt;
  if ((facts.st_mode & 077) != 0 || (facts.st_uid != ::geteuid() && facts.st_uid != 0)) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(facts.st_mode & 07777));
    why = std::string(" has mode ") + mode + " and owner " + std::to_string(facts.st_uid) +
          "; a key belongs to the user of the process (or root) and has mode 0600: chmod 600 it";
    return std::nullopt;
  }
  std::array<uint8_t, 4097> bytes;
  const ssize_t n = ::read(file.fd, bytes.data(), bytes.size());
  if (n < 0) return system("read");
  if (n < 16 || n > 4096) {
    why = " holds " + std::string(n > 4096 ? "more than 4096" : std::to_string(n)) +
          " bytes; a key has 16 to 4096, as of head -c 32 /dev/urandom";
    return std::nullopt;
  }
  Key key;
  crypto_generichash(key.data(), key.size(), bytes.data(), static_cast<size_t>(n), nullptr, 0);
  sodium_memzero(bytes.data(), bytes.size());
  return key;
}

namespace {

Mac mac(const Key &key, std::string_view who, const Hello &hello, const Challenge &challenge) {
  std::array<uint8_t, 8 + sizeof(Hello) + offsetof(Challenge, mac)> text{};
  std::memcpy(text.data(), who.data(), std::min<size_t>(who.size(), 8));
  std::memcpy(text.data() + 8, &hello, sizeof hello);
  std::memcpy(text.data() + 8 + sizeof hello, &challenge, offsetof(Challenge, mac));
  Mac out;
  crypto_auth(out.data(), text.data(), text.size(), key.data());
  return out;
}
bool same(const Mac &a, const Mac &b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

} // namespace

Hello make_hello(Role role, uint16_t first, uint16_t last) {
  Hello h{magic_hello, first, last, role, 0, {}};
  random_fill(h.nonce);
  return h;
}
bool is_hello(const Hello &hello) {
  return hello.magic == magic_hello && hello.first <= hello.last && (hello.role == Role::member || hello.role == Role::daemon);
}
Challenge make_challenge(const Key &key, const Hello &hello) {
  Challenge c{magic_hello, 0, version_first, version_last, 0, {}, {}};
  const uint16_t last = std::min(hello.last, version_last);
  if (last < std::max(hello.first, version_first)) return c;
  c.version = last;
  random_fill(c.nonce);
  c.mac = mac(key, "daemon", hello, c);
  return c;
}
Proof make_proof(const Key &key, const Hello &hello, const Challenge &challenge) {
  return {mac(key, "member", hello, challenge)};
}
bool proves(const Key &key, const Hello &hello, const Challenge &challenge) {
  return same(challenge.mac, mac(key, "daemon", hello, challenge));
}
bool proves(const Key &key, const Hello &hello, const Challenge &challenge, const Proof &proof) {
  return same(proof.mac, mac(key, "member", hello, challenge));
}

} // namespace tutti::aggd
