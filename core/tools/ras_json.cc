// What `tutti ras --json` prints: "tutti.ras/1", described in docs/ras.md.
#include "base/types.h"
#include "ras/rank_file.h"
#include "tools/ras_view.h"
#include <nlohmann/json.hpp>

namespace tutti::tools::ras_live {
namespace {

using nlohmann::ordered_json;

ordered_json process_json(uint64_t id, const ProcessView &p, int64_t now_ns) {
  ordered_json j{{"process", ras::comm_id_text(id)}, {"pid", p.pid}, {"host", p.host}, {"answered", p.now != nullptr}};
  if (p.now) {
    j["state"] = "running";
    if (p.cpu >= 0) j["cpu"] = p.cpu;
    j["cpu_ns"] = p.now->cpu_ns;
    j["memory"] = p.now->rss;
    j["descriptors"] = p.now->fds;
    j["threads"] = p.now->threads;
    j["version"] = p.now->version;
    j["addresses"] = p.now->addresses;
    return j;
  }
  j["state"] = ras::seen_name(p.silent->look.seen);
  j["why"] = p.silent->why;
  if (p.silent->heard_ns) j["heard_ago_ns"] = std::max<int64_t>(0, now_ns - p.silent->heard_ns);
  return j;
}

ordered_json link_json(const LinkView &l) {
  ordered_json j{{"peer", l.traffic.peer},
                 {"direction", l.traffic.sending ? "send" : "recv"},
                 {"class", class_name(l.traffic.link_class)},
                 {"way", l.way},
                 {"state", l.lost ? "lost" : "connected"},
                 {"messages", l.traffic.messages},
                 {"bytes", l.traffic.bytes}};
  if (l.traffic.readers) j["readers"] = l.traffic.readers; // peer is then this rank itself, or the one that writes
  return j;
}

void add_state(const RankView &r, bool rates, ordered_json &j) {
  const EngineState &s = r.now->flight.record.state;
  const int64_t now = r.now->flight.written_ns;
  j["doing"] = r.now->joining.empty() ? std::string(doing_name(s.doing)) : "setup";
  j["text"] = r.now->joining.empty() ? s.text : r.now->joining;
  j["enqueued"] = s.enqueued;
  j["started"] = s.started;
  j["completed"] = s.completed;
  if (rates) {
    j["operations_per_s"] = r.operations;
    j["bytes_per_s"] = r.bytes;
  }
  if (s.oldest) {
    const int64_t since = s.oldest->enqueued_ns ? s.oldest->enqueued_ns : s.oldest->started_ns;
    j["oldest"] = {{"call", s.oldest->text}, {"age_ns", std::max<int64_t>(0, now - since)}};
  }
  j["waits_for"] = ordered_json::array();
  for (const EngineState::Wait &w : s.waits)
    j["waits_for"].push_back(
        {{"rank", w.peer}, {"direction", w.receiving ? "recv" : "send"}, {"for_ns", std::max<int64_t>(0, now - w.since_ns)}});
  j["blocked_ns"] = s.blocked_ns;
  j["calls"] = ordered_json::object();
  for (size_t i = 0; i < s.calls.size(); i++)
    if (s.calls[i]) j["calls"][std::string(coll_name(static_cast<tutti_coll>(i)))] = s.calls[i];
  j["memory"] = r.now->memory;
  j["descriptors"] = r.now->fds;
  if (r.now->collnet) j["collnet"] = r.now->collnet_lost.empty() ? "in use" : "lost: " + r.now->collnet_lost;
  if (!s.error.ok()) j["error"] = s.error.error().line();
  for (const auto &[peer, what] : r.now->restoring) j["restoring"].push_back({{"rank", peer}, {"text", what}});
  j["links"] = ordered_json::array();
  for (const LinkView &l : r.links) j["links"].push_back(link_json(l));
}

ordered_json rank_json(int rank, const RankView &r, bool rates) {
  ordered_json j{{"rank", rank}, {"answered", r.now != nullptr}};
  if (r.process) j["process"] = ras::comm_id_text(r.process);
  if (r.left) j["left"] = true;
  if (r.now)
    add_state(r, rates, j);
  else
    j["why"] = r.absence;
  return j;
}

ordered_json comm_json(const CommView &c, bool rates) {
  ordered_json v{{"state", verdict_name(c.verdict)}};
  if (!c.kind.empty()) v["kind"] = c.kind;
  if (!c.text.empty()) v["text"] = c.text;
  v["ranks"] = c.culprits;
  ordered_json j{{"id", ras::comm_id_text(c.id)}, {"job", ras::comm_id_text(c.job)}, {"name", c.name}, {"nranks", c.nranks},
                 {"missing", c.missing},          {"verdict", std::move(v)}};
  j["started"] = {{"least", c.started.first}, {"most", c.started.second}};
  j["completed"] = {{"least", c.completed.first}, {"most", c.completed.second}};
  if (rates) {
    j["operations_per_s"] = c.operations;
    j["bytes_per_s"] = c.bytes;
  }
  if (c.oldest) j["oldest"] = {{"call", c.oldest->text}, {"age_ns", c.oldest_age_ns}};
  j["ranks"] = ordered_json::array();
  for (const auto &[rank, r] : c.ranks) j["ranks"].push_back(rank_json(rank, r, rates));
  return j;
}

} // namespace

std::string view_json(const View &view, int indent) {
  ordered_json j{
      {"format", "tutti.ras/1"}, {"at_ns", view.at_ns}, {"interval_ns", view.interval_ns}, {"jobs", ordered_json::array()}};
  for (const JobView &job : view.jobs) {
    ordered_json one{{"id", ras::comm_id_text(job.id)}, {"versions", job.versions}, {"up_ns", job.up_ns}};
    one["processes"] = ordered_json::array();
    for (const auto &[id, p] : job.processes) one["processes"].push_back(process_json(id, p, view.at_ns));
    one["communicators"] = ordered_json::array();
    for (const CommView &c : job.comms) one["communicators"].push_back(comm_json(c, view.interval_ns != 0));
    j["jobs"].push_back(std::move(one));
  }
  j["strays"] = ordered_json::array();
  for (const ras::Silent *s : view.strays)
    j["strays"].push_back({{"pid", s->look.pid}, {"state", ras::seen_name(s->look.seen)}, {"why", s->why}});
  return j.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

} // namespace tutti::tools::ras_live
