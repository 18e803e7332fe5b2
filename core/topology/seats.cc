#include "topology/seats.h"
#include <algorithm>
#include <cctype>
#include <map>

namespace tutti {
namespace {

// CPUs of a mask as in the kernel's files: "00000000,0000ff01".
std::vector<uint64_t> mask_words(std::string_view mask) {
  std::vector<uint64_t> words;
  size_t bit = 0;
  for (auto c = mask.rbegin(); c != mask.rend(); ++c) {
    const size_t value = std::string_view("0123456789abcdef").find(static_cast<char>(std::tolower(*c)));
    if (value > 15) continue;
    if (bit % 64 == 0) words.push_back(0);
    words.back() |= static_cast<uint64_t>(value) << bit % 64;
    bit += 4;
  }
  return words;
}

int common(const std::vector<uint64_t> &mask, const CpuSet &cpus) {
  int n = 0;
  for (size_t i = 0; i < std::min(mask.size(), cpus.words().size()); i++) n += std::popcount(mask[i] & cpus.words()[i]);
  return n;
}

// The NUMA node with most of the CPUs; -1 where it is not one alone.
int node_of_cpus(const Machine &m, const CpuSet &cpus) {
  int best = -1, most = 0;
  bool alone = false;
  for (int cpu : m.of_kind(NodeKind::cpu)) {
    const int n = common(mask_words(m.node(cpu).affinity), cpus);
    if (n == 0 || n < most) continue;
    alone = n > most;
    best = cpu;
    most = n;
  }
  return alone ? best : -1;
}

Result<int> seat_of(const Machine &m, const ClusterInput &input, int rank, bool on_cpus) {
  const ClusterInput::Rank &r = input.ranks[static_cast<size_t>(rank)];
  if (r.seat.kind == Seat::Kind::unknown) return -1;
  if (r.seat.kind == Seat::Kind::cpus) return node_of_cpus(m, r.seat.cpus);
  const NodeKind kind = r.seat.kind == Seat::Kind::gpu ? NodeKind::gpu : NodeKind::cpu;
  std::string there;
  for (int node : m.of_kind(kind)) {
    if (m.node(node).number == r.seat.number) return on_cpus ? m.cpu_of(node) : node;
    there += fmt::format("{}{}", there.empty() ? "" : ", ", m.node(node).number);
  }
  return fail(Code::invalid_argument, "rank {}: its host has no {} {}; it has {}", rank,
              kind == NodeKind::gpu ? "GPU" : "NUMA node", r.seat.number, there.empty() ? "none" : there);
}

// Those whose place is not known, in blocks over the candidates.
void deal(const Machine &m, const std::vector<int> &ranks, bool on_cpus, std::vector<int> *places) {
  const std::vector<int> candidates = on_cpus ? m.of_kind(NodeKind::cpu) : m.places();
  const size_t n = ranks.size(), p = candidates.size();
  for (size_t i = 0; i < n; i++)
    if ((*places)[i] < 0) (*places)[i] = candidates[n <= p ? i : i * p / n];
}

Status seat_host(const ClusterInput &input, const std::vector<int> &ranks, SeatedHost *host) {
  const Machine &m = input.machines[static_cast<size_t>(host->machine)];
  const bool on_cpus = std::any_of(ranks.begin(), ranks.end(), [&](int r) {
    const Seat::Kind kind = input.ranks[static_cast<size_t>(r)].seat.kind;
    return kind == Seat::Kind::numa || kind == Seat::Kind::cpus;
  });
  if (m.of_kind(NodeKind::cpu).empty()) return fail(Code::invalid_argument, "a machine without a processor");
  std::vector<int> places;
  for (int r : ranks) {
    TUTTI_ASSIGN(place, seat_of(m, input, r, on_cpus));
    places.push_back(place);
  }
  deal(m, ranks, on_cpus, &places);
  std::map<std::pair<int, int>, std::vector<int>> by_place; // by number, as Machine::places() has them
  for (size_t i = 0; i < ranks.size(); i++) by_place[{m.node(places[i]).number, places[i]}].push_back(ranks[i]);
  for (auto &[place, of_place] : by_place) {
    host->places.push_back(place.second);
    host->ranks.push_back(std::move(of_place));
  }
  host->first_rank = ranks.front();
  return {};
}

} // namespace

Result<std::vector<SeatedHost>> seat_ranks(const ClusterInput &input) {
  std::vector<std::vector<int>> ranks(input.hosts.size());
  for (size_t r = 0; r < input.ranks.size(); r++) {
    const auto host = static_cast<size_t>(input.ranks[r].host);
    if (host >= ranks.size())
      return fail(Code::invalid_argument, "rank {}: host {} of {}", r, input.ranks[r].host, ranks.size());
    ranks[host].push_back(static_cast<int>(r));
  }
  std::map<std::vector<std::byte>, int> known;
  std::vector<int> same; // of each machine, the first that is equal
  for (size_t m = 0; m < input.machines.size(); m++)
    same.push_back(known.try_emplace(encode_machine(input.machines[m]), static_cast<int>(m)).first->second);
  std::vector<SeatedHost> hosts;
  for (size_t h = 0; h < ranks.size(); h++) {
    const auto machine = static_cast<size_t>(input.hosts[h].machine);
    if (machine >= same.size())
      return fail(Code::invalid_argument, "host {}: machine {} of {}", h, input.hosts[h].machine, same.size());
    if (ranks[h].empty()) return fail(Code::invalid_argument, "host {} has no rank", h);
    hosts.push_back({.machine = same[machine]});
    TUTTI_TRY(seat_host(input, ranks[h], &hosts.back()));
  }
  if (hosts.empty()) return fail(Code::invalid_argument, "no host");
  return hosts;
}

} // namespace tutti
