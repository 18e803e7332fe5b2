#include "bootstrap/root.h"
#include "bootstrap/hub.h"
#include "log/log.h"
#include <sys/resource.h>

namespace tutti::boot {
namespace {

constexpr auto kFirstReport = std::chrono::seconds(5);
constexpr auto kReportEvery = std::chrono::seconds(15);
constexpr auto kRemember = std::chrono::seconds(60); // late ranks learn why a run failed
constexpr rlim_t kOtherFds = 256;                    // what the process may need besides

// A joining rank costs the root a descriptor; soft limits of 1024 are common where the hard one is far higher.
void raise_fd_limit(int nranks) {
  rlimit limit{};
  const rlim_t need = static_cast<rlim_t>(nranks) + kOtherFds;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return;
  const rlim_t had = std::exchange(limit.rlim_cur, std::min(need, limit.rlim_max));
  if (limit.rlim_cur > had && setrlimit(RLIMIT_NOFILE, &limit) == 0)
    log::info(log::Subsys::bootstrap, "soft limit of open files raised from {} to {}: {} ranks check in here", had,
              limit.rlim_cur, nranks);
}

} // namespace

Root::Root(Service &service, const UniqueId &id, Contact self, bool stays)
    : service_(service), identity_(root_identity(id)), self_(std::move(self)), stays_(stays) {}

void Root::expect(Nanos limit) {
  idle_timer_ = service_.at(Clock::now() + limit, [self = shared_from_this(), limit] {
    self->idle_timer_ = 0;
    log::info(log::Subsys::bootstrap, "root of comm {:#x}: nobody checked in within {}, the unique id is void", self->base(),
              seconds(limit));
    self->service_.hub().remove_root(self->base());
  });
}

void Root::adopt(const Conn::Ptr &conn) {
  struct State { // of this connection
    bool in = false, gone = false;
    uint32_t generation = 0;
    int rank = -1;
  };
  if (closed_) return conn->close();
  auto st = std::make_shared<State>();
  std::weak_ptr<Root> weak = weak_from_this();
  std::weak_ptr<Conn> wconn = conn;
  std::erase_if(conns_, [](const auto &w) { return w.expired(); });
  conns_.push_back(conn);
  service_.at(Clock::now() + kHandshakeTime, [wconn, st] {
    const auto c = wconn.lock();
    if (!c || st->in || !c->open()) return;
    log::warn(log::Subsys::bootstrap, "closed the connection of rank {} from {}: it did not check in within {}",
              c->hello().from, c->remote(), seconds(kHandshakeTime));
    c->close();
  });
  conn->on_frame = [weak, wconn, st](Frame f) {
    auto root = weak.lock();
    auto c = wconn.lock();
    if (!root || !c) return;
    if (f.type == FrameType::check_in && !st->in) {
      const auto in = decode_check_in(f.payload);
      if (!in || in->rank != c->hello().from) return c->close();
      st->in = true;
      st->generation = in->generation;
      st->rank = in->rank;
      root->check_in(*in, [wconn, st](FrameType type, const Bytes &data) {
        auto to = wconn.lock();
        if (!to) return;
        to->send(type, 0, data);
        if (type == FrameType::failure || type == FrameType::goodbye) {
          st->gone = true;
          to->finish();
        }
      });
    } else if (f.type == FrameType::in_ring && st->in) {
      root->in_ring(st->generation, st->rank);
    } else if (f.type == FrameType::failure && st->in) {
      if (auto e = decode_error(f.payload)) root->failed(st->generation, st->rank, *e);
    }
  };
  conn->on_close = [weak, st, kept = conn](Status why) { // kept alive until it closes
    auto root = weak.lock();
    if (!root || !st->in || st->gone) return;
    auto run = root->runs_.find(st->generation);
    if (run == root->runs_.end()) return;
    auto entry = run->second.entries.find(st->rank);
    if (entry == run->second.entries.end() || run->second.over) return;
    Error e = why.error();
    e.code = Code::remote;
    e.peer = st->rank;
    e.phase = "bootstrap";
    e.message = fmt::format("rank {} ({}): {} while ranks were joining", st->rank, entry->second.in.contact.text(), e.message);
    root->end(st->generation, e, st->rank);
  };
}

std::string Root::check(const Run &run, const CheckIn &in) const {
  const std::string who = fmt::format("rank {} ({})", in.rank, in.contact.text());
  if (!run.entries.empty()) {
    const Entry &first = run.entries.at(run.first_rank);
    if (in.library != first.in.library)
      return fmt::format("{} runs tutti {}, rank {} ({}) runs {}", who, version_text(in.library), run.first_rank,
                         first.in.contact.text(), version_text(first.in.library));
    if (in.nranks != run.nranks)
      return fmt::format("{} was started with {} ranks, rank {} ({}) with {}", who, in.nranks, run.first_rank,
                         first.in.contact.text(), run.nranks);
  }
  if (in.nranks < 1 || in.rank < 0 || in.rank >= in.nranks)
    return fmt::format("{} is out of range: the communicator has {} ranks, 0 to {}", who, in.nranks, in.nranks - 1);
  if (auto it = run.entries.find(in.rank); it != run.entries.end())
    return fmt::format("rank {} checked in twice: {} and {}", in.rank, it->second.in.contact.text(), in.contact.text());
  return {};
}

void Root::check_in(const CheckIn &in, Sink sink) {
  const auto self = shared_from_this();
  service_.cancel(std::exchange(idle_timer_, 0));
  Run &run = runs_[in.generation];
  if (run.over) return sink(FrameType::failure, encode(run.error));
  if (std::string why = check(run, in); !why.empty()) {
    Error e;
    e.code = Code::invalid_usage;
    e.peer = in.rank;
    e.phase = "bootstrap";
    e.message = std::move(why);
    sink(FrameType::failure, encode(e));
    return end(in.generation, e);
  }
  if (run.entries.empty()) {
    raise_fd_limit(in.nranks);
    run.nranks = in.nranks;
    run.first_rank = in.rank;
    run.began = Clock::now();
    run.report_timer = service_.at(run.began + kFirstReport, [self, g = in.generation] { self->report(g); });
  }
  // Told a little before the first rank gives up, so that everybody hears the same reason.
  const Nanos left(static_cast<int64_t>(std::min<uint64_t>(in.left_ns, uint64_t(1) << 60)));
  const auto deadline = Clock::now() + left - std::min<Nanos>(left / 10, std::chrono::milliseconds(250));
  if (run.entries.empty() || deadline < run.deadline) {
    run.deadline = deadline;
    run.span = Nanos(static_cast<int64_t>(std::min<uint64_t>(in.span_ns, uint64_t(1) << 60)));
    arm(in.generation, run);
  }
  Entry &entry = run.entries[in.rank];
  entry.in = in;
  entry.sink = std::move(sink);
  if (in.contact.process == self_.process && (run.host_rank < 0 || in.rank < run.host_rank)) {
    const bool news = run.host_rank < 0;
    run.host_rank = in.rank;
    if (news)
      for (auto &[rank, e] : run.entries) welcome(run, e);
  } else {
    welcome(run, entry);
  }
  pair_up(run, in.rank);
}

// Who dies with this process: lets the others name a rank when the root disappears.
void Root::welcome(Run &run, Entry &entry) {
  Writer w;
  w.i32(run.host_rank);
  put(w, self_);
  entry.sink(FrameType::welcome, w.take());
}

void Root::pair_up(Run &run, int rank) {
  send_next(run, rank);
  const int before = (rank + run.nranks - 1) % run.nranks;
  if (before != rank) send_next(run, before);
}

void Root::send_next(Run &run, int rank) {
  auto me = run.entries.find(rank);
  auto next = run.entries.find((rank + 1) % run.nranks);
  if (me == run.entries.end() || next == run.entries.end() || me->second.told_next) return;
  me->second.told_next = true;
  Writer forth, back; // the other way only for names in messages
  forth.u8(1);
  put(forth, next->second.in.contact);
  back.u8(0);
  put(back, me->second.in.contact);
  next->second.sink(FrameType::successor, back.take());
  me->second.sink(FrameType::successor, forth.take());
}

void Root::in_ring(uint32_t generation, int rank) {
  const auto self = shared_from_this();
  auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) return;
  Run &run = it->second;
  auto entry = run.entries.find(rank);
  if (entry == run.entries.end() || entry->second.in_ring) return;
  entry->second.in_ring = true;
  run.in_ring++;
  entry->second.sink(FrameType::goodbye, {std::byte(1)});
  if (run.in_ring == static_cast<size_t>(run.nranks)) finished(generation);
}

void Root::finished(uint32_t generation) {
  Run &run = runs_[generation];
  log::debug(log::Subsys::bootstrap, "root of comm {:#x}: all {} ranks joined after {}", base(), run.nranks,
             seconds(Clock::now() - run.began));
  service_.cancel(run.timer);
  service_.cancel(run.report_timer);
  runs_.erase(generation);
  if (on_done) std::exchange(on_done, nullptr)();
  if (!stays_) service_.hub().remove_root(base());
}

void Root::failed(uint32_t generation, int rank, const Error &error) {
  Error e = error;
  if (e.peer < 0) e.peer = rank;
  end(generation, e, rank);
}

// Everybody still here is told; the reason is kept for those who come late.
void Root::end(uint32_t generation, const Error &error, int except) {
  const auto self = shared_from_this();
  auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) return;
  Run &run = it->second;
  run.over = true;
  run.error = error;
  service_.cancel(run.timer);
  service_.cancel(run.report_timer);
  const Bytes data = encode(error);
  const auto entries = std::move(run.entries);
  run.entries.clear();
  for (auto &[rank, entry] : entries)
    if (rank != except && !entry.in_ring) entry.sink(FrameType::failure, data);
  run.timer = service_.at(Clock::now() + kRemember, [self, generation] {
    self->runs_.erase(generation);
    if (!self->stays_ && self->runs_.empty()) self->service_.hub().remove_root(self->base());
  });
}

void Root::arm(uint32_t generation, Run &run) {
  service_.cancel(run.timer);
  run.timer = service_.at(run.deadline, [self = shared_from_this(), generation] { self->expired(generation); });
}

std::string Root::missing(const Run &run) const {
  std::vector<int> ranks;
  for (int r = 0; r < run.nranks; r++)
    if (!run.entries.count(r)) ranks.push_back(r);
  return list_ranks(ranks);
}

void Root::expired(uint32_t generation) {
  auto it = runs_.find(generation);
  if (it == runs_.end()) return;
  Run &run = it->second;
  Error e;
  e.code = Code::timeout;
  e.phase = "bootstrap";
  if (run.entries.size() < static_cast<size_t>(run.nranks)) {
    e.message = fmt::format("{} of {} ranks checked in after {}; missing: {}", run.entries.size(), run.nranks,
                            seconds(run.span), missing(run));
    for (int r = 0; r < run.nranks && e.peer < 0; r++)
      if (!run.entries.count(r)) e.peer = r;
  } else {
    std::vector<int> late;
    for (auto &[rank, entry] : run.entries)
      if (!entry.in_ring) late.push_back(rank);
    e.message = fmt::format("all {} ranks checked in, but after {} these have not connected to both neighbours: {}", run.nranks,
                            seconds(run.span), list_ranks(late));
    e.peer = late.empty() ? -1 : late.front();
    e.hint = "is a firewall between their hosts? see socket.ifname and socket.port_range";
  }
  end(generation, e);
}

void Root::report(uint32_t generation) {
  auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) return;
  Run &run = it->second;
  if (run.entries.size() < static_cast<size_t>(run.nranks))
    log::warn(log::Subsys::bootstrap, "{} of {} ranks checked in after {}; missing: {}", run.entries.size(), run.nranks,
              seconds(std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - run.began)), missing(run));
  run.report_timer =
      service_.at(Clock::now() + kReportEvery, [self = shared_from_this(), generation] { self->report(generation); });
}

int Root::checked_in(uint32_t generation) const {
  const auto it = runs_.find(generation);
  return it == runs_.end() ? 0 : static_cast<int>(it->second.entries.size());
}

void Root::close() {
  closed_ = true;
  service_.cancel(std::exchange(idle_timer_, 0));
  if (on_done) std::exchange(on_done, nullptr)();
  for (const auto &weak : std::exchange(conns_, {}))
    if (const auto c = weak.lock(); c && c->open()) c->close(); // those that finish still have something to say
  for (auto &[generation, run] : runs_) {
    service_.cancel(run.timer);
    service_.cancel(run.report_timer);
  }
  runs_.clear();
}

} // namespace tutti::boot
