#include "transport/transport.h"
#include "log/log.h"
#include "transport/collnet_port.h"
#include "transport/link_message.h"
#include "transport/net_port.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <thread>
#include <unistd.h>

namespace tutti {
namespace {

constexpr size_t kMostWanted = 4096; // of one peer: more than any job's channels and sizes of slots come to

struct LocalInfo {
  uint32_t version;
  uint8_t shm, net, lends, reserved;
  int32_t pid, reserved1;
  uint64_t probe_address, probe_word; // what a peer that can read this process's memory finds there
};

uint64_t *credit_line(uint8_t *memory, uint32_t reader) {
  return reinterpret_cast<uint64_t *>(memory + kCreditOffset + uint64_t(reader) * kCreditStride);
}
// This rank among the readers of a ring with several: they are all ranks but the sender.
uint32_t reader_of(const RingCold &ring) {
  const int me = ring.transport->bootstrap().rank();
  return static_cast<uint32_t>(me < ring.peer ? me : me - 1);
}
// What the slowest reader has consumed.
uint64_t least_credit(const Ring &ring) {
  uint64_t least = load_acquire(ring.credit_line);
  for (uint32_t i = 1; i < ring.cold->geometry.readers; i++)
    least = std::min(least, load_acquire(ring.credit_line + i * (kCreditStride / sizeof(uint64_t))));
  return least;
}

void install(RingCold &cold, uint8_t *memory) {
  Ring &r = cold.ring;
  r.base = memory + cold.geometry.slots_offset();
  r.credit_line = credit_line(memory, cold.geometry.readers && !cold.sending ? reader_of(cold) : 0);
  r.stride = static_cast<uint32_t>(cold.geometry.stride());
  r.mask = cold.geometry.depth - 1;
  r.credit_mask = cold.geometry.credit_mask();
  r.depth = cold.geometry.depth;
}

void add_name(std::string &list, std::string_view name) {
  if (("+" + list + "+").find(fmt::format("+{}+", name)) == std::string::npos) list += fmt::format("+{}", name);
}

std::string name_of(const RingCold &r) {
  const std::string end =
      r.sending && r.geometry.readers ? "to all ranks" : fmt::format("{} rank {}", r.sending ? "to" : "from", r.peer);
  return fmt::format("link {} conn {} ({} x {} bytes)", end, r.conn, r.geometry.depth, r.geometry.slot_bytes);
}

} // namespace

bool ring_credit_slow(Ring &ring) {
  if (ring.cold->state.load(std::memory_order_relaxed) != 3 && !ring.cold->transport->connect(*ring.cold)) return false;
  if (ring.net) return ring.cold->transport->net()->can_send(ring);
  if (ring.group) return ring.cold->transport->collnet()->can_send(ring);
  ring.credit = least_credit(ring);
  return ring.seq - ring.credit < ring.depth;
}

Transport::Transport(Bootstrap &bootstrap, std::shared_ptr<const Config> config, OnError on_error)
    : bootstrap_(bootstrap), config_(std::move(config)), on_error_(std::move(on_error)),
      budget_(static_cast<uint64_t>(config_->number("memory.cap"))), probe_word_(std::random_device{}() | uint64_t(1) << 32) {}

Result<std::unique_ptr<Transport>> Transport::create(Bootstrap &bootstrap, std::shared_ptr<const Config> config,
                                                     Iface<tutti_net_v1> net, OnError on_error) {
  auto t = std::unique_ptr<Transport>(new Transport(bootstrap, std::move(config), std::move(on_error)));
  t->shm_ = !t->config_->flag("shm.disable");
  regions::listen(t.get());
  if (net) {
    TUTTI_ASSIGN(port, NetPort::create(*t, net));
    t->net_ = std::move(port);
  }
  return t;
}

Transport::~Transport() {
  stop();
  if (net_) net_->close(); // endpoints refer to memory of rings
  if (collnet_) collnet_->close();
}

Status Transport::open_collnet(Iface<tutti_collnet_v1> collnet, uint32_t device) {
  TUTTI_ASSIGN(port, CollnetPort::create(*this, collnet, device));
  collnet_ = std::move(port);
  return {};
}

void Transport::close_collnet() {
  collnet_.reset();
}

void Transport::stop() {
  if (std::exchange(stopped_, true)) return;
  regions::leave(this);
  bootstrap_.set_handler(MsgKind::link, nullptr);
}

Bytes Transport::local_info() const {
  const LocalInfo info{3,
                       uint8_t(shm_),
                       uint8_t(net_ != nullptr),
                       uint8_t(net_ && net_->can_lend()),
                       0,
                       ::getpid(),
                       0,
                       reinterpret_cast<uintptr_t>(&probe_word_),
                       probe_word_};
  Bytes out(sizeof info);
  std::memcpy(out.data(), &info, sizeof info);
  return out;
}

Status Transport::set_peers(std::span<const Bytes> infos) {
  const int n = bootstrap_.nranks(), me = bootstrap_.rank();
  if (infos.size() != static_cast<size_t>(n))
    return fail(Code::internal, "set_peers got {} infos for {} ranks", infos.size(), n);
  classes_.assign(static_cast<size_t>(n), LinkClass::local);
  readable_.assign(static_cast<size_t>(n), 1);
  pids_.assign(static_cast<size_t>(n), 0);
  lends_.assign(static_cast<size_t>(n), 0);
  bool one_process = true, one_memory = true;
  for (int r = 0; r < n; r++) {
    LocalInfo info{};
    const Bytes &data = infos[static_cast<size_t>(r)];
    if (data.size() < sizeof info)
      return fail(Code::remote, "rank {} sent {} bytes of link information", r, data.size()).peer(r);
    std::memcpy(&info, data.data(), sizeof info);
    const PeerInfo &a = bootstrap_.peer(me), &b = bootstrap_.peer(r);
    one_process &= a.process == b.process;
    one_memory &= a.host == b.host && info.shm;
    LinkClass c = LinkClass::net;
    if (a.process == b.process) c = LinkClass::local;
    if (a.process != b.process && a.host == b.host && shm_ && info.shm) c = LinkClass::shm;
    if (c == LinkClass::net && (!net_ || !info.net)) {
      const bool same = a.host == b.host;
      return fail(Code::invalid_usage,
                  "rank {} ({}) can be reached only over a network, and rank {} has no usable network plugin", r, b.hostname,
                  net_ ? r : me)
          .peer(r)
          .phase("connect")
          .hint(same ? "shared memory is off (TUTTI_SHM_DISABLE); switch it on or select a network with TUTTI_NET"
                     : "see `tutti info` for why no network plugin is in use");
    }
    classes_[static_cast<size_t>(r)] = c;
    pids_[static_cast<size_t>(r)] = info.pid;
    lends_[static_cast<size_t>(r)] = c == LinkClass::net && net_->can_lend() && info.lends;
    if (c != LinkClass::shm) continue;
    Status readable = probe(r, info.pid, info.probe_address, info.probe_word);
    readable_[static_cast<size_t>(r)] = readable.ok();
    if (!readable.ok() && unreadable_.empty()) unreadable_ = readable.error().line();
  }
  if (net_) TUTTI_TRY(net_->open(routes_));
  shares_memory_ = one_process || one_memory;
  if (!unreadable_.empty()) log::info(log::Subsys::shm, "pull: {}", unreadable_);
  bootstrap_.set_handler(MsgKind::link, [this](Message m) { on_message(std::move(m)); });
  return {};
}

Status Transport::probe(int peer, int32_t pid, uint64_t address, uint64_t word) {
  const std::string &pull = config_->text("shm.pull");
  const auto refuse = [&](int err, const std::string &why) {
    return fail(Code::system, "rank {} cannot read the memory of rank {}: {}", bootstrap_.rank(), peer, why).because(err);
  };
  if (pull != "auto") return refuse(0, fmt::format("shm.pull is \"{}\" ({})", pull, config_->setting("shm.pull").origin));
  uint64_t found = 0;
  const int err = read_process(pid, &found, address, sizeof found);
  if (err)
    return refuse(err, fmt::format("process_vm_readv of process {}: {}", pid, std::strerror(err)))
        .hint("see docs/protocols.md, \"pull\", on what forbids it: ptrace_scope, seccomp, user and process namespaces");
  if (found != word) return refuse(0, fmt::format("process {} of this process namespace is another one", pid));
  return {};
}

std::vector<RingCold *> Transport::lending() const {
  std::vector<RingCold *> out;
  std::lock_guard lock(mutex_);
  for (const auto &[key, cold] : rings_)
    if (key.sending && key.geometry.descriptors && cold->link_class != LinkClass::net &&
        cold->state.load(std::memory_order_acquire) == 3)
      out.push_back(cold.get());
  return out;
}

void Transport::revoke() {
  for (const RingCold *cold : lending()) revoke_lent(cold->ring);
}

std::set<int> Transport::still_reading(const Deadline &patience) {
  std::set<int> peers;
  for (const RingCold *cold : lending()) {
    if (cold->link_class != LinkClass::local) continue;
    while (being_read(cold->ring) && !patience.expired()) std::this_thread::yield();
    if (being_read(cold->ring)) peers.insert(cold->peer);
  }
  return peers;
}

std::string Transport::describe(int peer) const {
  const LinkClass c = link_class(peer);
  return c == LinkClass::net ? net_->describe(peer) : std::string(class_name(c));
}

Result<Ring *> Transport::ring(int peer, uint16_t conn, bool sending, const Geometry &geometry, std::string_view protocol) {
  const Key key{peer, conn, sending, geometry};
  {
    std::lock_guard lock(mutex_);
    if (const auto it = rings_.find(key); it != rings_.end()) {
      add_name(it->second->protocols, protocol);
      return &it->second->ring;
    }
  }
  TUTTI_ASSIGN(cold, make_ring(peer, conn, sending, geometry));
  cold->protocols = protocol;
  RingCold *made = cold.get();
  std::vector<int> asked;
  {
    std::lock_guard lock(mutex_);
    rings_[key] = std::move(cold);
    if (made->owned())
      std::erase_if(wanted_, [&](const Wanted &w) {
        const bool mine = (geometry.readers || w.peer == peer) && w.conn == conn && w.geometry == geometry;
        if (mine) asked.push_back(w.peer);
        return mine;
      });
  }
  for (const int to : asked) TUTTI_TRY(grant(*made, to));
  return &made->ring;
}

Result<std::unique_ptr<RingCold>> Transport::make_ring(int peer, uint16_t conn, bool sending, const Geometry &geometry) {
  auto cold = std::make_unique<RingCold>();
  cold->transport = this;
  cold->ring.cold = cold.get();
  cold->peer = peer;
  cold->conn = conn;
  cold->sending = sending;
  cold->geometry = geometry;
  cold->link_class = link_class(peer);
  if (geometry.readers && std::count(classes_.begin(), classes_.end(), LinkClass::local) != bootstrap_.nranks())
    cold->link_class = LinkClass::shm; // of all readers
  if (cold->link_class == LinkClass::net) {
    TUTTI_TRY(net_->prepare(*cold));
    return cold;
  }
  if (cold->owned()) {
    TUTTI_TRY(make_memory(*cold));
  } else if (!sending) { // an empty slot to look at, until the sender has given its ring
    TUTTI_ASSIGN(nothing, Block::create_empty(geometry.stride()));
    cold->block = std::move(nothing);
    cold->ring.base = cold->block.data();
  }
  return cold;
}

std::vector<int> Transport::full_at(const Ring &ring) const {
  const RingCold &cold = *ring.cold;
  const auto full = [&](uint32_t reader) {
    return ring.seq - load_acquire(ring.credit_line + reader * (kCreditStride / sizeof(uint64_t))) >= ring.depth;
  };
  if (cold.geometry.readers == 0) return {cold.peer};
  std::vector<int> out;
  for (uint32_t i = 0; i < cold.geometry.readers; i++)
    if (full(i)) out.push_back(static_cast<int>(i) < cold.peer ? static_cast<int>(i) : static_cast<int>(i) + 1);
  return out;
}

Status Transport::make_memory(RingCold &ring) {
  const uint64_t bytes = ring.geometry.bytes();
  TUTTI_TRY(budget_.take(bytes, name_of(ring)));
  const bool touch = ring.geometry.descriptors != 1; // payloads rarely travel in such slots
  auto block = ring.link_class == LinkClass::shm ? Block::create_shared(bytes, config_->flag("shm.huge_pages"), &ring.fd, touch)
                                                 : Block::create_local(bytes);
  if (!block.ok()) {
    budget_.give(bytes);
    Status s = std::move(block.status()).endpoint(name_of(ring));
    return ring.sending ? std::move(s) : std::move(s).peer(ring.peer);
  }
  ring.block = std::move(*block);
  if (ring.block.bytes() > bytes) { // whole huge pages
    if (Status s = budget_.take(ring.block.bytes() - bytes, name_of(ring)); !s.ok()) {
      budget_.give(bytes);
      return s;
    }
  }
  install(ring, ring.block.data());
  ring.state.store(3, std::memory_order_release);
  if (ring.geometry.descriptors) pull_header(ring.ring).readable = readable(ring.peer);
  return {};
}

bool Transport::peer_went_elsewhere(const Ring &ring) {
  const RingCold &mine = *ring.cold;
  if (ring.net || ring.group) return false; // what the peer sent before may still be on its way
  if (!visible(ring)) return false;
  std::lock_guard lock(mutex_);
  bool other =
      std::any_of(wanted_.begin(), wanted_.end(), [&](const Wanted &w) { return w.peer == mine.peer && w.conn == mine.conn; });
  const auto from = rings_.lower_bound(Key{mine.peer, mine.conn, false, Geometry{0, 0, 0, 0, 0, 0, 0, 0}});
  for (auto it = from; !other && it != rings_.end(); ++it) {
    const RingCold &c = *it->second;
    if (c.peer != mine.peer || c.conn != mine.conn || c.sending) break;
    if (&c == &mine) continue;
    other = word_arrived(c.ring);
  }
  if (!other) return false;
  // The peer writes all messages of one operation before it turns to the next ring, so what is missing now will never come.
  return !word_arrived(ring);
}

bool Transport::connect(RingCold &ring) {
  switch (ring.state.load(std::memory_order_acquire)) {
  case 0: {
    ring.state.store(1, std::memory_order_relaxed);
    const LinkMessage m{LinkMessage::request, ring.conn, ring.geometry, 0};
    const Status sent = bootstrap_.send(ring.peer, kLinkTag, std::as_bytes(std::span(&m, 1)));
    if (!sent.ok()) report(sent.error());
    if (ring.state.load(std::memory_order_acquire) != 2) return false;
    [[fallthrough]];
  }
  case 2:
    if (ring.link_class == LinkClass::net) return net_->connect(ring);
    ring.block = std::move(ring.offer);
    install(ring, ring.block.data());
    ring.state.store(3, std::memory_order_release); // pairs with lending()
    return true;
  case 3:
    return true;
  default:
    return false;
  }
}

void Transport::on_message(Message message) {
  LinkMessage m;
  if (message.data.size() < sizeof m) return;
  std::memcpy(&m, message.data.data(), sizeof m);
  const auto conn = static_cast<uint16_t>(m.conn);
  switch (m.type) {
  case LinkMessage::request:
    return on_request(message.from, conn, m.geometry);
  case LinkMessage::region_ask:
    if (Status s = give_region(message.from, m.id); !s.ok()) report(s.error());
    return;
  case LinkMessage::region_give:
    return peer_regions_.map(message.from, m.id, message.fd.get(), static_cast<int>(m.conn));
  case LinkMessage::region_gone:
    return peer_regions_.drop(message.from, m.id);
  case LinkMessage::answer:
    return on_answer(message.from, conn, m.geometry, std::span(message.data).subspan(sizeof m));
  default:
    break;
  }
  RingCold *ring = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto it = rings_.find(Key{message.from, conn, m.geometry.readers == 0, m.geometry});
    if (it != rings_.end()) ring = it->second.get(); // rings live as long as the transport
  }
  if (ring && ring->state.load(std::memory_order_relaxed) == 1)
    on_grant(*ring, m.id, message.fd, std::span(message.data).subspan(sizeof m));
}

// A request stays until a plan is bound that has the ring. False: the peer has made too many.
bool Transport::want(int from, uint16_t conn, const Geometry &geometry) {
  size_t theirs = 0;
  for (const Wanted &w : wanted_) {
    if (w.peer != from) continue;
    if (w.conn == conn && w.geometry == geometry) return true;
    theirs++;
  }
  if (theirs < kMostWanted) wanted_.push_back({from, conn, geometry});
  return theirs < kMostWanted;
}

void Transport::on_request(int from, uint16_t conn, const Geometry &geometry) {
  RingCold *ring = nullptr;
  bool too_many = false;
  {
    std::lock_guard lock(mutex_);
    const auto it =
        rings_.find(geometry.readers ? Key{bootstrap_.rank(), conn, true, geometry} : Key{from, conn, false, geometry});
    if (it != rings_.end()) ring = it->second.get();
    if (!ring && !want(from, conn, geometry)) too_many = true;
  }
  if (too_many) {
    Error e;
    e.code = Code::remote;
    e.peer = from;
    e.phase = "connect";
    e.message =
        fmt::format("rank {} asks for more than {} links that rank {} does not have", from, kMostWanted, bootstrap_.rank());
    return report(e);
  }
  if (!ring) return;
  if (Status s = grant(*ring, from); !s.ok()) report(s.error());
}

Status Transport::grant(RingCold &ring, int to) {
  if (ring.link_class == LinkClass::net) {
    net_->ask_listen(ring);
    return {};
  }
  UniqueFd fd; // this call's own: another one, to another reader, may be the last and close it
  {
    std::lock_guard lock(mutex_);
    const uint32_t all = std::max(1u, ring.geometry.readers);
    if (ring.given == all) return {};
    if (++ring.given == all)
      fd = std::move(ring.fd);
    else if (ring.fd && !(fd = UniqueFd(::fcntl(ring.fd.get(), F_DUPFD_CLOEXEC, 0))))
      return fail_errno(errno, fmt::format("duplicating the descriptor of a {}", name_of(ring)))
          .peer(to)
          .phase("connect")
          .hint("raise ulimit -n");
  }
  LinkMessage m{LinkMessage::grant, ring.conn, ring.geometry, ring.block.id()};
  return bootstrap_.send(to, kLinkTag, std::as_bytes(std::span(&m, 1)), fd.get());
}

void Transport::on_answer(int from, uint16_t conn, const Geometry &geometry, std::span<const std::byte> answer) {
  std::lock_guard lock(mutex_);
  const auto it = rings_.find(Key{from, conn, false, geometry});
  if (it != rings_.end() && it->second->ring.net) net_->set_answer(*it->second, answer);
}

void Transport::send_net(uint32_t type, const RingCold &ring, std::span<const std::byte> rest) {
  const LinkMessage m{type, ring.conn, ring.geometry, 0};
  Bytes data(sizeof m + rest.size());
  std::memcpy(data.data(), &m, sizeof m);
  std::copy(rest.begin(), rest.end(), data.begin() + sizeof m);
  if (Status s = bootstrap_.send(ring.peer, kLinkTag, data); !s.ok()) report(s.error());
}

void Transport::send_net_grant(RingCold &ring, std::span<const std::byte> address) {
  send_net(LinkMessage::grant, ring, address);
}

void Transport::send_net_answer(RingCold &ring, std::span<const std::byte> answer) {
  send_net(LinkMessage::answer, ring, answer);
}

void Transport::on_grant(RingCold &ring, uint64_t id, const UniqueFd &fd, std::span<const std::byte> rest) {
  if (ring.link_class == LinkClass::net) {
    net_->set_address(ring, rest);
  } else {
    auto block = ring.link_class == LinkClass::shm
                     ? Block::map_shared(fd.get(), ring.geometry.bytes(), ring.geometry.descriptors != 1)
                     : Block::open_local(id);
    if (!block.ok()) {
      Status s = std::move(block.status()).peer(ring.peer).endpoint(name_of(ring));
      return report(s.error());
    }
    ring.offer = std::move(*block);
  }
  ring.state.store(2, std::memory_order_release);
}

uint64_t Transport::fds() const {
  std::lock_guard lock(mutex_);
  const auto open = std::count_if(rings_.begin(), rings_.end(), [](const auto &r) { return bool(r.second->fd); });
  return static_cast<uint64_t>(open) + (net_ ? net_->fds() : 0);
}

} // namespace tutti
