#include "bootstrap/wire.h"
#include "ras/rank_file.h"
#include "tools/ras_diff.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace tutti::tools::rasdiff {
namespace {

using nlohmann::ordered_json;

// What a rank does, without what is its own: ranks that do the same share a line.
std::string line_of(const Rank &r) {
  const EngineState &s = r.file.record.state;
  std::string out = fmt::format("completed #{}, called #{}: ", r.completed, r.called);
  if (!s.oldest) return out + (s.last ? "idle after " + s.last->text : "idle, it has not called anything yet");
  if (s.started == s.completed) return out + "has not started " + s.oldest->text;
  out += fmt::format("{} {}", s.waits.empty() ? "moves data in" : "waits in", s.oldest->text);
  std::set<int> peers;
  for (const EngineState::Wait &w : s.waits) peers.insert(w.peer);
  if (!peers.empty()) out += " for " + ranks_text({peers.begin(), peers.end()});
  return out;
}

std::string how_it_runs(const Rank &r) {
  const EngineState &s = r.file.record.state;
  return s.oldest && !s.oldest->way.empty() ? s.oldest->way : "";
}

std::string comm_text(const Comm &c) {
  std::set<std::string> hosts;
  for (const auto &[rank, r] : c.ranks) hosts.insert(r.file.who.host);
  std::string out = fmt::format("communicator {}{}: {} ranks, {} of them left a file, on {} host{}\n", ras::comm_id_text(c.id),
                                c.name.empty() ? "" : fmt::format(" \"{}\"", c.name), c.nranks, c.ranks.size(), hosts.size(),
                                hosts.size() == 1 ? "" : "s");
  std::map<std::string, std::pair<std::vector<int>, int64_t>> lines;
  for (const auto &[rank, r] : c.ranks) {
    auto &[ranks, since] = lines[line_of(r)];
    ranks.push_back(rank);
    const EngineState &s = r.file.record.state;
    for (const EngineState::Wait &w : s.waits) since = std::max(since, r.file.written_ns - w.since_ns);
    if (!s.oldest && s.last) since = std::max(since, r.file.written_ns - s.last->completed_ns);
  }
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto &[line, who] : lines)
    sorted.push_back({who.first.front(), fmt::format("  {}: {}{}\n", ranks_text(who.first), line,
                                                     who.second > 0 ? ", since " + time_text(who.second) : "")});
  std::sort(sorted.begin(), sorted.end());
  for (const auto &[rank, line] : sorted) out += line;
  if (!c.missing.empty()) out += fmt::format("  {}: no file\n", ranks_text(c.missing));
  for (const Disagreement &d : c.disagreements) {
    out += fmt::format("  #{} differs:", d.number);
    for (size_t i = 0; i < d.sides.size(); i++)
      out += fmt::format("{} {}: {}", i ? ";" : "", ranks_text(d.sides[i].ranks), d.sides[i].call);
    out += "\n";
  }
  if (!c.error.empty()) out += fmt::format("  it ended with: {}\n", c.error);
  return out;
}

ordered_json verdict_json(const Verdict &v) {
  return {{"kind", kind_name(v.kind)}, {"comm", ras::comm_id_text(v.comm)}, {"ranks", v.culprits}, {"text", v.text}};
}

ordered_json rank_json(int rank, const Rank &r) {
  const FlightFile &f = r.file;
  const EngineState &s = f.record.state;
  ordered_json j{{"rank", rank},
                 {"host", f.who.host},
                 {"pid", f.who.pid},
                 {"file", r.origin},
                 {"reason", f.reason},
                 {"written_ns", f.written_ns},
                 {"doing", doing_name(s.doing)},
                 {"completed", r.completed},
                 {"called", r.called}};
  if (s.oldest) j["operation"] = s.oldest->text;
  if (const std::string way = how_it_runs(r); !way.empty()) j["way"] = way;
  j["waits_for"] = ordered_json::array();
  for (const EngineState::Wait &w : s.waits)
    j["waits_for"].push_back({{"rank", w.peer}, {"direction", w.receiving ? "recv" : "send"}, {"since_ns", w.since_ns}});
  return j;
}

} // namespace

std::string ranks_text(const std::vector<int> &ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranks.empty() ? "none" : boot::list_ranks(ranks, ranks.size()));
}

std::string time_text(int64_t ns) {
  const double s = static_cast<double>(std::max<int64_t>(ns, 0)) * 1e-9;
  if (s >= 10) return fmt::format("{:.0f} s", s);
  if (s >= 1) return fmt::format("{:.1f} s", s);
  return s >= 1e-3 ? fmt::format("{:.1f} ms", s * 1e3) : fmt::format("{:.0f} us", s * 1e6);
}

std::string as_text(const Job &job) {
  std::string out;
  for (const std::string &w : job.warnings) out += "warning: " + w + "\n";
  for (const Comm &c : job.comms) {
    out += comm_text(c);
    if (job.comms.size() > 1 && c.verdict.kind != Kind::nothing) out += "  finding: " + c.verdict.text + "\n";
  }
  const std::string where = job.comms.size() > 1 ? fmt::format("communicator {}: ", ras::comm_id_text(job.verdict.comm)) : "";
  const bool named = job.verdict.text.starts_with("communicator ");
  return out + fmt::format("verdict: {}{}\n", named ? "" : where, job.verdict.text);
}

std::string to_json(const Job &job) {
  ordered_json j{{"format", "tutti.ras-diff/1"}, {"warnings", job.warnings}};
  j["communicators"] = ordered_json::array();
  for (const Comm &c : job.comms) {
    ordered_json one{{"id", ras::comm_id_text(c.id)}, {"name", c.name}, {"nranks", c.nranks}, {"missing", c.missing}};
    one["ranks"] = ordered_json::array();
    for (const auto &[rank, r] : c.ranks) one["ranks"].push_back(rank_json(rank, r));
    one["disagreements"] = ordered_json::array();
    for (const Disagreement &d : c.disagreements) {
      ordered_json sides = ordered_json::array();
      for (const Side &s : d.sides) sides.push_back({{"call", s.call}, {"ranks", s.ranks}});
      one["disagreements"].push_back({{"number", d.number}, {"way", d.way}, {"sides", std::move(sides)}});
    }
    if (!c.error.empty()) one["error"] = c.error;
    one["verdict"] = verdict_json(c.verdict);
    j["communicators"].push_back(std::move(one));
  }
  j["verdict"] = verdict_json(job.verdict);
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

} // namespace tutti::tools::rasdiff
