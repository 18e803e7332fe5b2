#include "bootstrap/dialer.h"
#include "bootstrap/hub.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr auto kNextTarget = std::chrono::milliseconds(250); // a place that has not answered by then gets a rival
constexpr Nanos kRoundTime = std::chrono::seconds(2);        // what hangs longer is tried anew, twice as patiently

bool refused(int err) {
  return err == ECONNREFUSED || err == EHOSTUNREACH || err == ENETUNREACH || err == EADDRNOTAVAIL;
}

} // namespace

std::shared_ptr<Dialer> Dialer::start(Service &service, Job job, Done done) {
  std::shared_ptr<Dialer> d(new Dialer(service, std::move(job), std::move(done)));
  d->errors_.resize(d->job_.targets.size());
  d->nobody_.resize(d->job_.targets.size());
  service.post([d] {
    if (d->done_) d->round();
  });
  return d;
}

Dialer::~Dialer() {
  cancel();
}

void Dialer::cancel() {
  service_.cancel(timer_);
  timer_ = 0;
  for (auto &c : attempts_)
    if (c) c->close();
  attempts_.clear();
  done_ = nullptr;
}

void Dialer::set_timer(Nanos in, void (Dialer::*fn)()) {
  service_.cancel(timer_);
  timer_ = service_.at(std::min(Clock::now() + in, job_.deadline), [weak = weak_from_this(), fn] {
    if (auto self = weak.lock()) {
      self->timer_ = 0;
      ((*self).*fn)();
    }
  });
}

void Dialer::round() {
  if (Clock::now() >= job_.deadline && rounds_ > 0) return finish(fail(Code::timeout, "{}", last_error()).phase("bootstrap"));
  if (job_.targets.empty()) return finish(fail(Code::system, "no address to connect to is known").phase("bootstrap"));
  rounds_++;
  failed_count_ = 0;
  all_refused_ = true;
  nobody_.assign(nobody_.size(), false);
  attempts_.clear();
  next_target();
}

void Dialer::next_target() {
  const auto self = shared_from_this();
  const size_t i = attempts_.size();
  if (i == job_.targets.size()) return round_over(); // nothing answered in time
  attempts_.push_back(Conn::dial(service_, job_.targets[i], job_.hello, job_.key));
  Conn &c = *attempts_.back();
  std::weak_ptr<Dialer> weak = self;
  std::weak_ptr<Conn> conn = attempts_.back();
  c.on_close = [weak, i](const Status &why) {
    if (auto d = weak.lock()) d->failed(i, why);
  };
  c.on_verified = [weak, conn] {
    auto d = weak.lock();
    auto w = conn.lock();
    if (d && w) d->won(w);
  };
  // A listener of this host that is slow gets no rival: only it can carry descriptors. Where there is none, that is known at
  // once.
  // Where there is one it answers when its process gets a core: it is waited for until the deadline.
  if (!job_.targets[i].unix_name.empty()) return set_timer(job_.deadline - Clock::now(), &Dialer::round_over);
  const Nanos round = kRoundTime * (int64_t(1) << std::min(rounds_ - 1, 20));
  set_timer(i + 1 < job_.targets.size() ? Nanos(kNextTarget) : round, &Dialer::next_target);
}

void Dialer::failed(size_t index, const Status &why) {
  if (index >= attempts_.size() || !attempts_[index]) return;
  const auto self = shared_from_this();
  attempts_[index] = nullptr;
  errors_[index] = why.error().message;
  nobody_[index] = why.error().sys_errno == ECONNREFUSED || why.error().message == text(Refusal::unknown);
  if (!refused(why.error().sys_errno)) all_refused_ = false;
  failed_count_++;
  if (failed_count_ == job_.targets.size()) return round_over();
  if (index + 1 == attempts_.size() && attempts_.size() < job_.targets.size()) next_target();
}

void Dialer::round_over() {
  const auto self = shared_from_this();
  const bool hung = failed_count_ < job_.targets.size();
  for (size_t i = 0; i < attempts_.size(); i++) {
    if (!attempts_[i]) continue;
    if (errors_[i].empty()) errors_[i] = "no answer";
    attempts_[i]->close();
  }
  attempts_.clear();
  if (!hung && all_refused_ && !job_.patient && rounds_ > job_.retry_count)
    return finish(fail(Code::remote, "{}", last_error()).phase("bootstrap").because(ECONNREFUSED));
  if (!hung && job_.once) return finish(fail(Code::remote, "{}", last_error()).phase("bootstrap"));
  if (Clock::now() >= job_.deadline) return finish(fail(Code::timeout, "{}", last_error()).phase("bootstrap"));
  set_timer(std::min<Nanos>(job_.retry_sleep * std::min(rounds_, 10), std::chrono::seconds(1)), &Dialer::round);
}

void Dialer::won(const Conn::Ptr &conn) {
  const auto self = shared_from_this();
  service_.cancel(timer_);
  timer_ = 0;
  for (auto &c : attempts_)
    if (c && c != conn) c->close();
  attempts_.clear();
  conn->on_close = nullptr;
  if (job_.prove)
    conn->prove();
  else
    conn->close();
  if (job_.prove && conn->closed()) { // broke at this very moment: once more
    set_timer(job_.retry_sleep, &Dialer::round);
    return;
  }
  finish(conn);
}

void Dialer::finish(Result<Conn::Ptr> result) {
  service_.cancel(timer_);
  timer_ = 0;
  auto done = std::move(done_);
  done_ = nullptr;
  if (done) done(std::move(result));
}

bool Dialer::has(const std::function<bool(const Target &)> &counts) const {
  return std::any_of(job_.targets.begin(), job_.targets.end(), counts);
}

bool Dialer::nobody_at(const std::function<bool(const Target &)> &counts) const {
  bool any = false;
  for (size_t i = 0; i < job_.targets.size(); i++) {
    if (!counts(job_.targets[i])) continue;
    if (!nobody_[i]) return false;
    any = true;
  }
  return any;
}

std::string Dialer::last_error(const std::function<bool(const Target &)> &counts) const {
  for (size_t i = 0; i < job_.targets.size(); i++)
    if (counts(job_.targets[i]) && !errors_[i].empty()) return errors_[i];
  return "no answer";
}

std::string Dialer::last_error() const {
  std::string out;
  for (size_t i = 0; i < job_.targets.size(); i++) {
    if (errors_[i].empty() || !job_.targets[i].unix_name.empty()) continue;
    if (!out.empty()) out += ", ";
    out += job_.targets[i].text() + ": " + errors_[i];
  }
  for (size_t i = 0; out.empty() && i < job_.targets.size(); i++) out = errors_[i];
  return out.empty() ? "no answer yet" : out;
}

namespace {

// The chosen address in the network of the other end, else the first of its family.
Endpoint source_for(const Endpoint &to, const std::vector<netif::Choice> &choices) {
  const netif::Choice *best = nullptr;
  for (const netif::Choice &c : choices) {
    if (c.address.family() != to.family() || c.address.link_local()) continue;
    netif::detail::Entry network;
    network.net = to.storage;
    network.prefix = c.address.prefix;
    const bool near = netif::detail::in_network(c.address, network);
    if (!best || near) best = &c;
    if (near) break;
  }
  Endpoint e;
  if (best) e.storage = best->address.storage;
  return e;
}

} // namespace

void add_targets(std::vector<Target> *out, std::span<const Endpoint> endpoints, const Config &config) {
  const std::string &rule = config.text("socket.ifname");
  const auto choices = netif::select(rule).choices;
  for (const Endpoint &e : endpoints) {
    netif::Address a;
    a.storage = e.storage;
    if (e.family() != AF_INET6 || !a.link_local()) {
      Target t{"", e, {}};
      if (!rule.empty() && !is_loopback(e)) t.source = source_for(e, choices);
      out->push_back(t);
      continue;
    }
    for (const netif::Choice &c : choices) {
      if (c.address.family() != AF_INET6 || !c.address.link_local()) continue;
      Target t{"", e, {}};
      reinterpret_cast<sockaddr_in6 *>(&t.endpoint.storage)->sin6_scope_id = c.interface.index;
      out->push_back(t);
    }
  }
}

std::vector<Target> targets_of(const Contact &to, uint64_t my_host, const Config &config) {
  std::vector<Target> out;
  if (to.host == my_host) out.push_back({unix_listener_name(to.process[0]), {}, {}});
  add_targets(&out, to.endpoints, config);
  return out;
}

Dialer::Job root_job(const UniqueId &id, int from, const Config &config, Clock::time_point deadline) {
  const Identity root = root_identity(id);
  Dialer::Job job;
  if (id.process != 0 && id.host == static_cast<uint32_t>(host_id(config)))
    job.targets.push_back({unix_listener_name(id.process), {}, {}});
  add_targets(&job.targets, id.endpoints, config);
  job.hello.library = library_version();
  job.hello.comm = root.comm;
  job.hello.from = from;
  job.hello.to = kRootRank;
  random_bytes(job.hello.nonce);
  job.key = root.key;
  job.deadline = deadline;
  job.patient = id.from_address;
  set_retries(&job, config);
  return job;
}

void set_retries(Dialer::Job *job, const Config &config) {
  job->retry_count = config.number("socket.retry_count");
  job->retry_sleep = config.duration("socket.retry_sleep");
}

} // namespace tutti::boot
