// What the tests of all pairs mean.
#include "tools/doctor/pairs.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace tutti::doctor {
namespace {

using Names = std::vector<std::string>;

const std::string &name_of(const PairsReport &r, int host) {
  return r.hosts[static_cast<size_t>(host)].name;
}

const Place &place_of(const PairsReport &r, int host, int place) {
  return r.hosts[static_cast<size_t>(host)].places[static_cast<size_t>(place)];
}

std::string listed(const Names &names, size_t most = 6) {
  const size_t shown = std::min(names.size(), most);
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<long>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

// ---- each host's own findings: what several have found alike is said once
void merge_findings(const PairsReport &r, Findings &out) {
  std::vector<Finding> merged;
  for (const HostReport &h : r.hosts)
    for (const Finding &f : h.findings.all()) {
      if (f.level == Level::ok) continue;
      auto at = std::find_if(merged.begin(), merged.end(),
                             [&](const Finding &m) { return m.id == f.id && m.seen == f.seen && m.level == f.level; });
      if (at == merged.end()) at = merged.insert(merged.end(), f);
      at->hosts.push_back(h.name);
    }
  for (Finding &f : merged) out.add(std::move(f));
}

// ---- what differs
void compare_facts(const PairsReport &r, Findings &out) {
  std::vector<std::string> order;
  std::map<std::string, std::pair<const Fact *, std::map<std::string, Names>>> by_name;
  for (const HostReport &h : r.hosts)
    for (const Fact &f : h.facts) {
      auto &[fact, values] = by_name[f.name];
      if (!fact) fact = &f, order.push_back(f.name);
      values[f.value].push_back(h.name);
    }
  int alike = 0;
  for (const std::string &name : order) {
    const auto &[fact, values] = by_name[name];
    if (values.size() < 2) {
      alike++;
      continue;
    }
    std::vector<std::pair<std::string, Names>> sorted(values.begin(), values.end()); // what most have, first
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto &a, const auto &b) { return a.second.size() > b.second.size(); });
    std::string text;
    for (const auto &[value, hosts] : sorted)
      text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value, listed(hosts, 4));
    std::string id = "differs.";
    for (char c : name) id += c == ' ' || c == '/' ? '_' : c;
    out.add(fact->level, id, fmt::format("{} differs: {}", name, text), fact->why, fact->fix);
  }
  if (r.hosts.size() > 1) out.ok("differs.nothing_else", fmt::format("{} facts are alike on all hosts", alike));
}

void compare_addresses(const PairsReport &r, Findings &out) {
  std::map<std::string, std::pair<bool, Names>> hosts; // made, where
  for (const HostReport &h : r.hosts)
    for (const Place &p : h.places) {
      auto &[made, names] = hosts[p.address];
      made = p.made;
      names.push_back(fmt::format("{} ({})", h.name, p.interface));
    }
  for (const auto &[address, where] : hosts)
    if (where.second.size() > 1)
      out.add(
          where.first ? Level::note : Level::error, "pairs.same_address",
          fmt::format("address {} is on {}", address, listed(where.second)),
          where.first
              ? "an address of containers: ranks that try it reach themselves, and lose time; socket.ifname can leave it out"
              : "who connects to it reaches one of them, whichever the network prefers",
          where.first ? "TUTTI_SOCKET_IFNAME=^docker,virbr" : "give each host its own address");
  for (const HostReport &h : r.hosts)
    if (!h.present || !h.problem.empty())
      out.add(Level::error, "pairs.absent",
              fmt::format("{}: {}", h.name, h.present ? "it cannot listen: " + h.problem : "it takes no part"),
              "nothing can be said of its pairs");
}

// ---- who reaches whom
struct Failure { // of one direction
  int from, to;
  Reach reach;
  std::string text;
};

std::string attempt_text(const PairsReport &r, const PairResult &p, const Attempt &a) {
  const Place &from = place_of(r, p.from, a.from), &to = place_of(r, p.to, a.to);
  return fmt::format("{} {} -> {} port {}: {}", from.interface, from.address, to.address, to.port,
                     a.err ? std::strerror(a.err) : std::string(reach_name(a.reach)));
}

// The attempt that tells most: one within a subnet before one across.
const Attempt *telling(const PairsReport &r, const PairResult &p) {
  for (const Attempt &a : p.attempts)
    if (same_subnet(place_of(r, p.from, a.from), place_of(r, p.to, a.to))) return &a;
  return p.attempts.empty() ? nullptr : &p.attempts.front();
}

void add_unreached(Reach reach, const std::string &who, const std::string &text, bool back_works, Findings &out) {
  const std::string other_way = back_works ? "; the other direction works" : "";
  const std::string open =
      "open the ports of listeners between the hosts: TUTTI_SOCKET_PORT_RANGE=40000-41000 on all, and that range in "
      "the firewall (nft insert rule inet filter input tcp dport 40000-41000 accept)";
  switch (reach) {
  case Reach::refused:
    return out.add(
        Level::error, "pairs.refused", fmt::format("{}: refused ({}){}", who, text, other_way),
        "this test listens there, so a firewall on the way rejects the connection; ranks would say \"Connection refused\"",
        open);
  case Reach::timed_out:
    return out.add(Level::error, "pairs.timed_out", fmt::format("{}: no answer ({}){}", who, text, other_way),
                   "a firewall on the way drops the packets, or they take a way that does not lead there; ranks would say "
                   "\"Connection timed out\"",
                   open);
  case Reach::no_route:
    return out.add(Level::error, "pairs.no_route", fmt::format("{}: no way ({}){}", who, text, other_way),
                   "no route leads there, or a firewall says so in its place",
                   "ip route get ADDRESS on the first host; TUTTI_SOCKET_IFNAME for a network that all are in");
  case Reach::stranger:
    return out.add(Level::error, "pairs.stranger", fmt::format("{}: another process answers ({}){}", who, text, other_way),
                   "the address is that of another host as well, or something on the way answers in its place (a proxy)",
                   "ip neigh, arping: who has the address");
  default:
    return out.add(Level::error, "pairs.failed", fmt::format("{}: {}{}", who, text, other_way),
                   "ranks of these hosts cannot reach each other");
  }
}

void judge_reach(const PairsReport &r, Findings &out) {
  std::vector<Failure> failures;
  std::map<std::pair<int, int>, bool> reached;
  for (const PairResult &p : r.pairs) {
    reached[{p.from, p.to}] = p.open() != nullptr;
    const HostReport &a = r.hosts[static_cast<size_t>(p.from)], &b = r.hosts[static_cast<size_t>(p.to)];
    if (p.open() || !a.present || !b.present || !a.problem.empty() || !b.problem.empty()) continue;
    const Attempt *attempt = telling(r, p);
    failures.push_back({p.from, p.to, attempt ? attempt->reach : Reach::failed,
                        attempt ? attempt_text(r, p, *attempt) : "they have no address of the same family"});
  }
  if (failures.empty() && !r.pairs.empty())
    out.ok("pairs.reached", fmt::format("{} pairs of hosts reach each other, in both directions", r.pairs.size() / 2));
  // A host that nobody reaches, or that reaches nobody, is one finding.
  std::vector<bool> said(failures.size());
  const size_t others = r.hosts.size() - 1;
  for (int h = 0; others > 1 && h < static_cast<int>(r.hosts.size()); h++)
    for (const bool inwards : {true, false}) {
      std::vector<size_t> mine;
      for (size_t i = 0; i < failures.size(); i++)
        if (!said[i] && (inwards ? failures[i].to : failures[i].from) == h) mine.push_back(i);
      if (mine.size() < others) continue;
      const Failure &f = failures[mine.front()];
      bool back = true;
      for (size_t i : mine) said[i] = true, back = back && reached[{failures[i].to, failures[i].from}];
      add_unreached(f.reach,
                    inwards ? fmt::format("nobody reaches {}", name_of(r, h)) : fmt::format("{} reaches nobody", name_of(r, h)),
                    f.text, back, out);
    }
  for (size_t i = 0; i < failures.size(); i++)
    if (!said[i])
      add_unreached(failures[i].reach, fmt::format("{} to {}", name_of(r, failures[i].from), name_of(r, failures[i].to)),
                    failures[i].text, reached[{failures[i].to, failures[i].from}], out);
}

// Pairs of interfaces that do not work where others of the same hosts do.
void judge_interfaces(const PairsReport &r, Findings &out) {
  std::map<std::tuple<bool, std::string, std::string, Reach>, Names> failed;
  for (const PairResult &p : r.pairs)
    for (const Attempt &a : p.attempts) {
      const Place &from = place_of(r, p.from, a.from), &to = place_of(r, p.to, a.to);
      if (a.reach == Reach::ok || !p.open() || from.made || to.made) continue;
      failed[{same_subnet(from, to), from.interface, to.interface, a.reach}].push_back(
          fmt::format("{} to {}", name_of(r, p.from), name_of(r, p.to)));
    }
  for (const auto &[what, pairs] : failed) {
    const auto &[near, from, to, reach] = what;
    out.add(near ? Level::warning : Level::note, near ? "pairs.interface" : "pairs.subnets",
            fmt::format("{} to {}: {} ({})", from, to, reach_name(reach), listed(pairs, 4)),
            near ? "both are in one subnet, and other interfaces of these hosts work: ranks try this one, too, and wait"
                 : "these are different networks; channels go by pairs that work",
            near ? fmt::format("firewall and routes of {}; or TUTTI_SOCKET_IFNAME=^{}", to, to) : "");
  }
}

// ---- packets' size
void judge_mtu(const PairsReport &r, Findings &out) {
  int whole = 0;
  for (const PairResult &p : r.pairs) {
    if (!p.measured || p.used < 0) continue;
    const Measured &m = *p.measured;
    const Attempt &a = p.attempts[static_cast<size_t>(p.used)];
    const Place &from = place_of(r, p.from, a.from), &to = place_of(r, p.to, a.to);
    const std::string who =
        fmt::format("{} ({}) to {} ({})", name_of(r, p.from), from.interface, name_of(r, p.to), to.interface);
    const int64_t both = std::min(from.mtu, to.mtu);
    const bool stalls = m.problem.starts_with("large");
    if (stalls)
      out.add(Level::error, "pairs.large_messages", fmt::format("{}: connections are made, and {}", who, m.problem),
              "operations hang or time out, while small ones work: packets of full size are lost on the way",
              m.datagram_mtu > 0
                  ? fmt::format("ip link set {} mtu {} on both, or repair the way between", from.interface, m.datagram_mtu)
                  : "an MTU that the whole way carries; ICMP \"fragmentation needed\" must not be filtered");
    else if (!m.problem.empty())
      out.add(Level::error, "pairs.stalls", fmt::format("{}: {}", who, m.problem),
              "a connection that was made carries nothing");
    if (m.datagram_mtu > 0 && m.datagram_mtu < both)
      out.add(Level::warning, "pairs.mtu",
              fmt::format("{}: packets of {} bytes get through, those of {} do not; MTU of the interfaces: {} and {}", who,
                          m.datagram_mtu, m.datagram_lost, from.mtu, to.mtu),
              "something on the way carries less than both ends believe: each connection finds out by losing packets, or hangs",
              fmt::format("raise the MTU of switches and tunnels on the way, or ip link set {} mtu {}", from.interface,
                          m.datagram_mtu));
    else if (m.datagram_mtu == 0)
      out.add(Level::note, "pairs.mtu_unknown",
              fmt::format("{}: datagrams are not answered, so the MTU is not measured; TCP uses packets of {} bytes", who,
                          a.path_mtu),
              "a firewall lets TCP through, and not UDP: RoCE v2 needs UDP 4791");
    else if (m.datagram_mtu > 0)
      whole++;
  }
  if (whole > 0) out.ok("pairs.mtu", fmt::format("{} pairs carry packets as large as their interfaces", whole));
}

// ---- speed
constexpr double kSlower = 0.5; // of the best pair
constexpr double kLater = 2.0, kLaterUs = 30;

struct Best {
  double latency = 0, gbs = 0;
};

double bandwidth(const Measured &m) {
  return std::min(m.out_gbs, m.in_gbs);
}

std::string shortfall(const Measured &m, const Best &best) {
  std::string out;
  if (bandwidth(m) < kSlower * best.gbs) out = fmt::format("{:.3f} GB/s of {:.3f}", bandwidth(m), best.gbs);
  if (m.latency_us > kLater * best.latency + kLaterUs)
    out += fmt::format("{}{:.0f} us instead of {:.0f}", out.empty() ? "" : ", ", m.latency_us, best.latency);
  return out;
}

void judge_speed(const PairsReport &r, Findings &out) {
  Best best;
  std::vector<const PairResult *> measured;
  for (const PairResult &p : r.pairs) {
    if (!p.measured || p.measured->latency_us < 0 || bandwidth(*p.measured) < 0) continue; // a finding of its own
    measured.push_back(&p);
    best.gbs = std::max(best.gbs, bandwidth(*p.measured));
    best.latency = best.latency == 0 ? p.measured->latency_us : std::min(best.latency, p.measured->latency_us);
  }
  if (measured.empty()) return;
  std::vector<bool> said(measured.size());
  int slow = 0;
  // A host whose pairs are all slow, while there are pairs without it that are not.
  for (int h = 0; h < static_cast<int>(r.hosts.size()); h++) {
    std::vector<size_t> mine;
    bool all_slow = true, others_fast = false;
    for (size_t i = 0; i < measured.size(); i++) {
      const bool is_slow = !shortfall(*measured[i]->measured, best).empty();
      if (measured[i]->from == h || measured[i]->to == h)
        mine.push_back(i), all_slow = all_slow && is_slow;
      else
        others_fast = others_fast || !is_slow;
    }
    if (mine.size() < 2 || !all_slow || !others_fast) continue;
    for (size_t i : mine) said[i] = true;
    slow++;
    out.add(Level::warning, "pairs.slow_host",
            fmt::format("all pairs of {} are slow: {} (best pair)", name_of(r, h),
                        shortfall(*measured[mine.front()]->measured, best)),
            "every ring and tree goes through it at this pace",
            "its cable, speed and duplex (ethtool), PCIe slot, CPU frequency, other load (top); its port at the switch");
  }
  for (size_t i = 0; i < measured.size(); i++) {
    const PairResult &p = *measured[i];
    const Measured &m = *p.measured;
    const std::string who = fmt::format("{} and {}", name_of(r, p.from), name_of(r, p.to)), by = shortfall(m, best);
    const double low = bandwidth(m), high = std::max(m.out_gbs, m.in_gbs);
    const std::string ways = fmt::format("{:.3f} GB/s there, {:.3f} back", m.out_gbs, m.in_gbs);
    if (!by.empty() && !said[i]) {
      slow++;
      out.add(Level::warning, "pairs.slow", fmt::format("{}: {} (best pair); {}", who, by, ways),
              "the slowest pair of a ring sets the pace of all",
              "the way between: switches, oversubscribed links, a failed one of several");
    } else if (!said[i] && low > 0 && low < kSlower * high) {
      slow++;
      out.add(Level::warning, "pairs.one_way", fmt::format("{}: {}", who, ways),
              "one direction is slower: losses, or a limit on sending", "ip -s link; tc qdisc show; ethtool -S on both");
    }
    const Attempt *a = p.used >= 0 ? &p.attempts[static_cast<size_t>(p.used)] : nullptr;
    const int64_t speed = a ? std::min(place_of(r, p.from, a->from).speed_mbps, place_of(r, p.to, a->to).speed_mbps) : -1;
    if (speed > 0 && high * 8000 < 0.3 * static_cast<double>(speed))
      out.add(Level::note, "pairs.below_link", fmt::format("{}: {:.3f} GB/s on links of {} Mbit/s", who, high, speed),
              "one TCP connection does not fill a fast link; more channels do",
              "TUTTI_PLUGIN_NET_SOCKET_SOCKETS=2 or more; socket buffers; MTU");
  }
  if (slow == 0)
    out.ok("pairs.speed", fmt::format("{} pairs measured, best {:.1f} us and {:.3f} GB/s, none stands out", measured.size(),
                                      best.latency, best.gbs));
}

void judge_locals(const PairsReport &r, Findings &out) {
  Best best;
  for (const LocalPair &p : r.locals) {
    best.gbs = std::max(best.gbs, p.gbs);
    if (p.latency_us >= 0) best.latency = best.latency == 0 ? p.latency_us : std::min(best.latency, p.latency_us);
  }
  int slow = 0;
  for (const LocalPair &p : r.locals) {
    if (!p.problem.empty())
      out.add(Level::error, "memory.pair", fmt::format("ranks {} and {}, of one host: {}", p.a, p.b, p.problem),
              "they cannot share memory, and use the network instead");
    else if (p.gbs < kSlower / 2 * best.gbs || p.latency_us > 10 * best.latency + 50)
      out.add(Level::note, "memory.pair_slow",
              fmt::format("ranks {} and {}, of one host: {:.2f} us, {:.2f} GB/s; best pair {:.2f} us, {:.2f} GB/s", p.a, p.b,
                          p.latency_us, p.gbs, best.latency, best.gbs),
              "they are on different sockets, or share a core with other work", "mpirun --map-by core --bind-to core"),
          slow++;
  }
  if (!r.locals.empty() && slow == 0)
    out.ok("memory.pairs",
           fmt::format("{} pairs of ranks of one host: best {:.2f} us, {:.2f} GB/s", r.locals.size(), best.latency, best.gbs));
}

void judge_clocks(const PairsReport &r, Findings &out) {
  const PairResult *worst = nullptr;
  const auto off = [](const PairResult &p) { return std::abs(p.measured->clock_ms) - p.measured->clock_error_ms; }; // surely
  for (const PairResult &p : r.pairs)
    if (p.measured && p.measured->clock_error_ms >= 0 && (!worst || off(p) > off(*worst))) worst = &p;
  if (!worst) return;
  const std::string seen = fmt::format("clocks of {} and {} differ by {:.3f} ms", name_of(r, worst->from),
                                       name_of(r, worst->to), std::abs(worst->measured->clock_ms));
  if (off(*worst) > 5)
    out.add(off(*worst) > 1000 ? Level::warning : Level::note, "clock.offset", seen,
            "lines of logs and records of several hosts are not in their order", "timedatectl set-ntp true, or chrony, on all");
  else
    out.ok("clock.offset", seen + ", the most of all pairs");
}

} // namespace

Findings judge(const PairsReport &r) {
  Findings out;
  merge_findings(r, out);
  compare_facts(r, out);
  compare_addresses(r, out);
  judge_reach(r, out);
  judge_interfaces(r, out);
  judge_mtu(r, out);
  judge_speed(r, out);
  judge_locals(r, out);
  judge_clocks(r, out);
  if (r.done < r.rounds)
    out.add(Level::warning, "pairs.not_all", fmt::format("{} of {} rounds were played in time", r.done, r.rounds),
            "the other pairs are not tested", "a longer --timeout");
  return out;
}

} // namespace tutti::doctor
