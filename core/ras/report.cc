#include "ras/report.h"
#include "ras/flight_json.h"
#include "ras/json_reader.h"
#include <arpa/inet.h>
#include <charconv>

namespace tutti::ras {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostAddresses = 16; // of a process
constexpr std::string_view kSeen[] = {"unknown", "running", "stopped", "zombie", "gone"};

std::string hex(uint64_t v) {
  return fmt::format("{:016x}", v);
}

ordered_json look_json(const Look &l) {
  return {{"state", seen_name(l.seen)}, {"pid", l.pid}, {"cpu_ns", l.cpu_ns}};
}

ordered_json places_json(const std::vector<Place> &places) {
  ordered_json out = ordered_json::array();
  for (const Place &p : places) out.push_back({{"comm", hex(p.comm)}, {"rank", p.rank}});
  return out;
}

ordered_json comm_json(const CommReport &c) {
  ordered_json j{{"flight", flight_json(c.flight)}};
  if (!c.joining.empty()) j["joining"] = c.joining;
  if (c.set_up_ns) j["set_up_ns"] = c.set_up_ns;
  j["memory"] = c.memory;
  j["fds"] = c.fds;
  for (const auto &[peer, way] : c.ways) j["ways"].push_back({{"peer", peer}, {"way", way}});
  if (c.collnet) j["collnet"] = true;
  if (!c.collnet_lost.empty()) j["collnet_lost"] = c.collnet_lost;
  if (!c.left.empty()) j["left"] = c.left;
  for (const auto &[peer, what] : c.restoring) j["restoring"].push_back({{"peer", peer}, {"what", what}});
  return j;
}

ordered_json known_json(const ProcessReport::Known &k) {
  ordered_json j{{"process", hex(k.contact.process[0])}, {"under", hex(k.under)}, {"host_id", hex(k.contact.host)},
                 {"host", k.contact.hostname},           {"pid", k.contact.pid},  {"places", places_json(k.places)}};
  j["addresses"] = ordered_json::array();
  for (const boot::Endpoint &e : k.contact.endpoints) j["addresses"].push_back(e.text());
  return j;
}

std::string dump(const ordered_json &j) {
  return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace); // names are anybody's bytes
}

class Parser : private JsonReader {
public:
  explicit Parser(const std::string &origin) : JsonReader(origin), name_(origin) {}

  Result<ProcessReport> report(const json &j) {
    if (text(j, "format", kAll) != kReportFormat) return bad(kAll, fmt::format("has another format than {}", kReportFormat));
    ProcessReport r;
    r.process = hex(j, "process", kAll);
    r.pid = number(j, "pid", 0, INT64_MAX, kAll);
    r.host = text(j, "host", kAll);
    r.host_id = hex(j, "host_id", kAll);
    r.version = text(j, "version", kAll);
    r.now_ns = number(j, "now_ns", 0, INT64_MAX, kAll);
    r.started_ns = number(j, "started_ns", 0, INT64_MAX, kAll);
    r.cpu_ns = number(j, "cpu_ns", 0, INT64_MAX, kAll);
    r.rss = count(j, "rss", kAll);
    r.fds = count(j, "fds", kAll);
    r.threads = count(j, "threads", kAll);
    r.addresses = texts(j, "addresses");
    r.notes = texts(j, "notes");
    for (const json &c : list(j, "communicators", kAll)) r.comms.push_back(comm(c));
    for (const json &n : list(j, "neighbours", kAll)) r.neighbours.push_back({hex(n, "process", "neighbour"), look(n)});
    for (const json &k : list(j, "more", kAll)) r.more.push_back(known(k));
    if (!error().ok()) return error();
    return r;
  }

  Result<Silent> silent(const json &j) {
    Silent s;
    s.process = hex(j, "process", kAll);
    s.pid = number(j, "pid", 0, INT64_MAX, kAll);
    s.host = text(j, "host", kAll);
    s.host_id = hex(j, "host_id", kAll);
    s.why = text(j, "why", kAll);
    if (const json *l = member(j, "look", kAll)) s.look = look(*l);
    s.heard_ns = number(j, "heard_ns", 0, INT64_MAX, kAll);
    s.places = places(j);
    if (!error().ok()) return error();
    return s;
  }

private:
  static inline const std::string kAll = "answer";

  std::vector<std::string> texts(const json &j, const char *key) {
    std::vector<std::string> out;
    for (const json &t : list(j, key, kAll))
      if (t.is_string())
        out.push_back(t.get<std::string>());
      else
        (void)bad(kAll, fmt::format("has something in \"{}\" that is no text", key));
    return out;
  }
  Look look(const json &j) {
    Look l;
    const std::string name = text(j, "state", "look");
    size_t i = 0;
    while (i < std::size(kSeen) && kSeen[i] != name) i++;
    if (i == std::size(kSeen)) (void)bad("look", fmt::format("has the state \"{}\"", name.substr(0, 40)));
    l.seen = static_cast<Look::Seen>(i % std::size(kSeen));
    l.pid = number(j, "pid", 0, INT64_MAX, "look");
    l.cpu_ns = number(j, "cpu_ns", 0, INT64_MAX, "look");
    return l;
  }
  std::vector<Place> places(const json &j) {
    std::vector<Place> out;
    for (const json &p : list(j, "places", kAll))
      out.push_back({hex(p, "comm", "place"), static_cast<int>(number(p, "rank", 0, kMostFlightRanks, "place"))});
    return out;
  }
  CommReport comm(const json &j) {
    CommReport c;
    if (const json *f = member(j, "flight", "communicator")) {
      auto flight = flight_of(*f, name_);
      if (flight.ok())
        c.flight = std::move(*flight);
      else
        (void)bad("communicator", flight.status().error().message);
    }
    c.joining = text_or(j, "joining", "communicator");
    c.set_up_ns = optional(j, "set_up_ns") ? number(j, "set_up_ns", 0, INT64_MAX, "communicator") : 0;
    c.memory = count(j, "memory", "communicator");
    c.fds = count(j, "fds", "communicator");
    for (const json &w : list(j, "ways", "communicator"))
      c.ways[static_cast<int>(number(w, "peer", 0, kMostFlightRanks, "way"))] = text(w, "way", "way");
    c.collnet = optional(j, "collnet") != nullptr;
    c.collnet_lost = text_or(j, "collnet_lost", "communicator");
    for (const json &r : list(j, "restoring", "communicator"))
      c.restoring[static_cast<int>(number(r, "peer", 0, kMostFlightRanks, "connection"))] = text(r, "what", "connection");
    for (const json &r : list(j, "left", "communicator"))
      if (r.is_number_unsigned() && r.get<uint64_t>() < kMostFlightRanks) c.left.push_back(r.get<int>());
    return c;
  }
  ProcessReport::Known known(const json &j) {
    ProcessReport::Known k;
    k.contact.process[0] = hex(j, "process", "process");
    k.under = hex(j, "under", "process");
    k.contact.host = hex(j, "host_id", "process");
    k.contact.hostname = text(j, "host", "process");
    k.contact.pid = static_cast<int32_t>(number(j, "pid", 0, INT32_MAX, "process"));
    k.places = places(j);
    for (const json &a : list(j, "addresses", "process")) {
      if (k.contact.endpoints.size() >= kMostAddresses) break;
      // One that this version cannot read is not tried.
      if (const auto at = a.is_string() ? endpoint(a.get_ref<const std::string &>()) : std::nullopt)
        k.contact.endpoints.push_back(*at);
    }
    return k;
  }

  const std::string name_;
};

template <class T, class F> Result<T> parsed(std::string_view text, const std::string &origin, F fn) {
  const json j = json::parse(text, nullptr, false);
  if (j.is_discarded()) return fail(Code::invalid_argument, "{}: is no JSON text, or only a part of it", origin);
  Parser parser(origin);
  return fn(parser, j);
}

} // namespace

std::string_view seen_name(Look::Seen seen) {
  return kSeen[static_cast<size_t>(seen)];
}

std::string encode(const ProcessReport &r) {
  ordered_json j{{"format", kReportFormat},
                 {"process", hex(r.process)},
                 {"pid", r.pid},
                 {"host", r.host},
                 {"host_id", hex(r.host_id)},
                 {"version", r.version},
                 {"now_ns", r.now_ns},
                 {"started_ns", r.started_ns},
                 {"cpu_ns", r.cpu_ns},
                 {"rss", r.rss},
                 {"fds", r.fds},
                 {"threads", r.threads},
                 {"addresses", r.addresses}};
  j["communicators"] = ordered_json::array();
  for (const CommReport &c : r.comms) j["communicators"].push_back(comm_json(c));
  for (const auto &n : r.neighbours) {
    j["neighbours"].push_back(look_json(n.look));
    j["neighbours"].back()["process"] = hex(n.process);
  }
  for (const auto &k : r.more) j["more"].push_back(known_json(k));
  if (!r.notes.empty()) j["notes"] = r.notes;
  return dump(j);
}

std::string encode(const Silent &s) {
  return dump({{"process", hex(s.process)},
               {"pid", s.pid},
               {"host", s.host},
               {"host_id", hex(s.host_id)},
               {"why", s.why},
               {"look", look_json(s.look)},
               {"heard_ns", s.heard_ns},
               {"places", places_json(s.places)}});
}

Result<ProcessReport> parse_report(std::string_view text, const std::string &origin) {
  return parsed<ProcessReport>(text, origin, [](Parser &p, const json &j) { return p.report(j); });
}

Result<Silent> parse_silent(std::string_view text, const std::string &origin) {
  return parsed<Silent>(text, origin, [](Parser &p, const json &j) { return p.silent(j); });
}

std::optional<boot::Endpoint> endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  std::string host(text.substr(0, colon));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const char *end = text.data() + text.size();
  if (std::from_chars(text.data() + colon + 1, end, port).ptr != end || port == 0) return {};
  boot::Endpoint e;
  if (inet_pton(AF_INET, host.c_str(), &reinterpret_cast<sockaddr_in *>(&e.storage)->sin_addr) == 1)
    e.storage.ss_family = AF_INET;
  else if (inet_pton(AF_INET6, host.c_str(), &reinterpret_cast<sockaddr_in6 *>(&e.storage)->sin6_addr) == 1)
    e.storage.ss_family = AF_INET6;
  else
    return {};
  e.set_port(port);
  return e;
}

} // namespace tutti::ras
