#include "bootstrap/root.h"
#include "bootstrap/hub.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr auto kFirstReport = std::chrono::seconds(5);
constexpr auto kReportEvery = std::chrono::seconds(15);
constexpr auto kRemember = std::chrono::seconds(60);             // late ranks learn why a run failed
constexpr rlim_t kOtherFds = 256;                                // what the process may need besides
constexpr Nanos kFirstRootSays = std::chrono::milliseconds(200); // who is missing, of all ranks

} // namespace

Root::Root(Service &service, const UniqueId &id, Contact self, Config config, bool stays)
    : service_(service), identity_(root_identity(id)), self_(std::move(self)), config_(std::move(config)), stays_(stays) {}

void Root::expect(Nanos limit) {
  idle_timer_ = service_.at(Clock::now() + limit, [self = shared_from_this(), limit] {
    self->idle_timer_ = 0;
    log::info(log::Subsys::bootstrap, "root of comm {:#x}: nobody checked in within {}, the unique id is void", self->base(),
              seconds(limit));
    self->service_.hub().remove_root(self->base());
  });
}

void Root::adopt(const Conn::Ptr &conn) {
  if (closed_) return conn->close();
  auto guest = std::make_shared<Guest>();
  std::weak_ptr<Root> weak = weak_from_this();
  std::weak_ptr<Conn> wconn = conn;
  std::erase_if(conns_, [](const auto &w) { return w.expired(); });
  conns_.push_back(conn);
  const Nanos limit = service_.hub().patience();
  service_.at(Clock::now() + limit, [wconn, guest, limit] {
    const auto c = wconn.lock();
    if (!c || guest->in || !c->open()) return;
    log::warn(log::Subsys::bootstrap, "closed the connection of rank {} from {}: it did not check in within {}",
              c->hello().from, c->remote(), seconds(limit));
    c->close();
  });
  conn->on_frame = [weak, wconn, guest](Frame f) {
    auto root = weak.lock();
    auto c = wconn.lock();
    if (!root || !c) return;
    if (guest->branch >= 0) return root->from_branch(*guest, f);
    if (f.type == FrameType::check_in && !guest->in) {
      const auto in = decode_check_in(f.payload);
      if (!in || in->rank != c->hello().from) return c->close();
      root->check_in_over(c, guest, *in);
    } else if (f.type == FrameType::branch && !guest->in) {
      const auto in = decode_branch(f.payload);
      if (!in || in->first.root == 0) return c->close();
      root->branch_in(c, guest, *in);
    } else if (f.type == FrameType::in_ring && guest->in) {
      root->in_ring(guest->generation, guest->rank);
    } else if (f.type == FrameType::failure && guest->in) {
      if (auto e = decode_error(f.payload)) root->failed(guest->generation, guest->rank, *e);
    }
  };
  conn->on_close = [weak, guest, kept = conn](const Status &why) { // kept alive until it closes
    auto root = weak.lock();
    if (root && guest->in && !guest->gone) root->guest_left(*guest, why);
  };
}

void Root::check_in_over(const Conn::Ptr &conn, const std::shared_ptr<Guest> &guest, const CheckIn &in) {
  guest->in = true;
  guest->generation = in.generation;
  guest->rank = in.rank;
  check_in(in, [wconn = std::weak_ptr<Conn>(conn), guest](FrameType type, const Bytes &data) {
    auto to = wconn.lock();
    if (!to) return;
    to->send(type, 0, data);
    if (type == FrameType::failure || type == FrameType::goodbye) {
      guest->gone = true;
      to->finish();
    }
  });
}

void Root::guest_left(const Guest &guest, const Status &why) {
  auto run = runs_.find(guest.generation);
  if (run == runs_.end() || run->second.over) return;
  std::string who;
  if (guest.branch >= 0) {
    Branch &b = run->second.branches[guest.branch];
    b.conn = nullptr;
    if (static_cast<int>(b.in_ring.size()) ==
        ranks_of_root(run->second.nranks(), run->second.first.nroots, guest.branch).size())
      return;
    who = fmt::format("root {} ({})", guest.branch, b.contact.text());
  } else {
    auto entry = run->second.entries.find(guest.rank);
    if (entry == run->second.entries.end()) return;
    who = fmt::format("rank {} ({})", guest.rank, entry->second.in.contact.text());
  }
  Error e = why.error();
  e.code = Code::remote;
  e.peer = guest.rank;
  e.phase = "bootstrap";
  e.message = fmt::format("{}: {} while ranks were joining", who, e.message);
  end(guest.generation, e, guest.branch >= 0 ? -1 : guest.rank);
}

std::string Root::check(const Run &run, const CheckIn &in, const std::string &who) const {
  if (run.nranks() > 0) {
    const CheckIn &first = run.first;
    const std::string other = fmt::format("rank {} ({})", first.rank, first.contact.text());
    if (in.library != first.library)
      return fmt::format("{} runs tutti {}, {} runs {}", who, version_text(in.library), other, version_text(first.library));
    if (in.nranks != first.nranks)
      return fmt::format("{} was started with {} ranks, {} with {}", who, in.nranks, other, first.nranks);
    if (in.nroots != first.nroots)
      return fmt::format("{} was started with {} unique ids, {} with {}", who, in.nroots, other, first.nroots);
    if (in.security != first.security)
      return fmt::format("{} was started with core.security = \"{}\", {} with \"{}\"", who, in.security, other, first.security);
    if (in.ids != first.ids)
      return fmt::format("{} was started with other unique ids than {}, or in another order", who, other);
  }
  if (in.nranks < 1 || in.rank < 0 || in.rank >= in.nranks)
    return fmt::format("{} is out of range: the communicator has {} ranks, 0 to {}", who, in.nranks, in.nranks - 1);
  return {};
}

void Root::begin(Run &run, const CheckIn &in) {
  run.first = in;
  run.first.root = -1; // whichever root this is, its own first rank says
  run.began = Clock::now();
  run.report_timer = service_.at(run.began + kFirstReport, [self = shared_from_this(), g = in.generation] { self->report(g); });
}

// Told a little before the first rank gives up, so that everybody hears the same reason; from another root a little later.
void Root::heed_deadline(Run &run, const CheckIn &in) {
  constexpr uint64_t kLongest = uint64_t(1) << 60;
  const Nanos left(static_cast<int64_t>(std::min(in.left_ns, kLongest)));
  const auto deadline = Clock::now() + left - std::min<Nanos>(left / 10, std::chrono::milliseconds(250));
  if (run.deadline != Clock::time_point{} && deadline >= run.deadline) return;
  run.deadline = deadline;
  run.span = Nanos(static_cast<int64_t>(std::min(in.span_ns, kLongest)));
  arm(in.generation, run);
}

void Root::check_in(const CheckIn &in, Sink sink) {
  const auto self = shared_from_this();
  service_.cancel(std::exchange(idle_timer_, 0));
  Run &run = runs_[in.generation];
  if (run.over) return sink(FrameType::failure, encode(run.error));
  const std::string who = fmt::format("rank {} ({})", in.rank, in.contact.text());
  std::string why = check(run, in, who);
  if (auto it = run.entries.find(in.rank); why.empty() && it != run.entries.end())
    why = fmt::format("rank {} checked in twice: {} and {}", in.rank, it->second.in.contact.text(), in.contact.text());
  if (!why.empty()) {
    Error e;
    e.code = Code::invalid_usage;
    e.peer = in.rank;
    e.phase = "bootstrap";
    e.message = std::move(why);
    sink(FrameType::failure, encode(e));
    return end(in.generation, e);
  }
  if (run.nranks() == 0) begin(run, in);
  if (run.first.root < 0) {
    run.first.root = in.root;
    run.first.first_root = in.first_root;
    run.range = ranks_of_root(in.nranks, in.nroots, in.root);
    // A joining rank costs the root a descriptor.
    raise_fd_limit(static_cast<rlim_t>(run.range.size() + in.nroots - 1) + kOtherFds,
                   fmt::format("{} ranks check in here", run.range.size()));
  }
  heed_deadline(run, in);
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
  if (in.nroots == 1) return;
  if (!run.is_branch()) return hand_on(run, in.rank);
  if (!run.dialer && !run.first_root) branch_out(in.generation, run);
  tell_first(run, in.rank);
}

// Who dies with this process: lets the others name a rank when the root disappears.
void Root::welcome(Run &run, Entry &entry) {
  entry.sink(FrameType::welcome, whose(run));
}

Bytes Root::whose(const Run &run) const {
  Writer w;
  w.i32(run.host_rank);
  put(w, self_);
  return w.take();
}

const Contact *Root::contact_of(const Run &run, int rank) const {
  if (auto it = run.entries.find(rank); it != run.entries.end()) return &it->second.in.contact;
  const auto it = run.edges.find(rank);
  return it == run.edges.end() ? nullptr : &it->second;
}

void Root::pair_up(Run &run, int rank) {
  send_next(run, rank);
  const int before = (rank + run.nranks() - 1) % run.nranks();
  if (before != rank) send_next(run, before);
}

void Root::send_next(Run &run, int rank) {
  const int after = (rank + 1) % run.nranks();
  const Contact *me = contact_of(run, rank), *next = contact_of(run, after);
  const auto my_entry = run.entries.find(rank), next_entry = run.entries.find(after);
  if (!me || !next || (my_entry == run.entries.end() && next_entry == run.entries.end())) return;
  if (!run.told.insert(rank).second) return;
  Writer forth, back; // the other way only for names in messages
  forth.u8(1);
  put(forth, *next);
  back.u8(0);
  put(back, *me);
  if (next_entry != run.entries.end()) next_entry->second.sink(FrameType::successor, back.take());
  if (my_entry != run.entries.end()) my_entry->second.sink(FrameType::successor, forth.take());
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
  if (run.first_root) {
    Writer w;
    w.i32(rank);
    run.first_root->send(FrameType::in_ring, 0, w.take());
  }
  if (all_in_ring(run)) finished(generation);
}

void Root::finished(uint32_t generation) {
  Run &run = runs_[generation];
  log::debug(log::Subsys::bootstrap, "root of comm {:#x}: all {} ranks joined after {}", base(), run.nranks(),
             seconds(Clock::now() - run.began));
  if (run.dialer) run.dialer->cancel();
  if (run.first_root) run.first_root->finish();
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

void Root::end_all(const Error &error) {
  std::vector<uint32_t> all; // a rank of this process may end a run while it is told
  for (const auto &[generation, run] : runs_) all.push_back(generation);
  for (const uint32_t generation : all) end(generation, error);
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
  flood_roots(run, error);
  run.timer = service_.at(Clock::now() + kRemember, [self, generation] {
    self->runs_.erase(generation);
    if (!self->stays_ && self->runs_.empty()) self->service_.hub().remove_root(self->base());
  });
}

void Root::arm(uint32_t generation, Run &run) {
  service_.cancel(run.timer);
  const Nanos patience = run.is_branch() ? kFirstRootSays : Nanos(0);
  run.timer = service_.at(run.deadline + patience, [self = shared_from_this(), generation] { self->expired(generation); });
}

std::vector<int> Root::missing(const Run &run) const {
  std::vector<int> ranks;
  const RankRange all = run.is_branch() ? run.range : RankRange{0, run.nranks()};
  for (int r = all.low; r < all.high; r++) {
    const auto branch = run.branches.find(root_of_rank(run.nranks(), run.first.nroots, r));
    if (!run.entries.count(r) && (branch == run.branches.end() || !branch->second.here.count(r))) ranks.push_back(r);
  }
  return ranks;
}

std::string Root::missing_text(const Run &run) const {
  const auto ranks = missing(run);
  return run.first.nroots == 1 ? list_ranks(ranks) : by_root(run, ranks);
}

size_t Root::came(const Run &run) const {
  size_t n = run.entries.size();
  for (const auto &[root, branch] : run.branches) n += branch.here.size();
  return n;
}

void Root::expired(uint32_t generation) {
  auto it = runs_.find(generation);
  if (it == runs_.end()) return;
  Run &run = it->second;
  Error e;
  e.code = Code::timeout;
  e.phase = "bootstrap";
  const auto absent = missing(run);
  const int expected = run.is_branch() ? run.range.size() : run.nranks();
  const std::string where = run.is_branch()
                                ? fmt::format("root {} ({}), which has no word from the first root ({}): ", run.first.root,
                                              self_.text(), run.first_root_text)
                                : std::string();
  if (!absent.empty()) {
    e.message = fmt::format("{}{} of {} ranks checked in after {}; missing: {}", where, came(run), expected, seconds(run.span),
                            missing_text(run));
    e.peer = absent.front();
  } else {
    std::vector<int> late;
    for (auto &[rank, entry] : run.entries)
      if (!entry.in_ring) late.push_back(rank);
    for (auto &[root, branch] : run.branches)
      std::set_difference(branch.here.begin(), branch.here.end(), branch.in_ring.begin(), branch.in_ring.end(),
                          std::back_inserter(late));
    e.message = fmt::format("{}all {} ranks checked in, but after {} these have not connected to both neighbours: {}", where,
                            expected, seconds(run.span), list_ranks(late));
    e.peer = late.empty() ? -1 : late.front();
    e.hint = "is a firewall between their hosts? see socket.ifname and socket.port_range";
  }
  end(generation, e);
}

void Root::report(uint32_t generation) {
  auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) return;
  Run &run = it->second;
  if (!missing(run).empty() && !run.first_root) // otherwise the first root says it, for all
    log::warn(log::Subsys::bootstrap, "{} of {} ranks checked in after {}; missing: {}", came(run),
              run.is_branch() ? run.range.size() : run.nranks(),
              seconds(std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - run.began)), missing_text(run));
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
    if (run.dialer) run.dialer->cancel();
  }
  runs_.clear();
}

} // namespace tutti::boot
