// tutti/plugins/collnet-aggd/context.cc
#include "context.h"
#include <cerrno>
#include <poll.h>
#include <sys/epoll.h>

namespace tutti::aggd {

constexpr uint32_t clock_interval = 64; // calls of progress() between two looks at the clock
constexpr milliseconds tick_interval{250};
constexpr milliseconds parting{250};  // that the end of a context may take for the last words of its groups
constexpr size_t polled_directly = 2; // up to so many connections, trying them is cheaper than asking epoll first

Listener::Listener(Context &ctx, plugin::CollnetAddress &addr) : NetObject(ctx.host()), ctx_(ctx) {
  ticket_ = {ticket_magic, version_last,  static_cast<uint16_t>(ctx.places().size()),
             {},           ctx.servers(), ctx.servers_in_any_order()};
  random_fill(ticket_.nonce);
  addr.set(ticket_);
}

std::unique_ptr<Membership> Listener::group_create(const std::vector<plugin::CollnetAddress> &addrs, int32_t member,
                                                   const tutti_collnet_config &config) {
  if (addrs.size() > most_members) plugin::unsupported(addrs.size(), " members: a group has at most ", most_members);
  std::vector<Ticket> tickets;
  for (size_t m = 0; m < addrs.size(); m++) {
    const auto t = addrs[m].get<Ticket>();
    if (t.magic != ticket_magic) plugin::fail(TUTTI_ERR_INVALID, "the address of member ", m, " is none of collnet-aggd");
    if (t.version != version_last)
      plugin::unsupported("member ", m, " has version ", t.version, " of collnet-aggd, this one ", version_last,
                          "; install the same on all hosts");
    if (t.shards != ticket_.shards)
      plugin::fail(TUTTI_ERR_INVALID, "member ", m, " has ", t.shards, " servers, this one ", ticket_.shards,
                   "; all members need as many");
    if (t.servers != ticket_.servers && t.any_order == ticket_.any_order)
      plugin::fail(TUTTI_ERR_INVALID, "member ", m, " names the servers of this one in another order; all need the same order");
    tickets.push_back(t);
  }
  if (std::memcmp(&tickets[static_cast<size_t>(member)], &ticket_, sizeof ticket_) != 0)
    plugin::fail(TUTTI_ERR_INVALID, "the address of member ", member, " is not the one of this listener");
  return std::make_unique<Membership>(ctx_, tickets, member, config);
}

Context::Context(const Host &host, const Options &options, const Key &key)
    : NetObject(host), options_(options), key_(key), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) plugin::fail_errno(errno, "cannot make an event descriptor");
  std::string names;
  for (const std::string &server : options_.servers) {
    std::string why;
    auto place = resolve(server, false, why);
    if (!place) plugin::fail(TUTTI_ERR_REMOTE, "servers (", host.origin("servers"), "): \"", server, "\"", why);
    places_.push_back(std::move(*place));
    names += server + ",";
    any_order_ += hash64({reinterpret_cast<const uint8_t *>(server.data()), server.size()});
  }
  if (places_.empty()) plugin::unsupported("no servers are set");
  servers_ = hash64({reinterpret_cast<const uint8_t *>(names.data()), names.size()});
  completions_.reserve(4096);
}

Context::~Context() {
  for (const auto end = Clock::now() + parting; !farewells_.empty() && Clock::now() < end; see_off_all()) {
    pollfd p{epoll_.get(), POLLIN, 0};
    ::poll(&p, 1, 10);
    collect_events();
  }
}

std::unique_ptr<Mr> Context::mr_register(const tutti_region &region) {
  if (region.kind != TUTTI_MEM_HOST) plugin::unsupported("daemons are sent host memory only, not memory kind ", region.kind);
  return std::make_unique<Mr>();
}

void Context::watch(Fd &fd, Shard *shard) {
  if (const int err = fd.watch(epoll_.get(), shard)) plugin::fail_errno(err, "cannot watch a connection");
}

void Context::see_off(Farewell farewell) {
  if (farewell.over(Clock::now())) return;
  (void)farewell.fd().watch(epoll_.get(), nullptr);
  farewells_.push_back(std::move(farewell));
}

void Context::see_off_all() {
  const auto now = Clock::now();
  std::erase_if(farewells_, [&](Farewell &f) { return f.over(now); });
}

void Context::remove(Membership *group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
}

bool Context::collect_events() {
  std::array<epoll_event, 64> events;
  int n = 0;
  bool any = false;
  do {
    n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < n; i++) {
      const epoll_event &e = events[static_cast<size_t>(i)];
      auto *shard = static_cast<Shard *>(e.data.ptr);
      any |= !shard; // a farewell goes on
      if (!shard) continue;
      if (e.events & ~static_cast<uint32_t>(EPOLLOUT)) shard->readable = any = true;
      if (e.events & ~static_cast<uint32_t>(EPOLLIN | EPOLLRDHUP)) shard->writable = true, any |= shard->wants_to_write();
    }
  } while (n == static_cast<int>(events.size()));
  return any;
}

int32_t Context::progress(tutti_collnet_completion *out, uint32_t cap) {
  size_t connections = 0;
  for (const Membership *g : groups_) connections += g->busy() ? g->shards.size() : 0;
  if (connections <= polled_directly && connections > 0 && turn_ % 16 != 0) {
    for (Membership *g : groups_)
      for (auto &s : g->shards) s->readable = s->writable = true;
  } else {
    collect_events();
  }
  for (Membership *g : groups_) g->progress();
  if (!farewells_.empty()) see_off_all();
  if (++turn_ % clock_interval == 0)
    if (const auto now = Clock::now(); now - ticked_ >= tick_interval) {
      ticked_ = now;
      for (Membership *g : groups_) g->tick(now);
    }
  const size_t n = std::min<size_t>(cap, completions_.size() - given_);
  std::copy_n(completions_.begin() + static_cast<ptrdiff_t>(given_), n, out);
  given_ += n;
  if (given_ == completions_.size()) completions_.clear(), given_ = 0;
  return static_cast<int32_t>(n);
}

bool Context::arm() {
  if (given_ < completions_.size() || collect_events()) return false;
  for (Membership *g : groups_)
    if (g->may_move()) return false;
  return true;
}

} // namespace tutti::aggd
