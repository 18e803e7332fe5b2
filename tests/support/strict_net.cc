// A net for tests that insists on all that net.h lets a device insist on: the template's sockets, behind registrations that are
// checked with every buffer, answers, and one-sided reads by process_vm_readv. Whoever breaks a promise gets an error from the
// next progress(), and so fails the test's operation.
#include <cstdlib>
#include <tutti/plugin/cxx/plugin.hpp>
#undef TUTTI_CXX_PLUGIN
#define TUTTI_CXX_PLUGIN(Class)
#include "../../plugin-api/template/net/unix.cc" // NOLINT(bugprone-suspicious-include): the template itself
#include <atomic>
#include <map>
#include <sys/syscall.h>

namespace strict {

// Of a registration, where a peer can look whether it still is one.
struct Alive {
  uint64_t id = 0;
};
struct Key {
  int64_t pid;
  uint64_t begin, end, id, alive; // the last one an address
};

class Ctx;

struct Mr : NetObject {
  Mr(Ctx &ctx, const tutti_region &region);
  ~Mr();
  bool holds(const tutti_net_buf &b) const {
    const auto at = reinterpret_cast<uintptr_t>(b.addr);
    return at >= begin && at <= end && b.bytes <= end - at;
  }
  void key(NetKey &out) const { out.set(Key{::getpid(), begin, end, alive->id, reinterpret_cast<uintptr_t>(alive)}); }
  Ctx &ctx;
  uintptr_t begin, end;
  Alive *alive; // of the context: a peer may look after this object is gone
  uint32_t uses = 0;
};

struct Posted {
  uint64_t cookie;
  std::vector<Mr *> mrs;
};
struct Get {
  tutti_net_buf to;
  uint64_t remote;
  Key key;
  uint64_t cookie;
};

class Ep : public NetObject {
public:
  Ep(Ctx &ctx, std::unique_ptr<::Ep> inner);
  ~Ep();
  bool ready() { return inner_->ready(); }
  std::string describe() const { return "strict " + inner_->describe(); }
  tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie);
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie);
  tutti_status get(const tutti_net_buf &to, uint64_t remote, const NetKey &key, uint64_t cookie);
  void progress();

private:
  template <class Post> tutti_status post(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie, Post call);
  Ctx &ctx_;
  std::unique_ptr<::Ep> inner_;
  std::deque<Get> gets_;
};

struct Listener : NetObject {
  Listener(Ctx &ctx, std::unique_ptr<::Listener> inner, uint64_t name);
  std::unique_ptr<Ep> accept(const Address &answer);
  Ctx &ctx;
  std::unique_ptr<::Listener> inner;
  uint64_t expected;
};

class Ctx : public NetObject {
public:
  explicit Ctx(const Host &host) : NetObject(host), inner_(host) {}
  std::unique_ptr<Listener> listen(Address &addr) {
    auto inner = inner_.listen(addr);
    return std::make_unique<Listener>(*this, std::move(inner), addr.get<UnixAddress>().name);
  }
  std::unique_ptr<Ep> connect(const Address &addr, Address &answer) {
    auto inner = inner_.connect(addr);
    answer.set(~addr.get<UnixAddress>().name);
    return std::make_unique<Ep>(*this, std::move(inner));
  }
  std::unique_ptr<Mr> mr_register(const tutti_region &region) {
    if (region.kind != TUTTI_MEM_HOST) unsupported("net strict sends host memory only");
    return std::make_unique<Mr>(*this, region);
  }
  int32_t progress(tutti_net_completion *out, uint32_t cap) {
    if (!wrong_.empty()) fail(TUTTI_ERR_INTERNAL, wrong_);
    for (Ep *ep : eps_) ep->progress();
    uint32_t n = 0;
    for (; n < cap && !done_.empty(); n++) {
      out[n] = done_.front();
      done_.pop_front();
    }
    const int32_t more = inner_.progress(out + n, cap - n);
    for (int32_t i = 0; i < more; i++) {
      tutti_net_completion &c = out[n + static_cast<uint32_t>(i)];
      const auto it = posted_.find(c.cookie);
      for (Mr *mr : it->second.mrs) mr->uses--;
      c.cookie = it->second.cookie;
      posted_.erase(it);
    }
    return static_cast<int32_t>(n) + more;
  }

  void wrong(const char *what) { wrong_ = what; }
  void report(uint64_t cookie, uint64_t bytes, tutti_status status) { done_.push_back({cookie, bytes, status, 0}); }
  void add(Ep *ep) { eps_.push_back(ep); }
  void remove(Ep *ep) { eps_.erase(std::find(eps_.begin(), eps_.end(), ep)); }
  Alive *new_alive() {
    static std::atomic<uint64_t> next{1};
    alive_.push_back({next++});
    return &alive_.back();
  }
  uint64_t number(Posted posted) {
    posted_.emplace(++numbers_, std::move(posted));
    return numbers_;
  }
  void forget(uint64_t number) { posted_.erase(number); }

private:
  ::Ctx inner_;
  std::string wrong_;
  std::deque<Alive> alive_; // elements stay where they are
  std::deque<tutti_net_completion> done_;
  std::map<uint64_t, Posted> posted_; // by the cookie that the sockets are given
  uint64_t numbers_ = 0;
  std::vector<Ep *> eps_;

public:
  ::Ctx &sockets() { return inner_; }
};

Mr::Mr(Ctx &c, const tutti_region &region)
    : NetObject(c.host()), ctx(c), begin(reinterpret_cast<uintptr_t>(region.addr)), end(begin + region.bytes),
      alive(c.new_alive()) {}
Mr::~Mr() {
  if (uses) ctx.wrong("a registration was released while a post named it");
  alive->id = 0;
  begin = end = 0;
}

Listener::Listener(Ctx &c, std::unique_ptr<::Listener> i, uint64_t name)
    : NetObject(c.host()), ctx(c), inner(std::move(i)), expected(~name) {}
std::unique_ptr<Ep> Listener::accept(const Address &answer) {
  if (answer.get<uint64_t>() != expected) fail(TUTTI_ERR_DENIED, "another answer than the peer's");
  auto ep = inner->accept();
  return ep ? std::make_unique<Ep>(ctx, std::move(ep)) : nullptr;
}

Ep::Ep(Ctx &ctx, std::unique_ptr<::Ep> inner) : NetObject(ctx.host()), ctx_(ctx), inner_(std::move(inner)) {
  ctx_.add(this);
}
Ep::~Ep() {
  ctx_.remove(this);
  for (const Get &g : gets_) {
    reinterpret_cast<Mr *>(g.to.mr)->uses--;
    ctx_.report(g.cookie, 0, TUTTI_ERR_CANCELLED);
  }
}

template <class Post> tutti_status Ep::post(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie, Post call) {
  Posted posted{cookie, {}};
  for (uint32_t i = 0; i < n; i++) {
    auto *mr = reinterpret_cast<Mr *>(bufs[i].mr);
    if (!mr && bufs[i].bytes == 0) continue;
    if (!mr || !mr->holds(bufs[i]))
      fail(TUTTI_ERR_INVALID, "buffer ", i, " of ", bufs[i].bytes, " bytes lies in no registration");
    posted.mrs.push_back(mr);
  }
  const std::vector<Mr *> mrs = posted.mrs;
  const uint64_t number = ctx_.number(std::move(posted));
  tutti_status s = TUTTI_AGAIN;
  try {
    s = call(number);
  } catch (...) {
    ctx_.forget(number);
    throw;
  }
  if (s == TUTTI_OK)
    for (Mr *mr : mrs) mr->uses++;
  else
    ctx_.forget(number);
  return s;
}
tutti_status Ep::send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) {
  return post(bufs, n, cookie, [&](uint64_t number) { return inner_->send(bufs, n, number); });
}
tutti_status Ep::recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
  return post(bufs, n, cookie, [&](uint64_t number) { return inner_->recv(bufs, n, received, number); });
}

tutti_status Ep::get(const tutti_net_buf &to, uint64_t remote, const NetKey &key, uint64_t cookie) {
  auto *mr = reinterpret_cast<Mr *>(to.mr);
  if (!mr || !mr->holds(to)) fail(TUTTI_ERR_INVALID, "a get into memory that lies in no registration");
  if (gets_.size() >= kMaxCalls) return TUTTI_AGAIN;
  gets_.push_back({to, remote, key.get<Key>(), cookie});
  mr->uses++;
  return TUTTI_OK;
}

bool read_all(int64_t pid, void *to, uint64_t from, uint64_t bytes) {
  auto *at = static_cast<char *>(to);
  while (bytes > 0) {
    const iovec here{at, bytes}, there{reinterpret_cast<void *>(from), bytes};
    const auto n = ::syscall(SYS_process_vm_readv, pid, &here, 1UL, &there, 1UL, 0UL);
    if (n <= 0) return false;
    at += n;
    from += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
  return true;
}

// One per call, into memory of its own first: what a released registration gave is not shown to anybody.
void Ep::progress() {
  if (gets_.empty()) return;
  const Get g = gets_.front();
  gets_.pop_front();
  reinterpret_cast<Mr *>(g.to.mr)->uses--;
  const bool inside = g.remote >= g.key.begin && g.remote <= g.key.end && g.to.bytes <= g.key.end - g.remote;
  if (!inside) return ctx_.report(g.cookie, 0, TUTTI_ERR_INVALID);
  std::vector<char> got(g.to.bytes);
  Alive before, after;
  const bool good = read_all(g.key.pid, &before, g.key.alive, sizeof before) &&
                    read_all(g.key.pid, got.data(), g.remote, got.size()) &&
                    read_all(g.key.pid, &after, g.key.alive, sizeof after) && before.id == g.key.id && after.id == g.key.id;
  if (good) std::copy(got.begin(), got.end(), static_cast<char *>(g.to.addr));
  ctx_.report(g.cookie, good ? g.to.bytes : 0, good ? TUTTI_OK : TUTTI_ERR_REMOTE);
}

struct Net {
  using Ctx = strict::Ctx;
  using Listener = strict::Listener;
  using Ep = strict::Ep;
  using Mr = strict::Mr;
  static constexpr Info info{"net-strict", "1.0.0", "tests", "Apache-2.0", "insists on registrations and answers"};
  static constexpr const char *net_name = "strict";

  explicit Net(const Host &host) : host_(host), inner_(host) {}
  uint32_t device_count() { return inner_.device_count(); }
  void device_info(uint32_t dev, tutti_net_dev &out) {
    inner_.device_info(dev, out);
    std::strcpy(out.name, "strict0");
    out.flags |= TUTTI_NET_NEEDS_MR | TUTTI_NET_ANSWERS;
    if (std::getenv("TEST_STRICT_REACHES_OUT")) out.flags &= ~uint32_t{TUTTI_NET_LOOPBACK}; // so it says
  }
  std::unique_ptr<Ctx> ctx_create(uint32_t dev, const tutti_net_ctx_config &) {
    if (dev != 0) fail(TUTTI_ERR_INVALID, "there is no device ", dev);
    contexts_++;
    return std::make_unique<Ctx>(host_);
  }
  void counters(uint32_t dev, std::vector<tutti_net_counter> &out) {
    if (dev != 0) fail(TUTTI_ERR_INVALID, "there is no device ", dev);
    out.push_back({"contexts", nullptr, contexts_, 0});
    out.push_back({"lost", "this test has pulled the plug", 0, 0});
  }

private:
  Host host_;
  UnixNet inner_;
  std::atomic<uint64_t> contexts_{0};
};

} // namespace strict

#undef TUTTI_CXX_PLUGIN
#define TUTTI_CXX_PLUGIN(Class)                                                                                                \
  extern "C" {                                                                                                                 \
  TUTTI_EXPORT extern const tutti_plugin_desc tutti_plugin_v1;                                                                 \
  const tutti_plugin_desc tutti_plugin_v1 = ::tutti::plugin::detail::Descriptor<Class>::value;                                 \
  }
TUTTI_CXX_PLUGIN(strict::Net)
