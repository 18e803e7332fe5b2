// net-socket's receiving end, fed over a socket as by a peer that has proved itself and says anything: headers, payloads,
// striped messages and moves to other sockets, in pieces of any length, with receives posted in between.
//
// Input: options, then pieces of a byte that says what happens (a receive is posted, bytes come on the control socket, or on a
// data socket) and what belongs to it.
#include "context.h"
#include "cut.h"
#include "listener.h"
#include "reception.h"
#include <sys/socket.h>

using namespace tutti::net_socket;
namespace plugin = tutti::plugin;

namespace {

Fd end_of(int (&ends)[2], int i) {
  return Fd(ends[i]);
}

struct Posted {
  std::vector<uint8_t> room[4]; // each of its own, so that the sanitizer sees what is written past it
  uint64_t received[4] = {};
  uint32_t n = 0;
  bool done = false;
};

struct Receiving {
  plugin::Host host;
  Settings settings;
  std::unique_ptr<Context> context;
  Fd control, data; // the peer's ends
  std::unique_ptr<Endpoint> receiver;
  std::vector<std::unique_ptr<Posted>> posted;
  bool failed = false;

  Receiving(uint64_t read_ahead, bool striped, uint64_t min_task) {
    settings.read_ahead = read_ahead;
    settings.reconnect = std::chrono::seconds(0);
    Device lo;
    lo.interface.name = "lo";
    tutti_net_ctx_config config{};
    config.struct_size = sizeof config;
    config.traffic_class = -1;
    context = std::make_unique<Context>(host, settings, std::vector{lo}, config);
    int ends[2];
    fuzz::expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    auto wire = std::make_shared<Wire>();
    wire->fd = end_of(ends, 0);
    control = end_of(ends, 1);
    std::vector<Fd> stripes;
    if (striped) {
      fuzz::expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
      stripes.push_back(end_of(ends, 0));
      data = end_of(ends, 1);
    }
    receiver = make_receiver(*context, std::move(wire), std::move(stripes), min_task, Origin{{}, {}, false});
  }
  void post(uint32_t n, fuzz::Input &in) {
    auto p = std::make_unique<Posted>();
    p->n = n;
    tutti_net_buf bufs[4] = {};
    for (uint32_t i = 0; i < n; i++) {
      p->room[i].resize(in.byte() * (in.byte() % 4 == 0 ? 64 : 1));
      bufs[i].addr = p->room[i].data();
      bufs[i].bytes = p->room[i].size();
    }
    try {
      if (receiver->recv(bufs, n, p->received, posted.size()) == TUTTI_OK) posted.push_back(std::move(p));
    } catch (const plugin::Error &e) {
      fuzz::expect(e.code() != TUTTI_OK);
      failed = true;
    }
  }
  void say(int fd, std::string_view bytes) { (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  void turn() {
    tutti_net_completion done[16];
    for (int i = 0; i < 4; i++) {
      const int32_t n = context->progress(done, 16);
      fuzz::expect(n >= 0 && n <= 16);
      for (int32_t k = 0; k < n; k++) complete(done[k]);
    }
  }
  void complete(const tutti_net_completion &c) {
    fuzz::expect(c.cookie < posted.size() && !posted[c.cookie]->done);
    Posted &p = *posted[c.cookie];
    p.done = true;
    if (c.status != TUTTI_OK) return;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p.n; i++) {
      fuzz::expect(p.received[i] <= p.room[i].size());
      bytes += p.received[i];
    }
    fuzz::expect(bytes == c.bytes);
  }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  const uint8_t options = in.byte();
  const bool striped = options & 1;
  Receiving r(64u << (options >> 1 & 7), striped, 1 + in.byte());
  for (int pieces = 0; pieces < 64 && !in.empty(); pieces++) {
    const uint8_t what = in.byte();
    if (what % 3 == 0)
      r.post(1 + (what >> 2) % 4, in);
    else if (what % 3 == 1 || !striped)
      r.say(r.control.get(), in.take(in.byte()));
    else
      r.say(r.data.get(), in.take(in.byte()));
    if (what & 128) r.turn();
  }
  r.turn();
  r.control.reset();
  r.data.reset();
  r.turn();
  r.receiver.reset();
  r.turn();
  for (const auto &p : r.posted) fuzz::expect(p->done); // with success, or an error
  return 0;
}
