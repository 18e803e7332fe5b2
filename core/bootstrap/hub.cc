#include "bootstrap/hub.h"
#include "bootstrap/member.h"
#include "bootstrap/root.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr size_t kMinHalfOpen = 512; // and twice the ranks of the largest communicator
constexpr size_t kMaxParked = 4096;

} // namespace

Hub::Hub(Service &service) : service_(service), max_half_open_(kMinHalfOpen) {
  process_ = {random_u64(), random_u64()};
}
Hub::~Hub() = default;

// ---- new connections

void Hub::greet(const Conn::Ptr &conn) {
  bound_half_open();
  half_open_.push_back(conn);
  std::weak_ptr<Conn> weak = conn;
  conn->on_hello = [this, weak](const Hello &) {
    if (auto c = weak.lock()) route(c, true);
  };
  conn->on_close = [weak](Status why) {
    auto c = weak.lock();
    if (!c) return;
    // A rank that reached us another way closes its other attempts after the greeting.
    const bool ours = c->hello().from >= 0 && why.error().message.find("key") == std::string::npos;
    const std::string text = fmt::format("refused a connection from {}: {}", c->remote(), why.error().message);
    if (ours) return log::debug(log::Subsys::bootstrap, "{}", text);
    log::write_once(log::Level::warn, log::Subsys::bootstrap, "stranger", text + "; further ones are refused silently");
  };
}

void Hub::expect_ranks(int nranks) {
  const size_t wanted = kMinHalfOpen + 2 * static_cast<size_t>(nranks);
  for (size_t now = max_half_open_; now < wanted && !max_half_open_.compare_exchange_weak(now, wanted);) {
  }
}

// Of each rank of this process by each other one, both ways.
size_t Hub::expected() const {
  std::lock_guard lock(m_);
  size_t n = 0;
  for (const auto &[key, member] : members_) n += 2 * static_cast<size_t>(member->nranks());
  return n;
}

// Closes those that have said nothing before the others, the oldest first: it had most time to prove itself.
void Hub::bound_half_open() {
  if (half_open_.size() < max_half_open_) return;
  std::erase_if(half_open_, [](const Conn::Ptr &c) { return c->open() || c->closed(); });
  if (half_open_.size() < max_half_open_) return;
  const size_t most = max_half_open_ + expected();
  while (half_open_.size() >= most) {
    log::write_once(log::Level::warn, log::Subsys::bootstrap, "half-open",
                    fmt::format("more than {} unfinished connections, the last one from {}: the oldest are closed", most,
                                half_open_.back()->remote()));
    auto victim = std::find_if(half_open_.begin(), half_open_.end(), [](const Conn::Ptr &c) { return c->hello().from < 0; });
    if (victim == half_open_.end()) victim = half_open_.begin();
    (*victim)->close();
    half_open_.erase(victim);
  }
}

// Told here, since the other end is another job's: whoever reads this log does not see that one.
void Hub::refuse(const Conn::Ptr &conn, Refusal why) {
  const Hello &h = conn->hello();
  const std::string reason = why == Refusal::wire
                                 ? fmt::format("it speaks version {} of the protocol, not {}", h.wire, kWireVersion)
                             : why == Refusal::busy ? "too many wait for ranks that have not registered here"
                                                    : "it looks for a communicator or rank that is not in this process";
  log::write_once(log::Level::warn, log::Subsys::bootstrap, "other-job",
                  fmt::format("refused a connection of rank {} from {}: {}; further ones are refused silently", h.from,
                              conn->remote(), reason));
  conn->refuse(why);
}

void Hub::route(const Conn::Ptr &conn, bool may_park) {
  const Hello h = conn->hello();
  if (h.wire != kWireVersion) return refuse(conn, Refusal::wire);
  if (h.to == kAskRank) return route_question(conn);
  std::weak_ptr<Conn> weak = conn;
  if (h.to == kRootRank) {
    auto root = find_root(h.comm);
    if (!root) return refuse(conn, Refusal::unknown);
    conn->on_open = [root, weak] {
      if (auto c = weak.lock()) root->adopt(c);
    };
    return conn->admit(root->key());
  }
  if (auto member = member_for(h)) {
    conn->on_open = [member, weak] {
      if (auto c = weak.lock()) member->adopt(c);
    };
    return conn->admit(member->key());
  }
  if (!may_park || parked_.size() >= kMaxParked) return refuse(conn, may_park ? Refusal::busy : Refusal::unknown);
  // A split: others may be further than our own rank of it.
  parked_.push_back(conn);
  service_.at(Clock::now() + patience(), [this, weak] {
    if (auto c = weak.lock(); c && !c->open()) route(c, false);
  });
}

std::shared_ptr<Member> Hub::member_for(const Hello &h) const {
  std::lock_guard lock(m_);
  for (const auto *map : {&members_, &leaving_})
    if (const auto it = map->find({h.comm, h.to}); it != map->end()) return it->second;
  return nullptr;
}

void Hub::route_question(const Conn::Ptr &conn) {
  std::shared_ptr<Answerer> answerer;
  {
    std::lock_guard lock(m_);
    answerer = answerer_;
  }
  const auto key = answerer ? answerer->key_for(*conn) : std::nullopt;
  if (!key) { // without an answerer nothing here may be asked, as in a launcher: no reason to say anything
    if (answerer)
      log::write_once(
          conn->is_unix() ? log::Level::info : log::Level::warn, log::Subsys::bootstrap,
          "question", // users look for their own jobs
          fmt::format("refused a question from {}: it names no job of this process; further ones are refused silently",
                      conn->remote()));
    return conn->refuse(Refusal::unknown);
  }
  conn->on_open = [answerer, weak = std::weak_ptr(conn)] {
    if (auto c = weak.lock()) answerer->adopt(c);
  };
  conn->admit(*key);
}

void Hub::set_answerer(std::shared_ptr<Answerer> answerer) {
  std::lock_guard lock(m_);
  answerer_.swap(answerer);
}

std::vector<std::shared_ptr<Member>> Hub::members() const {
  std::vector<std::shared_ptr<Member>> out;
  std::lock_guard lock(m_);
  for (const auto &[key, member] : members_) out.push_back(member);
  return out;
}

void Hub::unpark() {
  auto parked = std::move(parked_);
  parked_.clear();
  for (const auto &weak : parked) {
    auto c = weak.lock();
    if (!c || c->closed() || c->open()) continue;
    if (find(c->hello().comm, c->hello().to))
      route(c, false);
    else
      parked_.push_back(weak);
  }
}

// ---- members

bool Hub::add(uint64_t comm, int rank, const std::shared_ptr<Member> &member) {
  {
    std::lock_guard lock(m_);
    if (!members_.emplace(std::pair(comm, rank), member).second) return false;
  }
  service_.post([this] { unpark(); });
  return true;
}

void Hub::remove(uint64_t comm, int rank, const Member *member) {
  std::shared_ptr<Member> last; // not destroyed under the lock
  std::lock_guard lock(m_);
  auto it = members_.find({comm, rank});
  if (it == members_.end() || it->second.get() != member) return;
  last = std::move(it->second);
  members_.erase(it);
}

std::shared_ptr<Member> Hub::find(uint64_t comm, int rank) const {
  std::lock_guard lock(m_);
  auto it = members_.find({comm, rank});
  return it == members_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<Member>> Hub::local(uint64_t comm) const {
  std::vector<std::shared_ptr<Member>> out;
  std::lock_guard lock(m_);
  for (auto it = members_.lower_bound({comm, 0}); it != members_.end() && it->first.first == comm; ++it)
    out.push_back(it->second);
  return out;
}

void Hub::add_leaving(uint64_t comm, int rank, const std::shared_ptr<Member> &member) {
  std::lock_guard lock(m_);
  leaving_[{comm, rank}] = member;
}

void Hub::remove_leaving(uint64_t comm, int rank) {
  std::shared_ptr<Member> last; // not destroyed under the lock
  std::lock_guard lock(m_);
  const auto it = leaving_.find({comm, rank});
  if (it == leaving_.end()) return;
  last = std::move(it->second);
  leaving_.erase(it);
}

void Hub::add_child(uint64_t parent, uint64_t split, int parent_rank, const std::shared_ptr<Member> &member) {
  std::lock_guard lock(m_);
  children_[{parent, split, parent_rank}] = member;
}

void Hub::remove_child(uint64_t parent, uint64_t split, int parent_rank) {
  std::lock_guard lock(m_);
  children_.erase({parent, split, parent_rank});
}

std::shared_ptr<Member> Hub::find_child(uint64_t parent, uint64_t split, int parent_rank) const {
  std::lock_guard lock(m_);
  auto it = children_.find({parent, split, parent_rank});
  return it == children_.end() ? nullptr : it->second;
}

// ---- roots

void Hub::add_root(const std::shared_ptr<Root> &root) {
  roots_[root->base()] = root;
}

std::shared_ptr<Root> Hub::find_root(uint64_t base) const {
  auto it = roots_.find(base);
  return it == roots_.end() ? nullptr : it->second;
}

void Hub::remove_root(uint64_t base) {
  auto it = roots_.find(base);
  if (it == roots_.end()) return;
  const auto root = it->second; // it may be running
  roots_.erase(it);
  root->close();
}

void Hub::end_all() {
  Error e;
  e.code = Code::system;
  e.phase = "bootstrap";
  e.message = "out of memory: a part of what other ranks have sent is lost";
  e.hint = "see the memory limits of this process (ulimit -v, its container)";
  for (const auto &m : members()) m->report_failure(e);
  for (const auto &[base, root] : roots_) root->end_all(e);
}

void Hub::close_all() {
  for (auto &l : listeners_) {
    service_.remove(l->token);
    l->fd.reset();
  }
  listeners_.clear();
  for (auto &c : half_open_) c->close();
  half_open_.clear();
  for (auto &[base, root] : roots_) root->close();
  roots_.clear();
}

} // namespace tutti::boot
