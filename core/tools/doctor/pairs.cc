#include "tools/doctor/pairs.h"
#include "bootstrap/hub.h"
#include "tools/doctor/listener.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tutti::doctor {
namespace {

using nlohmann::json;

std::string dump(const json &j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parse(const std::string &text) {
  json out = json::parse(text, nullptr, false);
  return out.is_object() ? out : json::object();
}

json to_json(const Attempt &a) {
  return {{"from", a.from},        {"to", a.to}, {"reach", static_cast<int>(a.reach)},
          {"errno", a.err},        {"ms", a.ms}, {"mss", a.mss},
          {"path_mtu", a.path_mtu}};
}

json to_json(const Measured &m) {
  return {{"latency", m.latency_us},         {"out", m.out_gbs},      {"in", m.in_gbs},          {"clock", m.clock_ms},
          {"clock_error", m.clock_error_ms}, {"mtu", m.datagram_mtu}, {"lost", m.datagram_lost}, {"problem", m.problem}};
}

void read(const json &j, const HostReport &from, const HostReport &to, PairResult &out) {
  if (!j.contains("attempts") || !j["attempts"].is_array()) return;
  for (const auto &one : j["attempts"]) {
    Attempt a;
    a.from = one.value("from", -1);
    a.to = one.value("to", -1);
    a.reach = static_cast<Reach>(std::clamp(one.value("reach", 5), 0, 5));
    a.err = one.value("errno", 0);
    a.ms = one.value("ms", 0.0);
    a.mss = one.value("mss", 0);
    a.path_mtu = one.value("path_mtu", 0);
    const auto valid = [](int i, size_t n) { return i >= 0 && static_cast<size_t>(i) < n; };
    if (valid(a.from, from.places.size()) && valid(a.to, to.places.size())) out.attempts.push_back(std::move(a));
  }
}

std::optional<Measured> measured_from(const json &j) {
  if (!j.contains("latency")) return std::nullopt;
  Measured m;
  m.latency_us = j.value("latency", -1.0);
  m.out_gbs = j.value("out", -1.0);
  m.in_gbs = j.value("in", -1.0);
  m.clock_ms = j.value("clock", 0.0);
  m.clock_error_ms = j.value("clock_error", -1.0);
  m.datagram_mtu = j.value("mtu", -1);
  m.datagram_lost = j.value("lost", 0);
  m.problem = j.value("problem", "");
  return m;
}

class Tournament {
public:
  Tournament(Exchange &exchange, std::shared_ptr<const Config> config, const PairsOptions &options)
      : exchange_(exchange), config_(std::move(config)), options_(options) {}
  Result<PairsReport> run() {
    TUTTI_TRY(find_hosts());
    TUTTI_TRY(introduce());
    TUTTI_TRY(meet_locally());
    const int n = static_cast<int>(report_.hosts.size());
    report_.rounds = rounds(n);
    for (int r = 0; r < report_.rounds; r++) {
      bool late = false;
      TUTTI_TRY(play(r, &late));
      report_.done++;
      if (late) break;
    }
    // Nobody takes down its listener while others may still be at it.
    TUTTI_ASSIGN(ended, all("{}"));
    for (size_t h = 0; h < report_.hosts.size(); h++) // who has ended meanwhile speaks for nobody
      if (ended[static_cast<size_t>(report_.ranks[h].front())].empty()) report_.hosts[h].present = false;
    return std::move(report_);
  }

private:
  Result<std::vector<std::string>> all(const std::string &mine) {
    return exchange_.gather(mine, options_.deadline.extended(std::chrono::seconds(10)));
  }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  bool representative() const { return report_.ranks[static_cast<size_t>(me_)].front() == exchange_.rank(); }

  // Ranks of one host and network namespace are one host here; the lowest of them speaks for it.
  Status find_hosts() {
    TUTTI_ASSIGN(said, all(fmt::format("{:016x}", boot::host_id(*config_))));
    std::map<std::string, int> known;
    for (size_t r = 0; r < said.size(); r++) {
      const std::string key = said[r].empty() ? fmt::format("gone {}", r) : said[r];
      const auto [at, is_new] = known.emplace(key, static_cast<int>(report_.ranks.size()));
      if (is_new) report_.ranks.emplace_back();
      report_.ranks[static_cast<size_t>(at->second)].push_back(static_cast<int>(r));
      host_of_.push_back(at->second);
    }
    me_ = host_of(exchange_.rank());
    return {};
  }

  Status introduce() {
    std::string mine;
    if (representative()) {
      Job job;
      job.hosts = static_cast<int>(report_.ranks.size());
      const Host host =
          gather_host(config_, Deadline::in(std::min<Nanos>(options_.deadline.left() / 4, std::chrono::seconds(10))));
      job.here =
          options_.ranks_here > 0 ? options_.ranks_here : static_cast<int>(report_.ranks[static_cast<size_t>(me_)].size());
      job.ranks = options_.ranks_here > 0 ? job.here * job.hosts : exchange_.size();
      auto listener = Listener::open(*config_, exchange_.key(), me_);
      if (listener.ok()) listener_ = std::move(*listener);
      mine = report_text(exchange_.host().empty() ? host.names.own : exchange_.host(), host,
                         listener_ ? listener_->places() : std::vector<Place>{},
                         listener_ ? "" : listener.status().error().line(), check_host(host, job));
    }
    TUTTI_ASSIGN(said, all(mine));
    for (const auto &ranks : report_.ranks) report_.hosts.push_back(report_from(said[static_cast<size_t>(ranks.front())]));
    for (size_t h = 0; h < report_.hosts.size(); h++)
      if (report_.hosts[h].name.empty()) report_.hosts[h].name = fmt::format("host of rank {}", report_.ranks[h].front());
    // Containers and namespaces of one machine may share a name.
    for (size_t h = 0; h < report_.hosts.size(); h++)
      for (size_t g = h + 1; g < report_.hosts.size(); g++)
        if (report_.hosts[g].name == report_.hosts[h].name)
          report_.hosts[g].name += fmt::format("#{}", report_.ranks[g].front());
    return {};
  }

  Status meet_locally() {
    json mine = json::array();
    if (Bootstrap *bootstrap = exchange_.bootstrap()) {
      const Deadline deadline = Deadline::in(options_.deadline.left() / 4);
      for (const LocalPair &p : measure_local(*bootstrap, report_.ranks[static_cast<size_t>(me_)], deadline))
        mine.push_back({{"a", p.a}, {"b", p.b}, {"latency", p.latency_us}, {"gbs", p.gbs}, {"problem", p.problem}});
    }
    TUTTI_ASSIGN(said, all(dump({{"pairs", mine}})));
    for (const std::string &one : said) {
      const json j = parse(one);
      if (!j.contains("pairs")) continue;
      for (const auto &p : j["pairs"])
        report_.locals.push_back(
            {p.value("a", 0), p.value("b", 0), p.value("latency", -1.0), p.value("gbs", -1.0), p.value("problem", "")});
    }
    return {};
  }

  // Connecting takes until `patience` where something drops packets; measuring a share of the time that is left.
  Status play(int round, bool *late) {
    const int n = static_cast<int>(report_.hosts.size()), other = representative() ? opponent(n, round, me_) : -1;
    const HostReport *theirs = other >= 0 ? &report_.hosts[static_cast<size_t>(other)] : nullptr;
    const auto &own = report_.hosts[static_cast<size_t>(me_)].places;
    std::vector<Attempt> attempts;
    json mine = json::object();
    if (theirs) {
      attempts = try_all(own, theirs->places, exchange_.key(), me_, other, options_.patience);
      mine["attempts"] = json::array();
      for (const Attempt &a : attempts) mine["attempts"].push_back(to_json(a));
    }
    const Nanos left = options_.deadline.left();
    const int to_go = report_.rounds - round;
    mine["late"] = left < 2 * options_.patience;
    TUTTI_ASSIGN(said, all(dump(mine)));
    const size_t first = report_.pairs.size();
    for (int a = 0; a < n; a++) {
      const int b = opponent(n, round, a);
      if (b < 0) continue;
      PairResult p;
      p.from = a;
      p.to = b;
      const json j = parse(said[static_cast<size_t>(report_.ranks[static_cast<size_t>(a)].front())]);
      read(j, report_.hosts[static_cast<size_t>(a)], report_.hosts[static_cast<size_t>(b)], p);
      *late = *late || j.value("late", false);
      report_.pairs.push_back(std::move(p));
    }
    json result = json::object();
    if (theirs && i_measure(first, me_, other))
      result = measure_one(attempts, own, theirs->places, left / (4 * std::max(1, to_go)));
    TUTTI_ASSIGN(results, all(dump(result)));
    for (size_t i = first; i < report_.pairs.size(); i++) {
      PairResult &p = report_.pairs[i];
      const json j = parse(results[static_cast<size_t>(report_.ranks[static_cast<size_t>(p.from)].front())]);
      p.measured = measured_from(j);
      p.used = j.value("used", -1);
      if (p.used >= static_cast<int>(p.attempts.size())) p.used = -1;
    }
    return {};
  }

  // The lower one if it gets through, else the other.
  bool i_measure(size_t first, int me, int other) const {
    bool mine = false, theirs = false;
    for (size_t i = first; i < report_.pairs.size(); i++) {
      if (report_.pairs[i].from == me) mine = report_.pairs[i].open() != nullptr;
      if (report_.pairs[i].from == other) theirs = report_.pairs[i].open() != nullptr;
    }
    return mine && (me < other || !theirs);
  }

  json measure_one(std::vector<Attempt> &attempts, const std::vector<Place> &own, const std::vector<Place> &theirs,
                   Nanos share) {
    // Places are in the order in which the library would use them.
    const auto at = std::find_if(attempts.begin(), attempts.end(), [](const Attempt &a) { return a.reach == Reach::ok; });
    if (at == attempts.end()) return json::object();
    const Nanos each = std::clamp<Nanos>(share / 8, std::chrono::milliseconds(10), std::chrono::milliseconds(200));
    const Deadline deadline = Deadline::in(std::clamp<Nanos>(share, std::chrono::seconds(2), std::chrono::seconds(6)));
    json out = to_json(
        measure(*at, own[static_cast<size_t>(at->from)], theirs[static_cast<size_t>(at->to)], exchange_.key(), each, deadline));
    out["used"] = at - attempts.begin();
    return out;
  }

  Exchange &exchange_;
  std::shared_ptr<const Config> config_;
  const PairsOptions &options_;
  std::vector<int> host_of_;
  int me_ = 0;
  PairsReport report_;
  std::unique_ptr<Listener> listener_;
};

} // namespace

const Attempt *PairResult::open() const {
  const auto at = std::find_if(attempts.begin(), attempts.end(), [](const Attempt &a) { return a.reach == Reach::ok; });
  return at == attempts.end() ? nullptr : &*at;
}

Result<PairsReport> run_pairs(Exchange &exchange, std::shared_ptr<const Config> config, const PairsOptions &options) {
  try {
    return Tournament(exchange, std::move(config), options).run();
  } catch (const json::exception &e) { // a value of another kind than this version writes
    return fail(Code::remote, "another process of this test said what cannot be read: {}", e.what());
  }
}

namespace {
std::string locals_text(const PairsReport &report) {
  std::string out;
  if (report.locals.empty()) return out;
  out += "\nranks of one host, over shared memory\n";
  for (const LocalPair &p : report.locals)
    out += p.problem.empty() ? fmt::format("  {:>4} {:>4}  {:>8.2f} us {:>8.2f} GB/s\n", p.a, p.b, p.latency_us, p.gbs)
                             : fmt::format("  {:>4} {:>4}  {}\n", p.a, p.b, p.problem);
  return out;
}
} // namespace

std::string matrix_text(const PairsReport &report) {
  std::string out;
  const size_t n = report.hosts.size();
  for (size_t h = 0; h < n; h++) out += fmt::format("{:>4}  {}\n", h, report.hosts[h].name);
  if (n == 1) return out + locals_text(report);
  const auto table = [&](std::string_view title, auto &&cell) {
    out += fmt::format("\n{} (row: from, column: to)\n{:>6}", title, "");
    for (size_t c = 0; c < n; c++) out += fmt::format("{:>9}", c);
    out += '\n';
    for (size_t r = 0; r < n; r++) {
      out += fmt::format("{:>6}", r);
      for (size_t c = 0; c < n; c++) {
        std::string text = r == c ? "" : "?";
        for (const PairResult &p : report.pairs)
          if (r != c) cell(p, static_cast<int>(r), static_cast<int>(c), text);
        out += fmt::format("{:>9}", text);
      }
      out += '\n';
    }
  };
  table("reached", [](const PairResult &p, int r, int c, std::string &text) {
    if (p.from != r || p.to != c) return;
    text = p.open() ? "yes" : p.attempts.empty() ? "-" : reach_name(p.attempts.front().reach);
  });
  table("latency, us", [](const PairResult &p, int r, int c, std::string &text) {
    const bool it = (p.from == r && p.to == c) || (p.from == c && p.to == r);
    if (it && p.measured && p.measured->latency_us >= 0) text = fmt::format("{:.1f}", p.measured->latency_us);
  });
  table("bandwidth, GB/s", [](const PairResult &p, int r, int c, std::string &text) {
    if (!p.measured) return;
    const double gbs = p.from == r && p.to == c ? p.measured->out_gbs : p.from == c && p.to == r ? p.measured->in_gbs : -1;
    if (gbs >= 0) text = fmt::format("{:.3f}", gbs);
  });
  return out + locals_text(report);
}

nlohmann::json pairs_json(const PairsReport &report) {
  json hosts = json::array(), pairs = json::array(), locals = json::array();
  for (size_t h = 0; h < report.hosts.size(); h++) {
    json places = json::array(), facts = json::object();
    for (const Place &p : report.hosts[h].places) places.push_back(doctor::to_json(p));
    for (const Fact &f : report.hosts[h].facts) facts[f.name] = f.value;
    hosts.push_back({{"name", report.hosts[h].name}, {"ranks", report.ranks[h]}, {"places", places}, {"facts", facts}});
  }
  for (const PairResult &p : report.pairs) {
    json attempts = json::array();
    for (const Attempt &a : p.attempts) {
      const Place &from = report.hosts[static_cast<size_t>(p.from)].places[static_cast<size_t>(a.from)],
                  &to = report.hosts[static_cast<size_t>(p.to)].places[static_cast<size_t>(a.to)];
      attempts.push_back({{"from", from.interface},
                          {"to", to.interface},
                          {"address", to.address},
                          {"port", to.port},
                          {"result", reach_name(a.reach)},
                          {"errno", a.err},
                          {"ms", a.ms},
                          {"mss", a.mss},
                          {"path_mtu", a.path_mtu}});
    }
    json row = {{"from", p.from}, {"to", p.to}, {"reached", p.open() != nullptr}, {"attempts", attempts}};
    if (p.measured) {
      const Measured &m = *p.measured;
      row["measured"] = {
          {"latency_us", m.latency_us},         {"out_gbs", m.out_gbs},  {"in_gbs", m.in_gbs},  {"clock_offset_ms", m.clock_ms},
          {"clock_error_ms", m.clock_error_ms}, {"mtu", m.datagram_mtu}, {"problem", m.problem}};
    }
    pairs.push_back(std::move(row));
  }
  for (const LocalPair &p : report.locals)
    locals.push_back({{"a", p.a}, {"b", p.b}, {"latency_us", p.latency_us}, {"gbs", p.gbs}, {"problem", p.problem}});
  return {{"hosts", hosts}, {"pairs", pairs}, {"same_host", locals}, {"rounds", report.rounds}, {"rounds_done", report.done}};
}

} // namespace tutti::doctor
