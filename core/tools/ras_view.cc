#include "tools/ras_view.h"
#include "ras/rank_file.h"
#include <algorithm>
#include <set>

namespace tutti::tools::ras_live {
namespace {

using Kind = rasdiff::Kind;

// Processes that share a communicator belong to one job.
class Parts {
public:
  void join(uint64_t process, uint64_t comm) {
    const uint64_t a = top(process);
    const auto [at, fresh] = by_comm_.try_emplace(comm, a);
    if (fresh) return;
    const uint64_t b = top(at->second);
    parent_[std::max(a, b)] = std::min(a, b);
  }
  uint64_t top(uint64_t process) {
    while (parent_.contains(process) && parent_[process] != process) process = parent_[process];
    return process;
  }

private:
  std::map<uint64_t, uint64_t> parent_, by_comm_;
};

uint64_t bytes_sent(const ras::CommReport &c) {
  uint64_t sum = 0;
  for (const LinkTraffic &l : c.flight.record.state.links)
    if (l.sending) sum += l.bytes;
  return sum;
}

const EngineState &state_of(const RankView &r) {
  return r.now->flight.record.state;
}

std::string process_text(const ProcessView &p) {
  return fmt::format("pid {} on {}", p.pid, p.host.empty() ? "an unknown host" : p.host);
}

class Maker {
public:
  Maker(const Snapshot *before, const Snapshot &now, const ViewOptions &options)
      : before_(before), now_(now), options_(options) {}

  View make() {
    View v;
    v.at_ns = now_.at_ns;
    v.of_others = now_.of_others;
    if (before_) v.interval_ns = std::max<int64_t>(1, now_.at_ns - before_->at_ns);
    interval_ = static_cast<double>(v.interval_ns) * 1e-9;
    for (auto &[top, job] : jobs()) {
      finish(job);
      if (wanted(job)) v.jobs.push_back(std::move(job));
    }
    for (const auto &[process, s] : now_.silent)
      if (s.places.empty() && s.look.abnormal()) v.strays.push_back(&s);
    return v;
  }

private:
  std::map<uint64_t, JobView> jobs() {
    Parts parts;
    for (const auto &[process, r] : now_.processes) {
      for (const auto &c : r.comms) parts.join(process, c.flight.who.comm);
    }
    for (const auto &[process, s] : now_.silent)
      for (const ras::Place &p : s.places) parts.join(process, p.comm);
    std::map<uint64_t, JobView> out;
    for (const auto &[process, r] : now_.processes) {
      if (r.comms.empty()) continue;
      add_process(out[parts.top(process)], process, r);
    }
    for (const auto &[process, s] : now_.silent)
      if (!s.places.empty()) add_silent(out[parts.top(process)], process, s);
    std::erase_if(out, [](const auto &job) { return job.second.comms.empty(); }); // nobody answered for it
    return out;
  }

  static CommView &comm_of(JobView &job, uint64_t id) {
    for (CommView &c : job.comms)
      if (c.id == id) return c;
    job.comms.emplace_back().id = id;
    return job.comms.back();
  }

  const ras::CommReport *earlier(uint64_t process, const ras::FlightIdentity &who) const {
    if (!before_) return nullptr;
    const auto at = before_->processes.find(process);
    if (at == before_->processes.end()) return nullptr;
    for (const auto &c : at->second.comms)
      if (c.flight.who.comm == who.comm && c.flight.who.rank == who.rank) return &c;
    return nullptr;
  }

  int64_t cpu_before(uint64_t process) const {
    if (!before_) return -1;
    if (const auto at = before_->processes.find(process); at != before_->processes.end()) return at->second.cpu_ns;
    if (const auto at = before_->silent.find(process); at != before_->silent.end() && at->second.look.cpu_ns)
      return at->second.look.cpu_ns;
    return -1;
  }

  void add_process(JobView &job, uint64_t process, const ras::ProcessReport &r) {
    ProcessView &p = job.processes[process];
    p.now = &r;
    p.host = r.host;
    p.pid = r.pid;
    if (const int64_t was = cpu_before(process); was >= 0 && r.cpu_ns >= was)
      p.cpu = static_cast<double>(r.cpu_ns - was) * 1e-9 / interval_;
    if (r.started_ns) job.up_ns = std::max(job.up_ns, r.now_ns - r.started_ns);
    if (std::find(job.versions.begin(), job.versions.end(), r.version) == job.versions.end()) job.versions.push_back(r.version);
    for (const auto &c : r.comms) {
      const ras::FlightIdentity &who = c.flight.who;
      CommView &comm = comm_of(job, who.comm);
      comm.nranks = who.nranks;
      if (comm.job == 0 || c.joining.empty()) comm.job = who.job, comm.name = who.name;
      RankView &rank = comm.ranks[who.rank];
      rank.process = process;
      rank.now = &c;
      rank.before = earlier(process, who);
      left_[who.comm].insert(c.left.begin(), c.left.end());
    }
  }

  void add_silent(JobView &job, uint64_t process, const ras::Silent &s) {
    ProcessView &p = job.processes[process];
    p.silent = &s;
    p.host = s.host;
    p.pid = s.look.pid ? s.look.pid : s.pid;
    for (const ras::Place &place : s.places) {
      if (!answered(place.comm)) continue;
      RankView &rank = comm_of(job, place.comm).ranks[place.rank];
      if (rank.now) continue; // it lives elsewhere
      rank.process = process;
      rank.absence = s.why;
    }
  }
  bool answered(uint64_t comm) {
    if (answered_.empty())
      for (const auto &[process, r] : now_.processes)
        for (const auto &c : r.comms) answered_.insert(c.flight.who.comm);
    return answered_.contains(comm);
  }

  void finish(JobView &job) {
    for (CommView &c : job.comms) {
      for (int r = 0; r < c.nranks; r++) {
        RankView &rank = c.ranks[r];
        rank.left = left_[c.id].contains(r);
        if (!rank.now) c.missing.push_back(r);
        if (!rank.now && rank.absence.empty()) rank.absence = rank.left ? "has left" : "has not been found";
      }
      measure(c);
      for (auto &[r, rank] : c.ranks) add_links(job, c, rank);
    }
    judge(job);
    std::stable_sort(job.comms.begin(), job.comms.end(), [](const CommView &a, const CommView &b) {
      return a.verdict != b.verdict ? a.verdict > b.verdict : a.nranks > b.nranks;
    });
    const CommView *largest = nullptr;
    for (const CommView &c : job.comms)
      if (!largest || c.nranks > largest->nranks) largest = &c;
    job.id = largest->job ? largest->job : largest->id;
    job.nranks = largest->nranks;
    std::sort(job.versions.begin(), job.versions.end());
  }

  void measure(CommView &c) const {
    c.started = c.completed = {UINT64_MAX, 0};
    for (auto &[r, rank] : c.ranks) {
      if (!rank.now) continue;
      const EngineState &s = state_of(rank);
      c.started = {std::min(c.started.first, s.started), std::max(c.started.second, s.started)};
      c.completed = {std::min(c.completed.first, s.completed), std::max(c.completed.second, s.completed)};
      if (rank.before && interval_ > 0) {
        const EngineState &was = rank.before->flight.record.state;
        rank.operations = static_cast<double>(s.completed - std::min(s.completed, was.completed)) / interval_;
        const uint64_t sent = bytes_sent(*rank.now), earlier = bytes_sent(*rank.before);
        rank.bytes = static_cast<double>(sent - std::min(sent, earlier)) / interval_;
      }
      c.operations = std::max(c.operations, rank.operations);
      c.bytes += rank.bytes;
      if (!s.oldest) continue;
      const int64_t since = s.oldest->enqueued_ns ? s.oldest->enqueued_ns : s.oldest->started_ns;
      const int64_t age = since ? std::max<int64_t>(0, rank.now->flight.written_ns - since) : 0;
      if (!c.oldest || age > c.oldest_age_ns) c.oldest = s.oldest, c.oldest_age_ns = age;
    }
    if (c.started.first == UINT64_MAX) c.started = c.completed = {0, 0};
  }

  static void add_links(const JobView &job, const CommView &c, RankView &rank) {
    if (!rank.now) return;
    for (const LinkTraffic &l : state_of(rank).links) {
      if (!l.messages) continue;
      LinkView v{l, std::string(class_name(l.link_class)), false};
      if (const auto way = rank.now->ways.find(l.peer); way != rank.now->ways.end()) v.way = way->second;
      if (const auto peer = c.ranks.find(l.peer); peer != c.ranks.end()) {
        const auto process = job.processes.find(peer->second.process);
        const bool gone = process != job.processes.end() && process->second.silent &&
                          (process->second.silent->look.seen == ras::Look::Seen::gone ||
                           process->second.silent->look.seen == ras::Look::Seen::zombie);
        v.lost = peer->second.left || gone;
      }
      rank.links.push_back(std::move(v));
    }
  }

  // ---- verdicts

  static int64_t longest_wait(const CommView &c) {
    int64_t out = 0;
    for (const auto &[r, rank] : c.ranks) {
      if (!rank.now) continue;
      const EngineState &s = state_of(rank);
      if (!s.oldest || s.started <= s.completed) continue;
      for (const EngineState::Wait &w : s.waits) out = std::max(out, rank.now->flight.written_ns - w.since_ns);
    }
    return out;
  }
  static bool moved(const CommView &c) {
    for (const auto &[r, rank] : c.ranks)
      if (rank.now && rank.before && state_of(rank).completed != rank.before->flight.record.state.completed) return true;
    return false;
  }
  // Of the processes whose ranks are to blame, one that can do nothing at all.
  static bool helpless(const JobView &job, const CommView &c, const std::vector<int> &ranks) {
    for (const int r : ranks) {
      const auto at = c.ranks.find(r);
      if (at == c.ranks.end()) continue;
      const auto p = job.processes.find(at->second.process);
      if (p != job.processes.end() && p->second.silent && p->second.silent->look.abnormal()) return true;
    }
    return false;
  }

  void judge(JobView &job) const {
    std::vector<std::pair<std::string, ras::FlightFile>> files;
    for (const CommView &c : job.comms)
      for (const auto &[r, rank] : c.ranks)
        if (rank.now && rank.now->joining.empty()) files.emplace_back(fmt::format("rank {}", r), rank.now->flight);
    auto merged = rasdiff::merge(std::move(files));
    std::map<uint64_t, rasdiff::Comm *> by_id;
    if (merged.ok()) {
      for (rasdiff::Comm &m : merged->comms) by_id[m.id] = &m;
      for (const CommView &c : job.comms)
        if (const auto m = by_id.find(c.id); m != by_id.end()) explain_absence(job, c, m->second);
      rasdiff::judge(*merged);
    }
    for (CommView &c : job.comms) {
      const auto m = by_id.find(c.id);
      verdict(job, c, m == by_id.end() ? nullptr : m->second);
    }
  }

  static void explain_absence(const JobView &job, const CommView &c, rasdiff::Comm *m) {
    for (const int r : c.missing) {
      const RankView &rank = c.ranks.at(r);
      const auto p = job.processes.find(rank.process);
      m->absence[r] = p == job.processes.end() ? fmt::format("rank {} {}", r, rank.absence)
                                               : fmt::format("rank {} ({}) {}", r, process_text(p->second), rank.absence);
    }
  }

  void verdict(const JobView &job, CommView &c, const rasdiff::Comm *m) const {
    const Error *why = nullptr; // of a rank that found out by itself, where one answered
    for (const auto &[r, rank] : c.ranks) {
      if (!rank.now || state_of(rank).error.ok()) continue;
      const Error &e = state_of(rank).error.error();
      if (!why || (why->code == Code::remote && e.code != Code::remote)) why = &e;
    }
    if (why) {
      c.verdict = Verdict::failed;
      c.kind = "failed";
      if (why->peer >= 0) c.culprits = {why->peer};
      c.text = why->line();
      return;
    }
    std::set<std::string> joining;
    for (const auto &[r, rank] : c.ranks)
      if (rank.now && !rank.now->joining.empty()) joining.insert(fmt::format("rank {}: {}", r, rank.now->joining));
    if (!joining.empty()) {
      c.verdict = Verdict::setup;
      c.text = *joining.begin();
      if (joining.size() > 1) c.text += fmt::format(" (and {} more ranks)", joining.size() - 1);
      return;
    }
    c.verdict = c.oldest || moved(c) ? Verdict::running : Verdict::idle;
    if (!m) return;
    const bool blames = m->verdict.kind <= Kind::finished;
    const int64_t limit = m->verdict.kind == Kind::disagreement   ? 0
                          : helpless(job, c, m->verdict.culprits) ? std::min<int64_t>(options_.stall_ns, 1'000'000'000)
                                                                  : options_.stall_ns;
    if (!blames || longest_wait(c) < limit || moved(c)) return;
    c.verdict = Verdict::stalled;
    c.kind = rasdiff::kind_name(m->verdict.kind);
    c.text = m->verdict.text;
    if (m->verdict.comm == c.id) c.culprits = m->verdict.culprits;
  }

  // ---- choice

  bool wanted(JobView &job) const {
    const auto begins = [](uint64_t id, const std::string &text) { return ras::comm_id_text(id).starts_with(text); };
    if (options_.pid &&
        std::none_of(job.processes.begin(), job.processes.end(), [&](const auto &p) { return p.second.pid == options_.pid; }))
      return false;
    if (!options_.job.empty() && !begins(job.id, options_.job) &&
        std::none_of(job.comms.begin(), job.comms.end(), [&](const CommView &c) { return begins(c.job, options_.job); }))
      return false;
    if (options_.comm.empty()) return true;
    std::erase_if(job.comms, [&](const CommView &c) { return !begins(c.id, options_.comm) && c.name != options_.comm; });
    return !job.comms.empty();
  }

  const Snapshot *before_;
  const Snapshot &now_;
  const ViewOptions &options_;
  double interval_ = 0;
  std::map<uint64_t, std::set<int>> left_; // by communicator
  std::set<uint64_t> answered_;
};

} // namespace

std::string_view verdict_name(Verdict v) {
  constexpr std::string_view kNames[] = {"SETUP", "IDLE", "RUNNING", "STALLED", "FAILED"};
  return kNames[static_cast<size_t>(v)];
}

View make_view(const Snapshot *before, const Snapshot &now, const ViewOptions &options) {
  return Maker(before, now, options).make();
}

} // namespace tutti::tools::ras_live
