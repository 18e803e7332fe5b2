// tutti/plugins/collnet-aggd/daemon/server.cc
#include "server.h"
#include "group.h"
#include "log/log.h"
#include "status.h"
#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/signalfd.h>

namespace tutti::aggd {
namespace {

constexpr milliseconds kTick{25};
constexpr int kEvents = 256;
constexpr uint64_t kOthers = 4;   // part of the free memory that windows above the least may take: others come later
constexpr size_t kQuestions = 16; // asked at a time, of each kind

void say(log::Level level, const std::string &text) {
  log::write(level, log::Subsys::net, text);
}

class Listener final : public Source {
public:
  using Accepted = void (*)(Server &, Fd, const Address &);
  Listener(Server &server, Fd fd, Accepted accepted) : server_(server), fd_(std::move(fd)), accepted_(accepted) {
    server_.watch(fd_, this);
  }
  void on_events(uint32_t) override {
    for (int i = 0; i < 64; i++) {
      Address from;
      from.size = sizeof from.raw;
      Fd fd(::accept4(fd_.get(), reinterpret_cast<sockaddr *>(&from.raw), &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) {
        more_ = errno != EAGAIN && errno != EWOULDBLOCK; // out of descriptors, say: tick() tries again
        return;
      }
      accepted_(server_, std::move(fd), from);
    }
    more_ = true;
  }
  void tick(Clock::time_point) override {
    if (more_) on_events(0);
  }

private:
  Server &server_;
  Fd fd_;
  Accepted accepted_;
  bool more_ = false;
};

void accept_peer(Server &server, Fd fd, const Address &from) {
  if (server.peers >= server.settings().connections) return server.stranger(from.text(), "all connections are taken");
  server.counters().accepted++;
  server.add(std::make_unique<Peer>(server, std::move(fd), from.text()));
}

void accept_query(Server &server, Fd fd, const Address &from) {
  server.add(make_query(server, std::move(fd), from.raw.ss_family != AF_UNIX));
}

} // namespace

void Seldom::say(log::Level level, const std::string &text) {
  const auto now = Clock::now();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - refilled_);
  refilled_ += seconds;
  row_ = static_cast<int>(std::min<int64_t>(kRow, row_ + seconds.count()));
  if (row_ == 0) return void(untold_++);
  row_--;
  aggd::say(level, untold_ == 0 ? text : fmt::format("{} ({} more like it before)", text, untold_));
  untold_ = 0;
}

Server::Server(Settings settings)
    : settings_(std::move(settings)), strangers_(settings_.strangers), questions_(kQuestions), admins_(kQuestions) {
  budget_.limit = settings_.memory;
  random_fill({reinterpret_cast<uint8_t *>(&epoch_), sizeof epoch_});
}

Server::~Server() {
  groups_.clear();
  sources_.clear();
}

Status Server::start() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail(Code::system, "epoll_create1 fails").sys(errno);
  for (const Place &place : settings_.listen) TUTTI_TRY(listen(place, accept_peer));
  if (settings_.metrics) TUTTI_TRY(listen(*settings_.metrics, accept_query));
  TUTTI_TRY(listen_admin());
  listeners_ = sources_.size();
  return {};
}

void Server::runnable(Group *group) {
  if (std::exchange(group->queued, true)) return;
  runnable_.push_back(group);
}

Status Server::listen(const Place &place, void (*accepted)(Server &, Fd, const Address &)) {
  for (const Address &address : place.addresses) {
    Fd fd(::socket(address.raw.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd && errno == EAFNOSUPPORT && place.addresses.size() > 1) continue; // no IPv6 here
    const int on = 1;
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.raw.ss_family == AF_INET6) (void)::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&address.raw), address.size) != 0 ||
        ::listen(fd.get(), 512) != 0)
      return errno == EADDRINUSE
                 ? fail(Code::system, "cannot listen at {}", address.text()).sys(errno).hint("is another daemon running there?")
                 : fail(Code::system, "cannot listen at {}", address.text()).sys(errno);
    Address bound;
    bound.size = sizeof bound.raw;
    (void)::getsockname(fd.get(), reinterpret_cast<sockaddr *>(&bound.raw), &bound.size);
    say(log::Level::info, fmt::format("listening at {}{}", bound.text(), accepted == accept_query ? " for metrics" : ""));
    add(std::make_unique<Listener>(*this, std::move(fd), accepted));
  }
  return {};
}

Status Server::listen_admin() {
  if (settings_.admin.empty()) return {};
  TUTTI_ASSIGN(fd, admin_.listen(settings_.admin));
  add(std::make_unique<Listener>(*this, std::move(fd), accept_query));
  return {};
}

void Server::watch(Fd &fd, Source *source) {
  if (fd.watch(epoll_.get(), source) != 0) source->closed = true; // bury() ends it
}

void Server::add(std::unique_ptr<Source> source) {
  Source *raw = source.get();
  sources_[raw] = std::move(source);
}

void Server::stranger(const std::string &from, const char *what) {
  counters_.strangers++;
  of_strangers_.say(log::Level::warn, fmt::format("{}: closed, for {}", from, what));
}

std::string Server::holders() const {
  std::map<uint64_t, std::pair<uint32_t, uint64_t>> jobs;
  for (const auto &[token, group] : groups_) {
    auto &[n, bytes] = jobs[group->asked().job];
    n++;
    bytes += group->reserved();
  }
  std::vector<std::pair<uint64_t, std::string>> lines;
  for (const auto &[job, held] : jobs)
    lines.emplace_back(held.second, fmt::format("job {:#x} holds {} KiB in {} group{}", job, held.second >> 10, held.first,
                                                held.first == 1 ? "" : "s"));
  std::sort(lines.rbegin(), lines.rend());
  if (lines.size() > 3) lines.resize(3);
  std::string out;
  for (const auto &[bytes, line] : lines) out += (out.empty() ? "" : ", ") + line;
  return out.empty() ? "nobody holds any" : out;
}

Fault Server::admit(const Join &join) {
  const auto refusal = [](uint64_t limit, uint64_t in_use, std::string text) {
    return Fault{Reason::no_resource, Field::none, -1, limit, in_use, std::move(text)};
  };
  if (draining_) return refusal(0, groups_.size(), "the daemon is shutting down and takes no new groups");
  if (join.members > settings_.members)
    return refusal(settings_.members, 0, fmt::format("{} members, above limits.members = {}", join.members, settings_.members));
  if (groups_.size() >= settings_.groups)
    return refusal(settings_.groups, groups_.size(),
                   fmt::format("all {} groups are taken (limits.groups): {}", settings_.groups, holders()));
  const auto same_job =
      std::count_if(groups_.begin(), groups_.end(), [&](const auto &g) { return g.second->asked().job == join.job; });
  if (same_job >= static_cast<ptrdiff_t>(settings_.groups_per_job))
    return refusal(settings_.groups_per_job, static_cast<uint64_t>(same_job),
                   fmt::format("job {:#x} has {} groups already (limits.groups_per_job)", join.job, same_job));
  return {};
}

uint64_t Server::held_by(uint64_t job) const {
  uint64_t bytes = 0;
  for (const auto &[token, group] : groups_) bytes += group->asked().job == job ? group->reserved() : 0;
  return bytes;
}

bool Server::reserve(uint64_t job, uint64_t windows, uint32_t window, Fault &fault) {
  const uint64_t held = held_by(job), share = settings_.memory_per_job;
  const std::string what = fmt::format("{} window{} of {} KiB do{} not fit into", windows, windows == 1 ? "" : "s",
                                       window >> 10, windows == 1 ? "es" : "");
  if (windows * window > share - std::min(share, held))
    fault = {
        Reason::no_resource,
        Field::none,
        -1,
        share,
        held,
        fmt::format("{} limits.memory_per_job = {} KiB, of which job {:#x} holds {} KiB", what, share >> 10, job, held >> 10)};
  else if (!budget_.take(windows * window))
    fault = {Reason::no_resource,
             Field::none,
             -1,
             budget_.limit,
             budget_.reserved,
             fmt::format("{} limits.memory = {} KiB, of which {} KiB are taken: {}", what, budget_.limit >> 10,
                         budget_.reserved >> 10, holders())};
  return fault.reason == Reason::none;
}

void Server::join(Peer &peer, Role role, const Join &join) {
  auto found = groups_.find(join.token);
  if (found == groups_.end()) {
    if (Fault refused = admit(join); refused.reason != Reason::none) return peer.refuse(refused);
    // Rings: a member's each, one of results, and below another daemon one of what goes up.
    const uint64_t rings = std::max(join.local, 1u) + 1 + (settings_.parent ? 1 : 0);
    uint32_t window = std::min(settings_.window, std::bit_floor(std::clamp(join.window, least_window, most_window)));
    const uint64_t share = settings_.memory_per_job, held = held_by(join.job);
    const uint64_t most = std::min((budget_.limit - budget_.reserved) / kOthers, share - std::min(share, held));
    while (window > least_window && rings * window > most) window /= 2;
    Fault refused;
    if (!reserve(join.job, rings, window, refused)) return peer.refuse(refused);
    counters_.groups++;
    found = groups_.emplace(join.token, std::make_unique<Group>(*this, join, window, rings * window)).first;
  }
  Group &group = *found->second;
  if (Fault refused = group.join(peer, role, join); refused.reason != Reason::none) {
    peer.refuse(refused);
    if (group.state() != Group::State::ended) group.fail(refused); // all or none
  }
  runnable(&group);
}

void Server::begin_drain() {
  if (draining_) {
    hurried_ = true; // asked twice
  } else {
    draining_ = true;
    drain_until_ = Clock::now() + settings_.drain;
    say(log::Level::info, fmt::format("shutting down: {} groups may go on for {} ms", groups_.size(), settings_.drain.count()));
  }
}

void Server::tick(Clock::time_point now) {
  std::vector<Source *> all;
  all.reserve(sources_.size());
  for (const auto &[raw, owned] : sources_) all.push_back(raw);
  for (Source *source : all)
    if (!source->closed) source->tick(now);
  const bool time_is_up = draining_ && (hurried_ || now >= drain_until_);
  for (auto &[token, group] : groups_) {
    if (time_is_up && group->state() != Group::State::ended)
      group->fail({Reason::aggregator_lost, Field::none, -1, 0, 0, "the daemon is shutting down"});
    group->tick(now);
    runnable(group.get());
  }
}

void Server::bury() {
  for (auto it = groups_.begin(); it != groups_.end();) {
    if (it->second->over()) {
      std::erase(runnable_, it->second.get());
      budget_.give(it->second->reserved());
      it = groups_.erase(it);
    } else {
      ++it;
    }
  }
  for (auto it = sources_.begin(); it != sources_.end();) it = it->first->closed ? sources_.erase(it) : std::next(it);
}

void Server::round(int timeout_ms) {
  std::array<epoll_event, kEvents> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), kEvents, timeout_ms);
  for (int i = 0; i < n; i++)
    if (auto *source = static_cast<Source *>(events[static_cast<size_t>(i)].data.ptr))
      source->on_events(events[static_cast<size_t>(i)].events);
  running_.clear();
  running_.swap(runnable_);
  for (Group *group : running_) {
    group->queued = false;
    if (group->turn()) runnable(group);
  }
}

Status Server::run(int stop) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop, &event) != 0) return fail(Code::system, "epoll_ctl fails").sys(errno);
  while (!draining_ || !groups_.empty()) {
    const bool idle = groups_.empty() && sources_.size() == listeners_ && !draining_;
    round(!runnable_.empty() ? 0 : idle ? 1000 : static_cast<int>(kTick.count()));
    signalfd_siginfo info;
    if (::read(stop, &info, sizeof info) == sizeof info) begin_drain();
    if (const auto now = Clock::now(); now - ticked_ >= kTick) {
      ticked_ = now;
      tick(now);
      bury();
    }
  }
  say(log::Level::info, "ended");
  return {};
}

} // namespace tutti::aggd
