// net-socket's handshakes, both ends of both: any bytes from a stranger; from somebody who knows the secret, with bytes changed
// on the way; and any address that a peer may hand over.
#include "cut.h"
#include "handshake.h"
#include "resume.h"
#include <sys/socket.h>

using namespace tutti::net_socket;
namespace plugin = tutti::plugin;

namespace {

struct Pair {
  Fd a, b;
  Pair() {
    int ends[2];
    fuzz::expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
};

// What `from` has sent goes on to `to`, changed where the input says so; the first bytes are left to the input altogether.
void pass(int from, int to, fuzz::Input &in, bool *changed) {
  uint8_t bytes[1024];
  const ssize_t n = ::recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n <= 0) return;
  if (const uint8_t where = in.byte(); where != 0 && where <= n) {
    const uint8_t by = in.byte();
    bytes[where - 1] ^= by;
    *changed |= by != 0;
  }
  (void)!::send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// A stranger on the other side: nothing that he says makes a connection.
template <class Handshake> void stranger(Handshake advance, std::string_view says) {
  Pair p;
  (void)!::send(p.b.get(), says.data(), says.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  for (int i = 0; i < 4; i++) {
    const Step s = advance(p.a);
    fuzz::expect(s != Step::done && s != Step::verified);
    if (s != Step::again) return;
  }
}

const Secret kSecret{{1, 2, 3}};
const Secret *known(void *, const ResumeHello &hello) {
  return hello.index == 0 ? &kSecret : nullptr;
}

void first_time(fuzz::Input in) {
  Pair left, right; // connector - left.a:left.b - input - right.b:right.a - acceptor
  ConnectorHandshake c(
      make_hello(static_cast<uint16_t>(in.below(3)), static_cast<uint16_t>(in.below(4)), false, in.byte(), {}, {}), kSecret,
      nullptr);
  AcceptorHandshake a(kSecret, nullptr);
  Step cs = Step::again, as = Step::again;
  bool changed = false;
  for (int turn = 0; turn < 8; turn++) {
    if (cs == Step::again || cs == Step::verified) cs = c.advance(left.a);
    if (cs == Step::verified) c.confirm();
    pass(left.b.get(), right.b.get(), in, &changed);
    if (as == Step::again) as = a.advance(right.a);
    pass(right.b.get(), left.b.get(), in, &changed);
  }
  fuzz::expect(!changed || cs != Step::done || as != Step::done);
  if (as == Step::done) fuzz::expect(a.hello().count > 0 && a.hello().index < a.hello().count && a.hello().min_task > 0);
}

void again(fuzz::Input in) {
  Pair left, right;
  ResumeDialler d(make_resume_hello(static_cast<uint16_t>(in.below(3)), in.byte(), {}), kSecret, nullptr);
  ResumeAcceptor a(nullptr);
  Step ds = Step::again, as = Step::again;
  bool changed = false;
  for (int turn = 0; turn < 8; turn++) {
    if (ds == Step::again) ds = d.advance(left.a);
    pass(left.b.get(), right.b.get(), in, &changed);
    if (as == Step::again) {
      as = a.advance(right.a, known, nullptr);
      if (as == Step::verified) (void)a.finish(right.a, 4711);
    }
    pass(right.b.get(), left.b.get(), in, &changed);
  }
  fuzz::expect(!changed || ds != Step::done);
  if (ds == Step::done) fuzz::expect(d.position() == 4711);
}

void address(std::string_view bytes) {
  Blob blob{};
  bytes.copy(reinterpret_cast<char *>(&blob), sizeof blob);
  blob.magic = blob_magic;
  blob.version = bytes.size() % 2 ? wire_version : blob.version;
  try {
    const auto places = blob_places(blob, 1);
    fuzz::expect(!places.empty() && places.size() <= Blob::capacity);
    for (const Address &a : places) (void)endpoint_text(a);
    fuzz::expect(resume_places(blob, 1).size() <= places.size());
  } catch (const plugin::Error &e) {
    fuzz::expect(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  switch (in.below(7)) {
  case 0: {
    AcceptorHandshake a(kSecret, nullptr);
    stranger([&](Fd &fd) { return a.advance(fd); }, in.rest());
    break;
  }
  case 1: {
    ConnectorHandshake c(make_hello(0, 1, true, 1, {}, {}), kSecret, nullptr);
    stranger([&](Fd &fd) { return c.advance(fd); }, in.rest());
    break;
  }
  case 2: {
    ResumeAcceptor a(nullptr);
    stranger([&](Fd &fd) { return a.advance(fd, known, nullptr); }, in.rest());
    break;
  }
  case 3: {
    ResumeDialler d(make_resume_hello(0, 1, {}), kSecret, nullptr);
    stranger([&](Fd &fd) { return d.advance(fd); }, in.rest());
    break;
  }
  case 4:
    first_time(in);
    break;
  case 5:
    again(in);
    break;
  default:
    address(in.rest());
    break;
  }
  return 0;
}
