#include "tools/ras_diff.h"
#include <algorithm>
#include <set>

namespace tutti::tools::rasdiff {
namespace {

bool collective(const OperationState &o) {
  return o.call.coll != TUTTI_COLL_SEND_RECV;
}

std::string process_of(const FlightFile &f) {
  return fmt::format("process {} on {}", f.who.pid, f.who.host);
}

void find_numbers(Rank &r) {
  for (const OperationState &o : r.file.record.operations) {
    if (!collective(o)) continue;
    r.called = std::max(r.called, o.call.number);
    if (o.completed_ns) r.completed = std::max(r.completed, o.call.number);
  }
  for (const OperationState &o : r.file.record.skipped) {
    r.called = std::max(r.called, o.call.number);
    if (!r.file.record.state.oldest) r.completed = std::max(r.completed, o.call.number);
  }
}

Status add(Comm &c, const std::string &origin, FlightFile file) {
  const int rank = file.who.rank;
  if (c.nranks != file.who.nranks)
    return fail(Code::invalid_argument, "{}: communicator {:016x} has {} ranks here, and {} in {}: not of one job", origin,
                c.id, file.who.nranks, c.nranks, c.ranks.begin()->second.origin);
  const auto known = c.ranks.find(rank);
  if (known != c.ranks.end()) {
    const FlightFile &old = known->second.file;
    if (old.who.pid != file.who.pid || old.who.host != file.who.host)
      return fail(Code::invalid_argument, "{}: rank {} of communicator {:016x} is {} here, and {} in {}: not of one job",
                  origin, rank, c.id, process_of(file), process_of(old), known->second.origin);
    if (old.written_ns >= file.written_ns) return {}; // the newer one says more
  }
  Rank r;
  r.file = std::move(file);
  r.origin = origin;
  find_numbers(r);
  c.ranks[rank] = std::move(r);
  return {};
}

// Different versions of the library in one job are rarely meant.
void warn_versions(Job &job) {
  std::map<std::string, std::string> by;
  for (const Comm &c : job.comms)
    for (const auto &[rank, r] : c.ranks) by.try_emplace(r.file.who.version, fmt::format("rank {} of {:016x}", rank, c.id));
  if (by.size() < 2) return;
  std::string text;
  for (const auto &[version, who] : by) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", version, who);
  job.warnings.push_back("the ranks run different versions of the library: " + text);
}

// Communicators that neither come from one another nor share a process may be of another job.
void warn_jobs(Job &job) {
  std::vector<std::set<std::string>> parts; // joined by what their files have in common
  std::vector<std::string> names;
  for (const Comm &c : job.comms) {
    std::set<std::string> keys;
    for (const auto &[rank, r] : c.ranks) {
      keys.insert(process_of(r.file));
      keys.insert(fmt::format("job {:016x}", r.file.who.job));
    }
    std::string name = fmt::format("{:016x}", c.id);
    for (size_t i = 0; i < parts.size();) {
      const bool meet = std::any_of(keys.begin(), keys.end(), [&](const std::string &k) { return parts[i].contains(k); });
      if (!meet) {
        i++;
        continue;
      }
      keys.merge(parts[i]);
      name = names[i] + " " + name;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(i));
    }
    parts.push_back(std::move(keys));
    names.push_back(std::move(name));
  }
  if (parts.size() < 2) return;
  std::string text;
  for (const std::string &n : names) text += (text.empty() ? "" : "; ") + n;
  job.warnings.push_back("communicators that share no process, perhaps of different jobs: " + text);
}

std::vector<Disagreement> find_disagreements(const Comm &c) {
  struct Calls {
    std::map<std::string, Side> by_call, by_way;
  };
  std::map<uint64_t, Calls> numbers;
  const auto add_call = [&](int rank, const OperationState &o) {
    if (!collective(o)) return;
    Calls &calls = numbers[o.call.number];
    CallInfo plain = o.call;
    Side &side = calls.by_call[fmt::format("{:08x}", call_signature(plain))];
    side.call = describe(plain);
    side.ranks.push_back(rank);
    if (!o.started_ns || o.algo.empty()) return;
    Side &way = calls.by_way[fmt::format("{} {} {} {} {}", o.algo, o.proto, o.channels, o.slot_bytes, o.depth)];
    way.call = fmt::format("{} by {} ({}, {} channels, slots {} x {} bytes)", describe(plain), o.algo, o.proto, o.channels,
                           o.depth, o.slot_bytes);
    way.ranks.push_back(rank);
  };
  for (const auto &[rank, r] : c.ranks) {
    for (const OperationState &o : r.file.record.operations) add_call(rank, o);
    for (const OperationState &o : r.file.record.skipped) add_call(rank, o);
  }
  std::vector<Disagreement> out;
  for (const auto &[number, calls] : numbers) {
    const bool way = calls.by_call.size() < 2;
    const auto &sides = way ? calls.by_way : calls.by_call;
    if (sides.size() < 2) continue;
    Disagreement d{number, way, {}};
    for (const auto &[key, side] : sides) d.sides.push_back(side);
    std::stable_sort(d.sides.begin(), d.sides.end(),
                     [](const Side &a, const Side &b) { return a.ranks.size() > b.ranks.size(); });
    out.push_back(std::move(d));
  }
  return out;
}

// The first failure by its own clock: what came later was heard from others.
std::string first_error(const Comm &c) {
  int64_t at = INT64_MAX;
  std::string text;
  for (const auto &[rank, r] : c.ranks)
    for (const EngineEvent &e : r.file.record.events)
      if (e.kind == "failed" && e.at_ns < at) at = e.at_ns, text = e.text;
  return text;
}

} // namespace

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[] = {"disagreement", "absent", "no_file", "held",   "deadlock",
                                         "finished",     "moving", "failed",  "behind", "nothing"};
  return kNames[static_cast<size_t>(kind)];
}

Result<Job> merge(std::vector<std::pair<std::string, FlightFile>> files) {
  std::map<uint64_t, Comm> comms;
  for (auto &[origin, file] : files) {
    Comm &c = comms[file.who.comm];
    if (c.ranks.empty()) c.id = file.who.comm, c.name = file.who.name, c.nranks = file.who.nranks;
    TUTTI_TRY(add(c, origin, std::move(file)));
  }
  Job job;
  for (auto &[id, c] : comms) {
    for (int r = 0; r < c.nranks; r++)
      if (!c.ranks.contains(r)) c.missing.push_back(r);
    c.disagreements = find_disagreements(c);
    c.error = first_error(c);
    job.comms.push_back(std::move(c));
  }
  warn_versions(job);
  warn_jobs(job);
  return job;
}

} // namespace tutti::tools::rasdiff
