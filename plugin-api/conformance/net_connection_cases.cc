#include "net_bench.h"
#include "net_cases.h"
#include <cstring>
#include <set>

namespace tutti::conformance {
namespace {

// A listener of side b, destroyed with the case.
struct Listening {
  NetBench &bench;
  tutti_net_listener *listener = nullptr;
  unsigned char addr[TUTTI_NET_ADDR_BYTES + 16];
  uint32_t size = TUTTI_NET_ADDR_BYTES;
  Answer answer{}; // of the last connect()
  bool connected = false;
  explicit Listening(NetBench &b) : bench(b) {
    std::memset(addr, 0xa5, sizeof(addr));
    const tutti_status s = timed("listen", [&] { return b.net().listen(b.b().ctx(), addr, &size, &listener); });
    require(s == TUTTI_OK && listener, "listen returned {}", status_name(s));
  }
  ~Listening() { close(); }
  void close() {
    if (listener) bench.net().listener_destroy(listener);
    listener = nullptr;
  }
  tutti_net_ep *connect() {
    tutti_net_ep *ep = nullptr;
    const tutti_status s = bench.connect(bench.a().ctx(), addr, size, &answer, &ep);
    require(s == TUTTI_OK && ep, "connect returned {}", status_name(s));
    connected = true;
    return bench.keep(ep);
  }
  tutti_net_ep *try_accept() {
    tutti_net_ep *ep = nullptr;
    if (bench.answers() && !connected) return nullptr; // the core does not ask before it has the answer
    const tutti_status s = bench.accept(listener, answer, &ep);
    require(s == TUTTI_OK || s == TUTTI_AGAIN, "accept returned {}", status_name(s));
    require((s == TUTTI_OK) == (ep != nullptr), "accept returned {} and {} endpoint", status_name(s), ep ? "an" : "no");
    return ep ? bench.keep(ep) : nullptr;
  }
};

void address_size(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  Listening l(bench);
  require(l.size > 0 && l.size <= TUTTI_NET_ADDR_BYTES, "listen gave an address of {} bytes", l.size);
  for (size_t i = TUTTI_NET_ADDR_BYTES; i < sizeof(l.addr); i++)
    require(l.addr[i] == 0xa5, "listen wrote beyond {} bytes", TUTTI_NET_ADDR_BYTES);
}

void nobody_yet(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  if (bench.answers()) skip("the device has ANSWERS: accept is called once somebody has connected");
  Listening l(bench);
  for (int i = 0; i < 100; i++) require(l.try_accept() == nullptr, "accept gave an endpoint though nobody connected");
}

void connects(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  for (tutti_net_ep *ep : {p.tx, p.rx}) {
    const tutti_status s = bench.net().ep_ready(ep);
    require(s == TUTTI_OK, "ep_ready of a ready endpoint returned {}", status_name(s));
  }
}

void accepts_one(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  Listening l(bench);
  tutti_net_ep *tx = l.connect(), *rx = nullptr;
  bench.until(
      [&] {
        bench.net().ep_ready(tx);
        return (rx = l.try_accept()) != nullptr;
      },
      "accept");
  for (int i = 0; i < 50; i++) { // AGAIN or an error: the listener has done its work
    tutti_net_ep *second = nullptr;
    const tutti_status s = bench.accept(l.listener, l.answer, &second);
    require(s != TUTTI_OK && !second, "accept gave a second endpoint for one connect");
  }
}

void many_listeners(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  std::vector<std::unique_ptr<Listening>> list;
  std::set<std::string> addresses;
  for (int i = 0; i < 8; i++) {
    list.push_back(std::make_unique<Listening>(bench));
    addresses.emplace(reinterpret_cast<const char *>(list.back()->addr), list.back()->size);
  }
  require(addresses.size() == list.size(), "two listeners that exist together have the same address");
}

void describes(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  for (const uint32_t cap : {1u, 8u, 256u}) {
    char text[257];
    std::memset(text, 0x5a, sizeof(text));
    const tutti_status s = bench.net().ep_describe(p.tx, text, cap);
    require(s == TUTTI_OK, "ep_describe returned {}", status_name(s));
    require(std::memchr(text, 0, cap) != nullptr, "ep_describe with room for {} left no NUL in it", cap);
    require(text[cap] == 0x5a, "ep_describe wrote beyond {} bytes", cap);
    require(cap < 8 || text[0], "ep_describe gives an empty text");
  }
}

void several_pairs(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  std::vector<Pair> pairs;
  for (int i = 0; i < 4; i++) pairs.push_back(bench.pair());
  std::vector<uint64_t> in(4, 0), out = {11, 22, 33, 44};
  for (size_t i = 0; i < 4; i++) bench.recv(pairs[i].rx, {bench.b().buf(&in[i], 8)}, i);
  for (size_t i = 4; i-- > 0;) bench.send(pairs[i].tx, {bench.a().buf(&out[i], 8)}, i);
  for (size_t i = 0; i < 4; i++) bench.expect(bench.b(), i, TUTTI_OK, 8);
  require(in == out, "messages of four endpoints of one context were mixed up");
}

void same_context(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair(bench.a(), bench.a());
  uint64_t in = 0, out = 77;
  bench.recv(p.rx, {bench.a().buf(&in, 8)}, 1);
  bench.send(p.tx, {bench.a().buf(&out, 8)}, 2);
  bench.expect(bench.a(), 1, TUTTI_OK, 8);
  bench.expect(bench.a(), 2, TUTTI_OK, 8);
  require(in == out, "a message within one context arrived changed");
}

void listener_unused(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  Listening(bench).close();
  const size_t fds = open_descriptors();
  for (int i = 0; i < 50; i++) Listening(bench).close();
  require(open_descriptors() <= fds, "50 unused listeners left {} descriptors", open_descriptors() - fds);
}

void half_open(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  for (int i = 0; i < 10; i++) {
    Listening l(bench);
    tutti_net_ep *ep = l.connect(); // never accepted, never ready
    char text[64] = "";
    const tutti_status s = bench.net().ep_describe(ep, text, sizeof(text));
    require(s == TUTTI_OK && text[0], "ep_describe of a connecting endpoint returned {} and \"{}\"", status_name(s), text);
    bench.destroy(ep);
    bench.idle(std::chrono::milliseconds(2));
  }
  const Pair p = bench.pair();
  bench.transfer(p, 100, 100, 1);
}

void half_accepted(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  for (int i = 0; i < 10; i++) {
    Listening l(bench);
    tutti_net_ep *tx = l.connect(), *rx = nullptr;
    bench.until(
        [&] {
          bench.net().ep_ready(tx);
          return (rx = l.try_accept()) != nullptr;
        },
        "accept");
    bench.destroy(rx); // perhaps not ready yet
    bench.destroy(tx);
  }
  bench.transfer(bench.pair(), 100, 100, 1);
}

void listener_gone(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  Listening l(bench);
  tutti_net_ep *tx = l.connect();
  l.close();
  for (int i = 0; i < 100; i++) {
    const tutti_status s = timed("ep_ready", [&] { return bench.net().ep_ready(tx); });
    if (s < 0) break; // final, and fine
    bench.idle(std::chrono::milliseconds(1));
  }
  bench.destroy(tx);
  bench.transfer(bench.pair(), 100, 100, 1);
}

void garbage_address(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  Random random(7);
  for (const uint32_t size : {1u, 16u, 64u, static_cast<uint32_t>(TUTTI_NET_ADDR_BYTES)}) {
    unsigned char addr[TUTTI_NET_ADDR_BYTES];
    random.fill(addr, sizeof(addr));
    tutti_net_ep *ep = nullptr;
    Answer answer;
    const tutti_status s = bench.connect(bench.a().ctx(), addr, size, &answer, &ep);
    require(s <= 0, "connect to {} bytes of garbage returned {}", size, status_name(s));
    if (s < 0) continue;
    bench.keep(ep);
    bench.idle(std::chrono::milliseconds(20));
    require(bench.net().ep_ready(ep) != TUTTI_OK, "an endpoint to {} bytes of garbage says it is ready", size);
    bench.destroy(ep);
  }
}

// The peer is known by its answer: with another one nobody is there.
void wrong_answer(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  if (!bench.answers()) skip("the device needs no answer");
  for (uint64_t seed = 1; seed <= 4; seed++) {
    Listening l(bench);
    l.connect();
    Random(seed).fill(l.answer.bytes, l.answer.size = seed < 4 ? l.answer.size : 1);
    tutti_net_ep *rx = nullptr;
    const tutti_status s = bench.accept(l.listener, l.answer, &rx);
    require(s <= 1, "accept with garbage for an answer returned {}", status_name(s));
    if (s != TUTTI_OK) continue;
    bench.keep(rx);
    bench.idle(std::chrono::milliseconds(20));
    unsigned char in[8];
    (void)bench.net().ep_ready(rx); // a device may learn of it only from what never comes
    tutti_net_buf buf = bench.b().buf(in, sizeof(in));
    const tutti_status posted = bench.net().recv(rx, &buf, 1, nullptr, seed);
    bench.idle(std::chrono::milliseconds(20));
    require(posted != TUTTI_OK || bench.b().done(seed).times == 0 || bench.b().done(seed).last.status < 0,
            "something was received from a peer that did not answer so");
    bench.destroy(rx);
  }
  bench.transfer(bench.pair(), 100, 100, 1);
}

// What the core carries is answered at once, and does not depend on who asks first.
void answers_kept(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  std::vector<std::unique_ptr<Listening>> list;
  std::vector<Pair> pairs(4);
  for (Pair &p : pairs) {
    list.push_back(std::make_unique<Listening>(bench));
    p.tx = list.back()->connect();
  }
  for (size_t i = pairs.size(); i-- > 0;)
    bench.until(
        [&] {
          bench.net().ep_ready(pairs[i].tx);
          return (pairs[i].rx = list[i]->try_accept()) != nullptr;
        },
        "accept");
  for (size_t i = 0; i < pairs.size(); i++)
    bench.until([&] { return bench.net().ep_ready(pairs[i].tx) == TUTTI_OK && bench.net().ep_ready(pairs[i].rx) == TUTTI_OK; },
                "endpoints to become ready");
  std::vector<uint64_t> in(4, 0), out = {5, 6, 7, 8};
  for (size_t i = 0; i < 4; i++) bench.recv(pairs[i].rx, {bench.b().buf(&in[i], 8)}, i);
  for (size_t i = 0; i < 4; i++) bench.send(pairs[i].tx, {bench.a().buf(&out[i], 8)}, i);
  for (size_t i = 0; i < 4; i++) bench.expect(bench.b(), i, TUTTI_OK, 8);
  require(in == out, "listeners that were connected in one order and accepted in another have mixed up their peers");
}

void no_leak(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const auto rounds = [&](int n) {
    for (int i = 0; i < n; i++) {
      const Pair p = bench.pair();
      bench.transfer(p, 1000, 1000, static_cast<uint64_t>(i));
      bench.destroy(p.tx);
      bench.destroy(p.rx);
      bench.idle(std::chrono::milliseconds(1));
    }
  };
  rounds(3);
  bench.idle(std::chrono::milliseconds(20));
  const size_t fds = open_descriptors();
  rounds(30);
  // A net may look for connections that nobody uses any more now and then.
  for (const Deadline patience = Deadline::in(kWait); open_descriptors() > fds && !patience.expired();)
    bench.idle(std::chrono::milliseconds(20));
  require(open_descriptors() <= fds, "30 connections came and went, and {} descriptors stayed", open_descriptors() - fds);
}

} // namespace

std::vector<Case> net_connection_cases() {
  return {
      {"N-10", "listen writes an address of 1 to 1024 bytes and no more", address_size},
      {"N-11", "accept says AGAIN while nobody has connected", nobody_yet},
      {"N-12", "connect and accept become ready, and stay ready", connects},
      {"N-13", "one connect makes one endpoint on the listener", accepts_one},
      {"N-14", "listeners that exist together have different addresses", many_listeners},
      {"N-15", "ep_describe keeps to the room it is given", describes},
      {"N-16", "endpoints of one context do not mix their messages", several_pairs},
      {"N-17", "both ends may live in one context", same_context},
      {"N-18", "an unused listener can be destroyed and leaves nothing", listener_unused},
      {"N-19", "a connecting endpoint can be destroyed half-open", half_open},
      {"N-20", "an accepted endpoint can be destroyed before it is ready", half_accepted},
      {"N-21", "a listener may go while somebody connects", listener_gone},
      {"N-22", "garbage as an address gives an error or an endpoint that never becomes ready", garbage_address},
      {"N-52", "listeners accept in another order than they were connected in", answers_kept},
      {"N-53", "accept with another answer than the peer's gives an error, or an endpoint that receives nothing", wrong_answer},
      {"N-23", "connections come and go without leaving descriptors", no_leak},
  };
}

} // namespace tutti::conformance
