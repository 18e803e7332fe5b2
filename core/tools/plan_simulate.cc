// `tutti plan simulate`: the options of the model, and its outcome as text or JSON.
#include "tools/plan_simulate.h"
#include "base/types.h"
#include "tools/cli.h"
#include "tools/help.h"
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace tutti::tools {
namespace {

constexpr size_t kLinksShown = 16, kHopsShown = 40;

// "2.5" or "0.5,10": for links inside a host, then for those between hosts.
std::string pair_of_numbers(const std::string &text, double unit, double LinkCost::*field, SimulateOptions *to) {
  double host = 0, net = 0;
  char rest = 0;
  const int n = std::sscanf(text.c_str(), "%lf,%lf%c", &host, &net, &rest);
  const bool one = n == 1 && text.find(',') == text.npos;
  const bool finite = std::isfinite(host) && std::isfinite(net);
  if ((!one && n != 2) || !finite || host < 0 || net < 0)
    return "\"" + text + "\" is not a number, or two with a comma between";
  if (one) net = host;
  if (field == &LinkCost::beta && (host <= 0 || net <= 0)) return "bandwidth is above 0";
  to->host.*field = host * unit;
  to->net.*field = net * unit;
  return "";
}

std::string size_option(const std::string &text, uint64_t *to) {
  const auto bytes = parse_size(text);
  if (!bytes.ok()) return bytes.status().error().message;
  *to = *bytes;
  return "";
}

const char *cause_name(SimRun::Cause cause) {
  switch (cause) {
  case SimRun::Cause::start:
    return "start";
  case SimRun::Cause::lane:
    return "lane";
  case SimRun::Cause::dep:
    return "dep";
  case SimRun::Cause::window:
    return "window";
  case SimRun::Cause::room:
    return "room";
  case SimRun::Cause::message:
    return "message";
  }
  return "?";
}
const char *cause_text(SimRun::Cause cause) {
  switch (cause) {
  case SimRun::Cause::start:
    return "at once";
  case SimRun::Cause::lane:
    return "after the lane's last";
  case SimRun::Cause::dep:
    return "after a step of another lane";
  case SimRun::Cause::window:
    return "after another lane's slice";
  case SimRun::Cause::room:
    return "after its reader made room";
  case SimRun::Cause::message:
    return "after this message";
  }
  return "?";
}

std::string micro(double seconds) {
  return fmt::format("{:.3f} us", seconds * 1e6);
}

std::string hop_text(const Simulation &s, const SimHop &hop) {
  if (hop.message) {
    const SimMessage &m = s.messages[static_cast<size_t>(hop.number)];
    const Wire &w = s.wires[m.wire];
    return fmt::format("  {:>16}   message of {} from {} to {}, there at {}{}\n", micro(m.leaves), size_text(m.bytes),
                       s.ranks[w.src], s.ranks[w.dst], micro(m.arrives), m.behind >= 0 ? ", waited for a port" : "");
  }
  const SimRun &r = s.runs[static_cast<size_t>(hop.number)];
  return fmt::format("  {:>16}   {} lane {} step {} iteration {} slice {}, {}\n", micro(r.begin), s.ranks[r.rank], r.lane,
                     r.step, r.iter, r.slice, cause_text(r.cause));
}

std::vector<uint64_t> messages_of(const Simulation &s) {
  std::vector<uint64_t> count(s.wires.size());
  for (const SimMessage &m : s.messages) count[m.wire]++;
  return count;
}

std::string text_of(const PlanSet &plans, const SimulateOptions &o, const Simulation &s) {
  const Plan &p = *plans[0];
  std::string out =
      fmt::format("{} by {}, {} ranks, {} in the larger buffer{}\n", coll_name(p.request.coll), p.algo, plans.size(),
                  size_text(o.bytes), o.slice ? fmt::format(" in slices of {}", size_text(o.slice)) : "");
  out += fmt::format("links inside a host {} + b / {:.4g} GB/s, between hosts {} + b / {:.4g} GB/s, {} slots each\n",
                     micro(o.host.alpha), o.host.beta / 1e9, micro(o.net.alpha), o.net.beta / 1e9,
                     o.depth ? o.depth : p.min_depth);
  out += fmt::format("time  {}  ({:.3f} GB/s of the larger buffer)\n", micro(s.seconds),
                     s.seconds > 0 ? static_cast<double>(o.bytes) / s.seconds / 1e9 : 0);
  std::vector<size_t> by_bytes(s.wires.size());
  std::iota(by_bytes.begin(), by_bytes.end(), size_t{0});
  std::stable_sort(by_bytes.begin(), by_bytes.end(), [&](size_t a, size_t b) { return s.wire_bytes[a] > s.wire_bytes[b]; });
  const auto messages = messages_of(s);
  out += "bytes per link, the busiest first\n";
  for (size_t i = 0; i < std::min(by_bytes.size(), kLinksShown); i++) {
    const Wire &w = s.wires[by_bytes[i]];
    out += fmt::format("  {:>9} -> {:>9}  conn {:>3}  {:>12} bytes  {:>6} messages\n", s.ranks[w.src], s.ranks[w.dst], w.conn,
                       s.wire_bytes[by_bytes[i]], messages[by_bytes[i]]);
  }
  if (by_bytes.size() > kLinksShown) out += fmt::format("  and {} more links\n", by_bytes.size() - kLinksShown);
  out += fmt::format("critical path, {} steps and messages\n", s.critical.size());
  for (size_t i = 0; i < s.critical.size(); i++) {
    if (s.critical.size() > kHopsShown && i == kHopsShown / 2) {
      out += fmt::format("  {:>16}   {} more\n", "...", s.critical.size() - kHopsShown);
      i = s.critical.size() - kHopsShown / 2;
    }
    out += hop_text(s, s.critical[i]);
  }
  return out;
}

std::string json_of(const PlanSet &plans, const SimulateOptions &o, const Simulation &s) {
  const Plan &p = *plans[0];
  nlohmann::ordered_json j{{"algo", p.algo},         {"coll", std::string(coll_name(p.request.coll))},
                           {"nranks", plans.size()}, {"bytes", o.bytes},
                           {"slice", o.slice},       {"seconds", s.seconds}};
  j["links"] = nlohmann::ordered_json::array();
  const auto messages = messages_of(s);
  for (size_t i = 0; i < s.wires.size(); i++)
    j["links"].push_back({{"from", s.wires[i].src},
                          {"to", s.wires[i].dst},
                          {"conn", s.wires[i].conn},
                          {"bytes", s.wire_bytes[i]},
                          {"messages", messages[i]}});
  j["critical_path"] = nlohmann::ordered_json::array();
  for (const SimHop &hop : s.critical) {
    if (hop.message) {
      const SimMessage &m = s.messages[static_cast<size_t>(hop.number)];
      j["critical_path"].push_back({{"message",
                                     {{"from", s.wires[m.wire].src},
                                      {"to", s.wires[m.wire].dst},
                                      {"bytes", m.bytes},
                                      {"leaves", m.leaves},
                                      {"arrives", m.arrives}}}});
    } else {
      const SimRun &r = s.runs[static_cast<size_t>(hop.number)];
      j["critical_path"].push_back({{"step",
                                     {{"rank", r.rank},
                                      {"lane", r.lane},
                                      {"step", r.step},
                                      {"iteration", r.iter},
                                      {"slice", r.slice},
                                      {"begin", r.begin},
                                      {"end", r.end},
                                      {"after", cause_name(r.cause)}}}});
    }
  }
  return j.dump(1) + "\n";
}

} // namespace

void simulate_options(CLI::App *app, const std::string &group, SimulateArgs *args) {
  SimulateOptions *o = &args->options;
  o->bytes = 1 << 20;
  const auto pair = [&, app, o](const char *name, const char *help, double unit, double LinkCost::*field) {
    app->add_option_function<std::string>(
           name,
           [=](const std::string &text) {
             if (const std::string bad = pair_of_numbers(text, unit, field, o); !bad.empty())
               throw CLI::ValidationError(name, bad);
           },
           help)
        ->type_name("N[,N]")
        ->group(group);
  };
  const auto size = [&, app](const char *name, const char *help, uint64_t *to) {
    app->add_option_function<std::string>(
           name,
           [=](const std::string &text) {
             if (const std::string bad = size_option(text, to); !bad.empty()) throw CLI::ValidationError(name, bad);
           },
           help)
        ->type_name("SIZE")
        ->group(group);
  };
  size("-b,--bytes", "bytes of the larger buffer (1M)", &o->bytes);
  size("--slice", "slice size; 0 = whole chunks (0)", &o->slice);
  pair("--alpha", "latency in us, inside a host and between hosts (0.5,10)", 1e-6, &LinkCost::alpha);
  pair("--beta", "bandwidth in GB/s, inside a host and between hosts (10,3)", 1e9, &LinkCost::beta);
  app->add_option_function<double>(
         "--group-beta", [o](double gbs) { o->group_beta = gbs * 1e9; },
         "bandwidth in GB/s into a collnet group, of all members together; 0 = no limit (0)")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app->add_option("--group-depth", o->group_depth, "aggregators between a member of a group and the root of their tree (1)")
      ->check(CLI::Range(1, 16))
      ->group(group);
  app->add_option("--fifo", o->depth, "slots per link; 0 = the least that the plan asks for")
      ->check(CLI::Range(0, 65536))
      ->group(group);
}

Result<std::string> simulation_text(const PlanSet &plans, const SimulateArgs &args) {
  TUTTI_ASSIGN(simulation, simulate(plans, args.options));
  return args.json ? json_of(plans, args.options, simulation) : text_of(plans, args.options, simulation);
}

} // namespace tutti::tools
