// What the rules of this host's firewall drop, from `nft list ruleset` or `iptables-save`.
#include "tools/doctor/host.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

namespace tutti::doctor {
namespace {

struct Rules {
  std::vector<std::string> closed;  // chains of input or output whose policy is to drop
  std::vector<std::string> refuses; // rules that drop or reject new connections
};

bool word(std::string_view line, std::string_view what) {
  const auto parts = words(line);
  return std::find(parts.begin(), parts.end(), what) != parts.end();
}

// Rules about what is no new connection of ours: another protocol, another interface, packets that are damaged. Looked at is
// what they match, not how they answer.
bool harmless(const std::string &line) {
  const std::string match =
      line.substr(0, std::min({line.find(" reject"), line.find(" REJECT"), line.find(" drop"), line.find(" DROP")}));
  for (std::string_view text : {"invalid", "icmp", "INVALID", "limit rate", "iif lo", "iif \"lo\"", "iifname \"lo\"", "-i lo",
                                "fib daddr", "--uid-owner"})
    if (match.find(text) != match.npos) return true;
  return match.find("udp") != match.npos && match.find("tcp") == match.npos && match.find("4791") == match.npos; // RoCE v2
}

Rules read_nft(const std::string &text) {
  Rules out;
  std::istringstream in(text);
  std::string chain, table;
  bool ours = false; // the chain is on the way in or out
  for (std::string line; std::getline(in, line);) {
    const auto w = words(line);
    if (w.size() >= 3 && w[0] == "table") table = w[1] + " " + w[2];
    if (w.size() >= 2 && w[0] == "chain")
      chain = fmt::format("{} {}", table, w[1]), ours = true; // jumped to, unless a hook says otherwise
    const size_t hook = line.find(" hook ");
    if (hook != line.npos) {
      const auto after = words(std::string_view(line).substr(hook + 6));
      ours =
          !after.empty() && (after[0] == "input" || after[0] == "output" || after[0] == "ingress" || after[0] == "prerouting");
      if (ours && line.find("policy drop") != line.npos) out.closed.push_back(chain);
      continue;
    }
    if (ours && (word(line, "drop") || word(line, "reject")) && !harmless(line))
      out.refuses.push_back(fmt::format("{}: {}", chain, trimmed(line)));
  }
  return out;
}

Rules read_iptables(const std::string &text) {
  Rules out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto w = words(line);
    if (w.size() >= 2 && (w[0] == ":INPUT" || w[0] == ":OUTPUT") && w[1] == "DROP") out.closed.push_back(w[0].substr(1));
    if (w.size() >= 2 && w[0] == "-A" && w[1] != "FORWARD" && !w[1].starts_with("DOCKER") &&
        (word(line, "DROP") || word(line, "REJECT")) && !harmless(line))
      out.refuses.push_back(line);
  }
  return out;
}

} // namespace

void check_firewall(const Host &host, const Job &job, Findings &out) {
  const std::string range = host.config ? host.config->text("socket.port_range") : "0";
  const bool confined = range != "0" && !range.empty();
  const std::string fix = fmt::format(
      "let TCP through between the hosts of the job: nft insert rule inet filter input ip saddr SUBNET tcp dport {} accept{}",
      confined ? range : "1024-65535", confined ? "" : "; TUTTI_SOCKET_PORT_RANGE=LOW-HIGH confines listeners to fewer ports");
  if (host.firewall.empty())
    return out.add(
        Level::ok, "firewall.rules",
        fmt::format("firewall rules: {}", host.firewall_problem.empty() ? "none" : "not readable: " + host.firewall_problem));
  const Rules rules = host.firewall_from.starts_with("nft") ? read_nft(host.firewall) : read_iptables(host.firewall);
  if (rules.closed.empty() && rules.refuses.empty())
    return out.ok("firewall.rules", fmt::format("firewall rules ({}): none that refuses connections", host.firewall_from));
  const Level level = job.hosts > 1 ? Level::warning : Level::note;
  const std::string why =
      "connections between ranks that it drops time out, those that it rejects are refused; tutti doctor --hosts tests which";
  if (!rules.closed.empty())
    out.add(level, "firewall.policy", fmt::format("policy drop ({}): {}", host.firewall_from, fmt::join(rules.closed, ", ")),
            why, fix);
  if (!rules.refuses.empty()) {
    const size_t shown = std::min<size_t>(rules.refuses.size(), 4);
    out.add(level, "firewall.refuses",
            fmt::format("{} rule{} refuse{} connections ({}): {}{}", rules.refuses.size(), rules.refuses.size() == 1 ? "" : "s",
                        rules.refuses.size() == 1 ? "s" : "", host.firewall_from,
                        fmt::join(rules.refuses.begin(), rules.refuses.begin() + static_cast<long>(shown), "; "),
                        rules.refuses.size() > shown ? "; ..." : ""),
            why, fix);
  }
}

} // namespace tutti::doctor
