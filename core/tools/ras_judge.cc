// The verdict: follows who waits for whom to the ranks that wait for nobody, also from one communicator to another where a
// process is busy in that one.
#include "tools/ras_diff.h"
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::tools::rasdiff {
namespace {

using Place = std::pair<size_t, int>; // communicator, rank

struct End { // where a chain of waits ends
  Kind kind = Kind::nothing;
  Place who;
};

const OperationState *running(const FlightFile &f) {
  const EngineState &s = f.record.state;
  return s.oldest && s.started > s.completed ? &*s.oldest : nullptr;
}

bool waits(const FlightFile &f) {
  return running(f) && !f.record.state.waits.empty();
}

int64_t waited(const FlightFile &f) {
  const EngineState &s = f.record.state;
  int64_t since = s.oldest ? (s.oldest->started_ns ? s.oldest->started_ns : s.oldest->enqueued_ns) : f.written_ns;
  if (!s.waits.empty()) {
    since = INT64_MAX;
    for (const EngineState::Wait &w : s.waits) since = std::min(since, w.since_ns);
  }
  return std::max<int64_t>(0, f.written_ns - since);
}

class Chains {
public:
  explicit Chains(const Job &job) : job_(job) {
    for (size_t c = 0; c < job.comms.size(); c++)
      for (const auto &[rank, r] : job.comms[c].ranks) by_process_[{r.file.who.host, r.file.who.pid}].push_back({c, rank});
  }

  // All ends of what this rank, which waits, waits for; `passed` are those on the way.
  std::vector<End> follow(Place from, std::set<Place> *passed) const {
    std::vector<End> ends;
    std::vector<Place> todo{from};
    passed->insert(from);
    while (!todo.empty()) {
      const Place at = todo.back();
      todo.pop_back();
      const FlightFile &f = file(at);
      for (const EngineState::Wait &w : f.record.state.waits) {
        const Place to{at.first, w.peer};
        if (const auto end = look(*running(f), to, &todo, passed)) ends.push_back(*end);
      }
    }
    return ends;
  }

private:
  const FlightFile &file(Place p) const { return job_.comms[p.first].ranks.at(p.second).file; }

  // Its end, or where to go on.
  std::optional<End> look(const OperationState &op, Place to, std::vector<Place> *todo, std::set<Place> *passed) const {
    const Comm &c = job_.comms[to.first];
    const auto known = c.ranks.find(to.second);
    if (known == c.ranks.end()) return End{Kind::no_file, to};
    const FlightFile &f = known->second.file;
    const auto go_on = [&](Place next) {
      if (passed->insert(next).second) todo->push_back(next);
      return std::optional<End>();
    };
    if (waits(f)) return go_on(to);
    if (running(f)) return End{Kind::moving, to};
    // Busy in another communicator; there may be several, of several threads.
    bool elsewhere = false;
    for (const Place &other : by_process_.at({f.who.host, f.who.pid}))
      if (other.first != to.first && waits(file(other))) elsewhere = true, (void)go_on(other);
    if (elsewhere) return std::nullopt;
    if (f.record.state.oldest) return End{Kind::held, to};
    const bool done = op.call.coll != TUTTI_COLL_SEND_RECV && known->second.completed >= op.call.number;
    return End{done ? Kind::finished : Kind::absent, to};
  }

  const Job &job_;
  std::map<std::pair<std::string, int64_t>, std::vector<Place>> by_process_;
};

// Those that wait in the same operation, and how long the first of them does.
std::pair<std::vector<int>, int64_t> fellows(const Comm &c, const OperationState &op) {
  std::pair<std::vector<int>, int64_t> out{{}, 0};
  for (const auto &[rank, r] : c.ranks) {
    const OperationState *o = running(r.file);
    if (!o || !waits(r.file) || o->call.coll != op.call.coll || o->call.number != op.call.number) continue;
    out.first.push_back(rank);
    out.second = std::max(out.second, waited(r.file));
  }
  return out;
}

std::string does_now(const Comm &c, int rank) {
  const FlightFile &f = c.ranks.at(rank).file;
  const EngineState &s = f.record.state;
  for (const EngineEvent &e : f.record.events)
    if (e.kind == "finalized" || e.kind == "revoked") return fmt::format("it has been {}", e.kind);
  if (!s.last) return "it has not called anything yet";
  return fmt::format("it is idle after {} since {}", s.last->text, time_text(f.written_ns - s.last->completed_ns));
}

std::string explain(const Comm &c, Kind kind, const std::vector<int> &who, const OperationState &op) {
  const auto [ranks, since] = fellows(c, op);
  const std::string culprits = ranks_text(who), time = time_text(since);
  const bool one = who.size() == 1;
  const std::string wait = fmt::format("{} {}", ranks_text(ranks), ranks.size() == 1 ? "waits" : "wait");
  switch (kind) {
  case Kind::absent:
    return fmt::format("{} never called {} that {} in since {}; {}", culprits, op.text, wait, time,
                       one ? does_now(c, who.front()) : "they are idle");
  case Kind::no_file:
    if (const auto known = c.absence.find(who.front()); known != c.absence.end()) // of a live job
      return fmt::format("{}{}, while {} for {} in {} since {}", known->second,
                         one ? "" : fmt::format(", and {} more do not answer", who.size() - 1), wait, one ? "it" : "them",
                         op.text, time);
    return fmt::format("{} left no file, while {} for {} in {} since {}: stopped, gone, or the file is elsewhere", culprits,
                       wait, one ? "it" : "them", op.text, time);
  case Kind::held: {
    const FlightFile &f = c.ranks.at(who.front()).file;
    return fmt::format("{} has called {} but not started it for {}: what is before it on its stream has not ended, or nobody "
                       "drives it; {} in {} since {}",
                       ranks_text({who.front()}), f.record.state.oldest->text, time_text(waited(f)), wait, op.text, time);
  }
  case Kind::finished:
    return fmt::format("{} completed {} without sending all that {} for since {}", culprits, op.text, wait, time);
  default:
    return fmt::format("{} still move{} data in {} that {} in since {}: slow, not stuck", culprits, one ? "s" : "", op.text,
                       wait, time);
  }
}

Verdict disagreement_verdict(const Comm &c) {
  const Disagreement &d = c.disagreements.front();
  Verdict v{Kind::disagreement, d.sides.back().ranks, c.id, ""};
  for (auto s = d.sides.rbegin(); s != d.sides.rend(); ++s)
    v.text += fmt::format("{}{} {} {}", v.text.empty() ? "" : ", ", ranks_text(s->ranks),
                          d.way                  ? "runs"
                          : s->ranks.size() == 1 ? "calls"
                                                 : "call",
                          s->call);
  return v;
}

Verdict quiet_verdict(const Comm &c) {
  Verdict v{Kind::nothing, {}, c.id, ""};
  uint64_t most = 0, least = UINT64_MAX;
  for (const auto &[rank, r] : c.ranks) most = std::max(most, r.called), least = std::min(least, r.called);
  if (!c.error.empty()) {
    v.kind = Kind::failed;
    v.text = "it failed: " + c.error;
  } else if (most != least) {
    v.kind = Kind::behind;
    for (const auto &[rank, r] : c.ranks)
      if (r.called == least) v.culprits.push_back(rank);
    v.text = fmt::format("{} behind: collective #{} is the last called there, #{} elsewhere; nobody waits",
                         ranks_text(v.culprits), least, most);
  } else
    v.text = fmt::format("no rank waits, and all that left a file have called as many collectives: {}", most);
  return v;
}

Verdict deadlock_verdict(const Job &job, size_t index, const std::set<Place> &stuck) {
  Verdict v{Kind::deadlock, {}, job.comms[index].id, ""};
  int64_t since = 0;
  std::string who;
  bool elsewhere = false;
  for (const Place &p : stuck) {
    const FlightFile &f = job.comms[p.first].ranks.at(p.second).file;
    since = std::max(since, waited(f));
    if (p.first == index) v.culprits.push_back(p.second);
    elsewhere |= p.first != index;
    who +=
        fmt::format("{}rank {} of {:016x} in {}", who.empty() ? "" : ", ", p.second, job.comms[p.first].id, running(f)->text);
  }
  if (!elsewhere)
    who = fmt::format("{} in {}", ranks_text(v.culprits), running(job.comms[index].ranks.at(v.culprits.front()).file)->text);
  v.text = fmt::format("{} wait for each other since {}: calls in different orders, or a message that was lost", who,
                       time_text(since));
  return v;
}

Verdict verdict_of(const Job &job, const Chains &chains, size_t index) {
  const Comm &c = job.comms[index];
  if (!c.disagreements.empty()) return disagreement_verdict(c);
  std::set<Place> stuck; // without an end: they wait for each other
  std::map<std::tuple<Kind, size_t>, std::pair<std::set<int>, const OperationState *>> ends;
  for (const auto &[rank, r] : c.ranks) {
    if (!waits(r.file)) continue;
    std::set<Place> passed;
    const auto found = chains.follow({index, rank}, &passed);
    if (found.empty()) stuck.insert(passed.begin(), passed.end());
    for (const End &e : found) {
      auto &[who, op] = ends[{e.kind, e.who.first}];
      who.insert(e.who.second);
      // In that communicator, the operation that somebody waits in; the oldest.
      for (const auto &[other, o] : job.comms[e.who.first].ranks)
        if (waits(o.file) && (!op || running(o.file)->call.number < op->call.number)) op = running(o.file);
    }
  }
  if (!stuck.empty() && (ends.empty() || std::get<Kind>(ends.begin()->first) > Kind::deadlock))
    return deadlock_verdict(job, index, stuck);
  if (!ends.empty()) {
    const auto &[key, value] = *ends.begin(); // the worst
    const auto [kind, comm] = key;
    const std::vector<int> who(value.first.begin(), value.first.end());
    Verdict v{kind, who, job.comms[comm].id, explain(job.comms[comm], kind, who, *value.second)};
    if (comm != index) v.text = fmt::format("communicator {:016x}: {}", v.comm, v.text);
    return v;
  }
  return quiet_verdict(c);
}

} // namespace

void judge(Job &job) {
  const Chains chains(job);
  for (size_t i = 0; i < job.comms.size(); i++) job.comms[i].verdict = verdict_of(job, chains, i);
  const auto worst = std::min_element(job.comms.begin(), job.comms.end(),
                                      [](const Comm &a, const Comm &b) { return a.verdict.kind < b.verdict.kind; });
  if (worst != job.comms.end()) job.verdict = worst->verdict;
}

} // namespace tutti::tools::rasdiff
