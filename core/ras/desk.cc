#include "ras/desk.h"
#include "base/fork.h"
#include "base/ticks.h"
#include "bootstrap/member.h"
#include "bootstrap/rendezvous.h"
#include "log/log.h"
#include "ras/asking.h"
#include "ras/flight.h"
#include "ras/metrics.h"
#include <algorithm>
#include <list>
#include <set>
#include <unistd.h>

namespace tutti::ras {
namespace {

using boot::Conn;

constexpr size_t kMostSessions = 64;
constexpr uint64_t kMostQueued = 64u << 20;       // of answers that somebody does not read
constexpr auto kToAsk = std::chrono::seconds(10); // from the handshake to the question
constexpr auto kToRead = std::chrono::seconds(5); // after the time that the question gave
constexpr size_t kMostHeard = 1u << 16;

class Desk;

// One who asks.
class Session : public std::enable_shared_from_this<Session> {
public:
  Session(Desk &desk, Conn::Ptr conn) : desk_(desk), conn_(std::move(conn)) {}
  void open();
  void close();

private:
  void question(const boot::Frame &f);
  void say(Answer what, std::span<const std::byte> data);
  void say(Answer what, const std::string &text) { say(what, std::as_bytes(std::span(text.data(), text.size()))); }
  void collect();
  void relay(const Question &q);
  void finish();
  void allow(Nanos time);

  Desk &desk_;
  Conn::Ptr conn_;
  bool asked_ = false, closed_ = false;
  uint64_t timer_ = 0;
  std::shared_ptr<Asking> asking_;
  std::shared_ptr<std::atomic<uint64_t>> queued_ = std::make_shared<std::atomic<uint64_t>>(0);
};

class Desk final : public boot::Answerer {
public:
  Desk(std::shared_ptr<const Config> config, boot::Contact self) : config_(std::move(config)), self_(std::move(self)) {}

  std::optional<boot::Secret> key_for(const Conn &conn) override;
  void adopt(const Conn::Ptr &conn) override;
  void leave(const std::shared_ptr<Session> &session) { sessions_.remove(session); }

  ProcessReport report(const Question &q);
  std::optional<boot::Identity> identity(uint64_t id) const;
  void heard(const ProcessReport &r);
  void complete(Silent *s) const; // what is known of it here
  const std::shared_ptr<const Config> &config() const { return config_; }
  const boot::Contact &self() const { return self_; }
  Neighbours &neighbours() { return neighbours_; }

private:
  const std::shared_ptr<const Config> config_;
  const boot::Contact self_;
  const int64_t started_ns_ = ticks::Reader().now_ns();
  std::optional<boot::Identity> file_; // of core.job_key_file; nothing until somebody names one
  bool file_read_ = false;
  std::list<std::shared_ptr<Session>> sessions_; // oldest first
  std::map<uint64_t, int64_t> heard_;            // when processes last answered
  Neighbours neighbours_;
};

std::optional<boot::Identity> Desk::identity(uint64_t id) const {
  for (const auto &m : boot::Service::get().hub().members())
    if (m->asking().comm == id) return m->asking();
  if (file_ && file_->comm == id) return file_;
  return std::nullopt;
}

std::optional<boot::Secret> Desk::key_for(const Conn &conn) {
  const uint64_t id = conn.hello().comm;
  if (id == 0) { // the kernel says who it is
    const auto who = conn.credentials();
    if (!who || (who->uid != 0 && who->uid != ::geteuid())) return std::nullopt;
    return boot::local_ask_identity().key;
  }
  // A tool has nothing but the file; the communicators of this process may have other secrets.
  if (const std::string &path = config_->text("core.job_key_file"); !path.empty() && !std::exchange(file_read_, true)) {
    if (const auto key = boot::read_job_key(path); key.ok()) file_ = boot::ask_identity(*key);
  }
  const auto known = identity(id);
  return known ? std::optional(known->key) : std::nullopt;
}

void Desk::adopt(const Conn::Ptr &conn) {
  if (sessions_.size() >= kMostSessions) {
    const auto oldest = sessions_.front();
    oldest->close();
  }
  const auto s = std::make_shared<Session>(*this, conn);
  sessions_.push_back(s);
  s->open();
}

ProcessReport Desk::report(const Question &q) {
  ProcessReport r = own_report(self_, started_ns_);
  const auto all = fellows();
  r.neighbours = ailing(self_, all, &neighbours_);
  const std::set<uint64_t> known(q.known.begin(), q.known.end());
  if (!q.relay && !q.alone) // else it asks them
    for (const auto &[process, f] : all)
      if (!known.contains(process) && r.more.size() < kMostKnown) r.more.push_back({f.contact, f.under.comm, f.places});
  return r;
}

void Desk::heard(const ProcessReport &r) {
  if (heard_.size() >= kMostHeard) heard_.clear();
  heard_[r.process] = ticks::Reader().now_ns();
}

// Who has never answered was there at least when the first communicator with it was set up.
void Desk::complete(Silent *s) const {
  if (const auto at = heard_.find(s->process); at != heard_.end()) s->heard_ns = at->second;
  for (const auto &flight : flights()) {
    const bool in =
        std::any_of(s->places.begin(), s->places.end(), [&](const Place &p) { return p.comm == flight->who().comm; });
    if (in) s->heard_ns = std::max(s->heard_ns, flight->set_up_ns());
  }
}

// ---- session

void Session::open() {
  conn_->own(queued_, nullptr);
  conn_->most_frame(kMostQuestionBytes);
  std::weak_ptr<Session> weak = weak_from_this();
  conn_->on_frame = [weak](const boot::Frame &f) {
    if (const auto s = weak.lock()) s->question(f);
  };
  conn_->on_close = [weak](const Status &) {
    if (const auto s = weak.lock()) s->close();
  };
  allow(kToAsk);
}

void Session::allow(Nanos time) {
  boot::Service &service = boot::Service::get();
  service.cancel(timer_);
  timer_ = service.at(Clock::now() + time, [weak = weak_from_this()] {
    if (const auto s = weak.lock()) s->timer_ = 0, s->close();
  });
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  boot::Service::get().cancel(std::exchange(timer_, 0));
  if (asking_) asking_->cancel();
  conn_->close();
  desk_.leave(self);
}

void Session::say(Answer what, std::span<const std::byte> data) {
  if (closed_) return;
  if (data.size() > boot::kFrameLimit || queued_->load() + data.size() > kMostQueued) return close();
  conn_->send(boot::FrameType::answer, static_cast<uint64_t>(what), data);
}

void Session::finish() {
  say(Answer::end, std::span<const std::byte>());
  if (!closed_) allow(kToRead); // the other end closes when it has read
}

void Session::question(const boot::Frame &f) {
  const auto q = f.type == boot::FrameType::question ? decode_question(f.payload) : std::nullopt;
  if (!q || std::exchange(asked_, true)) {
    log::write_once(
        log::Level::warn, log::Subsys::bootstrap, "bad-question",
        fmt::format("{} asked what this version does not know; further ones are refused silently", conn_->remote()));
    return close();
  }
  allow(std::chrono::milliseconds(q->budget_ms) + kToRead);
  ProcessReport report = desk_.report(*q);
  if (q->ask == Ask::dump)
    for (const auto &flight : flights()) {
      const Status s = flight->write("", "asked");
      report.notes.push_back(fmt::format("comm {:016x} rank {}: {}", flight->who().comm, flight->who().rank,
                                         s.ok() ? "written" : s.error().line()));
    }
  say(Answer::report, encode(report));
  if (q->ask == Ask::collect) collect();
  if (closed_) return;
  if (q->relay) return relay(*q);
  finish();
}

void Session::collect() {
  for (const auto &flight : flights()) {
    const auto file = flight->snapshot("asked");
    if (file.ok()) say(Answer::file, encode_flight(*file));
  }
}

void Session::relay(const Question &q) {
  Asking::Plan plan;
  plan.question = q;
  plan.question.relay = plan.question.alone = false;
  plan.question.known.push_back(desk_.self().process[0]);
  plan.budget = std::chrono::milliseconds(q.budget_ms);
  for (auto &[process, f] : fellows()) plan.whom.push_back(std::move(f));
  plan.config = desk_.config();
  plan.my_host = desk_.self().host;
  plan.neighbours = &desk_.neighbours();
  plan.key_of = [this](uint64_t id) { return desk_.identity(id); };
  std::weak_ptr<Session> weak = weak_from_this();
  plan.on_answer = [weak](Answer what, const Bytes &data, const ProcessReport *report) {
    const auto s = weak.lock();
    if (!s) return;
    if (report) s->desk_.heard(*report);
    s->say(what, data);
  };
  plan.on_end = [weak](std::vector<Silent> silent) {
    const auto s = weak.lock();
    if (!s) return;
    for (Silent &one : silent) {
      s->desk_.complete(&one);
      s->say(Answer::silent, encode(one));
    }
    s->finish();
  };
  asking_ = Asking::start(boot::Service::get(), std::move(plan));
}

// ---- opening

// NCCL's form, HOST:PORT, for clients that look at one place: the first process of a host gets it.
void listen_at_address(const Config &config) {
  const std::string &text = config.text("ras.address");
  if (text.empty()) return;
  Status s;
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
  const auto at = colon == std::string::npos ? std::nullopt : endpoint(numeric + text.substr(colon));
  if (!at)
    s = fail(Code::invalid_argument, "it is no address: IP:PORT, [IPV6]:PORT or localhost:PORT");
  else
    s = boot::Service::get().hub().listen_at(*at);
  if (s.ok()) return log::info(log::Subsys::init, "questions are also answered at {}", text);
  if (s.error().sys_errno == EADDRINUSE)
    return log::info(log::Subsys::init, "ras.address {}: another process of this host has it", text);
  log::warn(log::Subsys::init, "ras.address \"{}\" ({}): {}", text, config.setting("ras.address").origin, s.error().message);
}

void open_new(const std::shared_ptr<const Config> &config, boot::Service &service) {
  const auto self = service.hub().contact(*config);
  if (!self.ok()) return; // whoever joins says why
  if (config->flag("ras.enable")) {
    service.hub().set_answerer(std::make_shared<Desk>(config, *self));
    listen_at_address(*config);
    std::string where;
    for (const boot::Endpoint &e : self->endpoints) where += (where.empty() ? "" : ", ") + e.text();
    log::info(log::Subsys::init,
              "questions of `tutti ras` are answered to this user on this host, and at {} to who has the job's key",
              where.empty() ? "no address" : where);
  }
  open_metrics(*config, *self);
}

} // namespace

void open_desk(const std::shared_ptr<const Config> &config) {
  struct Opened {
    std::mutex mutex; // guards by
    boot::Service *by = nullptr;
  };
  static Opened &opened = []() -> Opened & {
    auto *made = new Opened; // never destroyed
    hold_over_fork(made->mutex);
    return *made;
  }();
  boot::Service &service = boot::Service::get();
  {
    std::lock_guard lock(opened.mutex);
    if (opened.by == &service) return;
    opened.by = &service;
  }
  open_new(config, service);
}

} // namespace tutti::ras
