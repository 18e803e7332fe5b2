#include "ras/flight_file.h"
#include "base/types.h"
#include "ras/flight_json.h"

namespace tutti::ras {
namespace {

using nlohmann::ordered_json;

std::string hex(uint64_t v) {
  return fmt::format("{:016x}", v);
}

const char *direction(bool sending) {
  return sending ? "send" : "recv";
}

ordered_json operation_json(const OperationState &o) {
  ordered_json j{{"number", o.call.number}, {"coll", coll_name(o.call.coll)},
                 {"call", o.text},          {"dtype", dtype_name(o.call.dtype)},
                 {"op", o.call.op},         {"root", o.call.root},
                 {"count", o.call.count}};
  if (o.seq) j["seq"] = o.seq;
  if (o.call.table) j["table"] = hex(o.call.table);
  if (!o.tag.empty()) j["tag"] = o.tag;
  if (o.bytes) j["bytes"] = o.bytes;
  if (!o.algo.empty()) {
    j["algo"] = o.algo;
    j["proto"] = o.proto;
    j["channels"] = o.channels;
    j["slot_bytes"] = o.slot_bytes;
    j["depth"] = o.depth;
  }
  j["enqueued_ns"] = o.enqueued_ns;
  if (o.started_ns) j["started_ns"] = o.started_ns;
  if (o.completed_ns) j["completed_ns"] = o.completed_ns;
  if (o.failed) j["failed"] = true;
  if (!o.transfers_in_all) return j;
  j["messages_in_all"] = o.transfers_in_all;
  for (const Transfer &t : o.transfers)
    j["messages"].push_back({{"peer", t.peer}, {"direction", direction(t.sending)}, {"bytes", t.bytes}});
  return j;
}

ordered_json link_json(const LinkTraffic &l) {
  ordered_json j{{"peer", l.peer},
                 {"conn", l.conn},
                 {"direction", direction(l.sending)},
                 {"transport", class_name(l.link_class)},
                 {"proto", l.proto},
                 {"messages", l.messages},
                 {"bytes", l.bytes}};
  if (l.readers) j["readers"] = l.readers;
  return j;
}

ordered_json error_json(const Error &e) {
  ordered_json j{{"code", static_cast<int>(e.code)}, {"text", e.line()}};
  if (e.rank >= 0) j["rank"] = e.rank;
  if (e.peer >= 0) j["peer"] = e.peer;
  if (!e.phase.empty()) j["phase"] = e.phase;
  if (!e.operation.empty()) j["operation"] = e.operation;
  return j;
}

ordered_json state_json(const EngineState &s) {
  ordered_json j{{"doing", doing_name(s.doing)}, {"text", s.text},           {"enqueued", s.enqueued},
                 {"started", s.started},         {"completed", s.completed}, {"waits", ordered_json::array()}};
  for (size_t i = 0; i < s.calls.size(); i++)
    if (s.calls[i]) j["calls"][std::string(coll_name(static_cast<tutti_coll>(i)))] = s.calls[i];
  if (s.blocked_ns) j["blocked_ns"] = s.blocked_ns;
  for (const EngineState::Wait &w : s.waits) {
    ordered_json one{{"peer", w.peer}, {"direction", direction(!w.receiving)}, {"slice", w.slice}, {"since_ns", w.since_ns}};
    if (w.group >= 0) one["group"] = w.group;
    j["waits"].push_back(std::move(one));
  }
  if (s.noted_ns) {
    j["noted_ns"] = s.noted_ns;
    j["slices"] = s.slices;
  }
  for (const EngineState::Progress &p : s.progress)
    j["progress"].push_back({{"peer", p.peer}, {"direction", direction(p.sending)}, {"messages", p.messages}});
  for (const LinkTraffic &l : s.links)
    if (l.messages) j["links"].push_back(link_json(l));
  if (!s.error.ok()) j["error"] = error_json(s.error.error());
  return j;
}

} // namespace

ordered_json flight_json(const FlightFile &f) {
  ordered_json j{{"format", kFlightFormat}, {"version", f.who.version},   {"comm", hex(f.who.comm)},
                 {"job", hex(f.who.job)},   {"name", f.who.name},         {"rank", f.who.rank},
                 {"nranks", f.who.nranks},  {"host", f.who.host},         {"pid", f.who.pid},
                 {"reason", f.reason},      {"written_ns", f.written_ns}, {"capacity", f.record.capacity}};
  j["state"] = state_json(f.record.state);
  j["operations"] = ordered_json::array();
  for (const OperationState &o : f.record.operations) j["operations"].push_back(operation_json(o));
  j["skipped"] = ordered_json::array();
  for (const OperationState &o : f.record.skipped) j["skipped"].push_back(operation_json(o));
  j["events"] = ordered_json::array();
  for (const EngineEvent &e : f.record.events)
    j["events"].push_back({{"at_ns", e.at_ns}, {"enqueued", e.enqueued}, {"kind", e.kind}, {"text", e.text}});
  return j;
}

std::string encode_flight(const FlightFile &f) {
  return flight_json(f).dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n"; // names and tags are anybody's bytes
}

} // namespace tutti::ras
