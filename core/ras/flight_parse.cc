#include "base/types.h"
#include "ras/flight_json.h"
#include "ras/json_reader.h"

namespace tutti::ras {
namespace {

using nlohmann::json;

class Parser : private JsonReader {
public:
  using JsonReader::JsonReader;

  Result<FlightFile> parse(const json &j) {
    const json *format = optional(j, "format");
    if (!format || !format->is_string() || !format->get_ref<const std::string &>().starts_with("tutti.flight/"))
      return bad("file", "is no flight-recorder file");
    if (format->get_ref<const std::string &>() != kFlightFormat)
      return bad("file",
                 fmt::format("has the format {}, this tool reads {}", format->get_ref<const std::string &>(), kFlightFormat));
    FlightFile f;
    f.who = identity(j);
    f.reason = text(j, "reason", kFile);
    f.written_ns = number(j, "written_ns", 0, INT64_MAX, kFile);
    f.record.capacity = static_cast<uint32_t>(number(j, "capacity", 0, UINT32_MAX, kFile));
    nranks_ = f.who.nranks;
    if (const json *state = member(j, "state", kFile)) f.record.state = state_of(*state, f.written_ns);
    operations(j, "operations", &f.record.operations);
    operations(j, "skipped", &f.record.skipped);
    for (const json &e : list(j, "events", kFile)) f.record.events.push_back(event(e));
    find_ends(&f.record);
    if (!error().ok()) return error();
    return f;
  }

private:
  static inline const std::string kFile = "file";

  bool sending(const json &j, const std::string &where) {
    const std::string d = text(j, "direction", where);
    if (d != "send" && d != "recv") (void)bad(where, fmt::format("has a direction \"{}\"; send or recv", d.substr(0, 40)));
    return d == "send";
  }
  int peer(const json &j, const std::string &where) { return static_cast<int>(number(j, "peer", -1, nranks_ - 1, where)); }
  int64_t time(const json &j, const char *key, const std::string &where) {
    return optional(j, key) ? number(j, key, 0, INT64_MAX, where) : 0;
  }

  uint32_t small_count(const json &j, const char *key, const std::string &where) { // 0 where there is none
    return optional(j, key) ? static_cast<uint32_t>(number(j, key, 0, UINT32_MAX, where)) : 0;
  }

  FlightIdentity identity(const json &j) {
    FlightIdentity who;
    who.comm = hex(j, "comm", kFile);
    who.job = hex(j, "job", kFile);
    who.name = text(j, "name", kFile);
    who.nranks = static_cast<int>(number(j, "nranks", 1, kMostFlightRanks, kFile));
    who.rank = static_cast<int>(number(j, "rank", 0, who.nranks - 1, kFile));
    who.host = text(j, "host", kFile);
    who.pid = number(j, "pid", 0, INT64_MAX, kFile);
    who.version = text(j, "version", kFile);
    return who;
  }

  EngineState state_of(const json &j, int64_t now) {
    const std::string where = "state";
    EngineState s;
    s.now_ns = now;
    s.enqueued = count(j, "enqueued", where);
    s.started = count(j, "started", where);
    s.completed = count(j, "completed", where);
    if (s.completed > s.started || s.started > s.enqueued)
      (void)bad(where,
                fmt::format("has {} operations completed, {} started and {} enqueued", s.completed, s.started, s.enqueued));
    if (const json *calls = optional(j, "calls"))
      for (size_t i = 0; i < s.calls.size(); i++)
        s.calls[i] = count(*calls, std::string(coll_name(static_cast<tutti_coll>(i))).c_str(), "calls");
    s.blocked_ns = time(j, "blocked_ns", where);
    s.doing = doing(text(j, "doing", where));
    s.text = text(j, "text", where);
    for (const json &w : list(j, "waits", where))
      s.waits.push_back({peer(w, "wait"), !sending(w, "wait"), small_count(w, "slice", "wait"),
                         optional(w, "group") ? static_cast<int32_t>(number(w, "group", 0, INT32_MAX, "wait")) : -1,
                         time(w, "since_ns", "wait")});
    s.noted_ns = time(j, "noted_ns", where);
    s.slices = count(j, "slices", where);
    for (const json &p : list(j, "progress", where))
      s.progress.push_back({peer(p, "progress"), sending(p, "progress"), count(p, "messages", "progress")});
    for (const json &l : list(j, "links", where)) s.links.push_back(link(l));
    if (const json *e = optional(j, "error")) s.error = Status(failure(*e));
    return s;
  }
  EngineState::Doing doing(const std::string &name) {
    for (const auto d : {EngineState::Doing::idle, EngineState::Doing::held, EngineState::Doing::running,
                         EngineState::Doing::waiting, EngineState::Doing::failed})
      if (doing_name(d) == name) return d;
    (void)bad("state", fmt::format("says the rank is \"{}\"; idle, held, running, waiting or failed", name.substr(0, 40)));
    return EngineState::Doing::idle;
  }
  LinkTraffic link(const json &j) {
    LinkTraffic l;
    l.peer = peer(j, "link");
    l.conn = static_cast<uint16_t>(number(j, "conn", 0, UINT16_MAX, "link"));
    l.sending = sending(j, "link");
    l.readers = small_count(j, "readers", "link");
    const std::string transport = text(j, "transport", "link");
    for (const LinkClass c : {LinkClass::local, LinkClass::shm, LinkClass::net})
      if (class_name(c) == transport) l.link_class = c;
    l.proto = text(j, "proto", "link");
    l.messages = count(j, "messages", "link");
    l.bytes = count(j, "bytes", "link");
    return l;
  }
  Error failure(const json &j) {
    Error e;
    e.code = static_cast<Code>(number(j, "code", 1, 64, "error"));
    e.message = text(j, "text", "error");
    if (optional(j, "peer")) e.peer = static_cast<int>(number(j, "peer", 0, nranks_ - 1, "error"));
    e.phase = text_or(j, "phase", "error");
    e.operation = text_or(j, "operation", "error");
    return e; // its text names the rank already
  }

  void operations(const json &j, const char *key, std::vector<OperationState> *out) {
    uint64_t before = 0;
    for (const json &o : list(j, key, kFile)) {
      out->push_back(operation(o));
      const uint64_t seq = out->back().seq;
      if (seq && seq <= before) (void)bad("operation", fmt::format("has seq {} after {}", seq, before));
      before = std::max(before, seq);
    }
  }
  OperationState operation(const json &j) {
    const std::string where = "operation";
    OperationState o;
    o.seq = count(j, "seq", where);
    o.call.number = count(j, "number", where);
    const std::string name = text(j, "coll", where);
    if (const auto coll = coll_from(name))
      o.call.coll = *coll;
    else
      (void)bad(where, fmt::format("is of an unknown kind \"{}\"", name.substr(0, 40)));
    const std::string type = text(j, "dtype", where);
    if (const auto dtype = dtype_from(type))
      o.call.dtype = *dtype;
    else
      (void)bad(where, fmt::format("has an unknown type \"{}\"", type.substr(0, 40)));
    o.call.op = static_cast<uint32_t>(number(j, "op", 0, UINT8_MAX, where));
    o.call.root = static_cast<int32_t>(number(j, "root", -1, nranks_ - 1, where));
    o.call.count = count(j, "count", where);
    if (optional(j, "table")) o.call.table = hex(j, "table", where);
    o.tag = text_or(j, "tag", where);
    o.text = text(j, "call", where);
    o.bytes = count(j, "bytes", where);
    o.algo = text_or(j, "algo", where);
    o.proto = text_or(j, "proto", where);
    o.channels = small_count(j, "channels", where);
    o.slot_bytes = small_count(j, "slot_bytes", where);
    o.depth = small_count(j, "depth", where);
    o.enqueued_ns = time(j, "enqueued_ns", where);
    o.started_ns = time(j, "started_ns", where);
    o.completed_ns = time(j, "completed_ns", where);
    if (const json *failed = optional(j, "failed")) o.failed = failed->is_boolean() && failed->get<bool>();
    o.transfers_in_all = small_count(j, "messages_in_all", where);
    for (const json &m : list(j, "messages", where))
      o.transfers.push_back({peer(m, "message"), sending(m, "message"), count(m, "bytes", "message")});
    return o;
  }
  EngineEvent event(const json &j) {
    const std::string where = "event";
    return {time(j, "at_ns", where), count(j, "enqueued", where), text(j, "kind", where), text(j, "text", where)};
  }
  // The state's own operations are those of the list.
  static void find_ends(EngineRecord *r) {
    for (const OperationState &o : r->operations) {
      if (o.seq == r->state.completed) r->state.last = o;
      if (o.seq == r->state.completed + 1) r->state.oldest = o;
    }
  }

  int nranks_ = 1;
};

} // namespace

Result<FlightFile> flight_of(const json &j, const std::string &origin) {
  return Parser(origin).parse(j);
}

Result<FlightFile> parse_flight(std::string_view text, const std::string &origin) {
  const json j = json::parse(text, nullptr, false);
  if (j.is_discarded()) return fail(Code::invalid_argument, "{}: is no JSON text, or only a part of it", origin);
  return flight_of(j, origin);
}

} // namespace tutti::ras
