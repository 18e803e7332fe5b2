#include "ras/asking.h"

namespace tutti::ras {
namespace {

constexpr size_t kMostCalls = 64; // connections at a time

std::string_view view(const Bytes &data) {
  return {reinterpret_cast<const char *>(data.data()), data.size()};
}

} // namespace

std::string why_text(const Look &look) {
  switch (look.seen) {
  case Look::Seen::stopped:
    return "is stopped, by a signal or a debugger";
  case Look::Seen::zombie:
    return "has ended, and its parent has not asked how";
  case Look::Seen::gone:
    return "has ended";
  default:
    return "";
  }
}

std::shared_ptr<Asking> Asking::start(boot::Service &service, Plan plan) {
  std::shared_ptr<Asking> a(new Asking(service, std::move(plan)));
  a->until_ = Clock::now() + a->plan_.budget;
  for (Fellow &f : std::exchange(a->plan_.whom, {})) a->add(std::move(f));
  a->timer_ = service.at(a->until_, [weak = std::weak_ptr(a)] {
    if (const auto self = weak.lock()) self->timer_ = 0, self->end();
  });
  service.post([a] { a->go_on(); });
  return a;
}

void Asking::cancel() {
  ended_ = true;
  service_.cancel(std::exchange(timer_, 0));
  for (auto &[process, c] : calls_) {
    service_.cancel(std::exchange(c.timer, 0));
    if (c.dialer) c.dialer->cancel();
    if (c.conn) c.conn->close();
    c.dialer = nullptr;
    c.conn = nullptr;
  }
  plan_.on_answer = nullptr;
  plan_.on_end = nullptr;
}

void Asking::add(Fellow whom) {
  const uint64_t process = whom.contact.process[0];
  if (calls_.size() >= kMostKnown || calls_.contains(process)) return;
  for (const uint64_t known : plan_.question.known)
    if (known == process) return;
  calls_[process].whom = std::move(whom);
  waiting_.push_back(process);
}

// Begins calls while there is room. Not from within itself: a call may settle at once.
void Asking::go_on() {
  const auto self = shared_from_this();
  if (busy_ || ended_) return;
  busy_ = true;
  while (!ended_ && !waiting_.empty() && under_way_ < kMostCalls) {
    const uint64_t process = waiting_.front();
    waiting_.pop_front();
    Call &c = calls_[process];
    if (!c.over) begin(process, c);
  }
  busy_ = false;
  if (!ended_ && over_ == calls_.size()) end();
}

void Asking::begin(uint64_t process, Call &c) {
  c.begun = true;
  under_way_++;
  const bool near = c.whom.contact.host == plan_.my_host;
  if (near && plan_.neighbours) {
    c.look = plan_.neighbours->look(process);
    if (c.look.abnormal()) return settle(process, why_text(c.look));
  }
  // Where not all fit at once nobody may keep its place to the end.
  const Nanos left = until_ - Clock::now();
  const Nanos limit = calls_.size() > kMostCalls ? left / 3 : left;
  boot::Dialer::Job job;
  job.targets = boot::targets_of(c.whom.contact, plan_.my_host, *plan_.config);
  job.hello.library = boot::library_version();
  job.hello.comm = c.whom.under.comm;
  job.hello.from = 0;
  job.hello.to = boot::kAskRank;
  boot::random_bytes(job.hello.nonce);
  job.key = c.whom.under.key;
  job.deadline = Clock::now() + limit;
  job.once = true;
  std::weak_ptr<Asking> weak = weak_from_this();
  c.timer = service_.at(job.deadline, [weak, process, limit] {
    if (const auto self = weak.lock()) self->settle(process, self->late_text(process, limit));
  });
  c.dialer = boot::Dialer::start(service_, std::move(job), [weak, process](Result<boot::Conn::Ptr> r) {
    if (const auto self = weak.lock()) return self->connected(process, std::move(r));
    if (r.ok()) r.value()->close();
  });
}

std::string Asking::late_text(uint64_t process, Nanos limit) const {
  const Call &c = calls_.at(process);
  std::string out = fmt::format("no answer within {:.1f} s", static_cast<double>(limit.count()) * 1e-9);
  if (c.dialer) out += fmt::format(" ({})", c.dialer->last_error());
  return out;
}

void Asking::connected(uint64_t process, Result<boot::Conn::Ptr> r) {
  const auto self = shared_from_this();
  Call &c = calls_[process];
  c.dialer = nullptr;
  if (c.over || ended_) {
    if (r.ok()) r.value()->close();
    return;
  }
  if (!r.ok()) {
    const Error &e = r.status().error();
    if (e.sys_errno != ECONNREFUSED) return settle(process, e.message);
    if (c.whom.contact.host != plan_.my_host)
      return settle(process, "it refuses connections: it has ended, or a firewall rejects them");
    c.look.seen = Look::Seen::gone;
    return settle(process, why_text(c.look));
  }
  c.conn = std::move(*r);
  std::weak_ptr<Asking> weak = weak_from_this();
  c.conn->on_frame = [weak, process](boot::Frame f) {
    if (const auto a = weak.lock()) a->frame(process, std::move(f));
  };
  c.conn->on_close = [weak, process](const Status &why) {
    if (const auto a = weak.lock()) a->settle(process, "left while it answered: " + why.error().message);
  };
  Question q = plan_.question;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count();
  q.budget_ms = static_cast<uint32_t>(std::clamp<int64_t>(left * 4 / 5, 1, kMostBudgetMs));
  c.conn->send(boot::FrameType::question, 0, encode(q));
}

void Asking::frame(uint64_t process, boot::Frame f) {
  const auto self = shared_from_this();
  Call &c = calls_[process];
  if (c.over || ended_) return;
  if (f.type != boot::FrameType::answer || f.tag > static_cast<uint64_t>(Answer::silent))
    return settle(process, "answered what this version does not know");
  const auto what = static_cast<Answer>(f.tag);
  if (what == Answer::end) return settle(process, c.reported ? "" : "answered nothing");
  if (what != Answer::report) return plan_.on_answer(what, std::move(f.payload), nullptr);
  const auto report = parse_report(view(f.payload), "answer of " + c.whom.contact.text());
  if (!report.ok()) return settle(process, report.status().error().message);
  c.reported = true;
  learn(*report);
  plan_.on_answer(what, std::move(f.payload), &*report);
}

void Asking::learn(const ProcessReport &report) {
  for (const auto &n : report.neighbours) {
    const auto at = calls_.find(n.process);
    if (at == calls_.end() || at->second.over) continue;
    at->second.look = n.look;
    settle(n.process, why_text(n.look));
  }
  if (!plan_.key_of) return;
  for (const auto &k : report.more)
    if (const auto key = plan_.key_of(k.under)) add({k.contact, *key, k.places});
  service_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->go_on();
  });
}

void Asking::settle(uint64_t process, std::string why) {
  Call &c = calls_[process];
  if (c.over || ended_) return;
  const auto self = shared_from_this();
  c.over = true;
  c.why = std::move(why);
  over_++;
  if (c.begun) under_way_--;
  service_.cancel(std::exchange(c.timer, 0));
  if (c.dialer) c.dialer->cancel();
  c.dialer = nullptr;
  if (c.conn) c.conn->close();
  c.conn = nullptr;
  service_.post([self] { self->go_on(); });
}

void Asking::end() {
  if (ended_) return;
  const auto self = shared_from_this();
  std::vector<Silent> silent;
  for (auto &[process, c] : calls_) {
    if (c.over && c.why.empty()) continue;
    if (!c.over) c.why = c.begun ? late_text(process, plan_.budget) : "not asked: no time was left";
    if (c.reported) continue; // only a part of what it had to pass on is missing
    Silent s;
    s.process = process;
    s.pid = c.whom.contact.pid;
    s.host_id = c.whom.contact.host;
    s.host = c.whom.contact.hostname;
    s.why = c.why;
    s.look = c.look;
    s.places = c.whom.places;
    silent.push_back(std::move(s));
  }
  const auto tell = std::move(plan_.on_end);
  cancel();
  if (tell) tell(std::move(silent));
}

} // namespace tutti::ras
