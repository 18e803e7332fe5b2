#include "comm/agreement.h"
#include "tutti/tutti.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

constexpr std::string_view kAbsent = "absent";

std::string identity(const Plugin &p) {
  return fmt::format("{} {} (build {:016x})", p.desc->name, p.desc->version, p.fingerprint);
}

template <class Table> void add_all(RankFacts &facts, const Registry &registry, const char *id, std::string_view kind) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto &i : registry.all<Table>(id))
    found.emplace_back(fmt::format("{} \"{}\"", kind, i.table->name), identity(*i.plugin));
  std::sort(found.begin(), found.end()); // directories may list files in any order
  facts.agreed.insert(facts.agreed.end(), found.begin(), found.end());
}

template <class Table> std::string chosen(const Iface<Table> &i) {
  return i ? fmt::format("\"{}\" from {}", i.table->name, identity(*i.plugin)) : std::string("none");
}

void put(Bytes &out, std::string_view text) {
  const auto n = static_cast<uint32_t>(text.size());
  const size_t at = out.size();
  out.resize(at + sizeof n + n);
  std::memcpy(out.data() + at, &n, sizeof n);
  if (n) std::memcpy(out.data() + at + sizeof n, text.data(), n);
}

bool take(std::span<const std::byte> &in, std::string *text) {
  uint32_t n = 0;
  if (in.size() < sizeof n) return false;
  std::memcpy(&n, in.data(), sizeof n);
  if (in.size() - sizeof n < n) return false;
  text->assign(reinterpret_cast<const char *>(in.data() + sizeof n), n);
  in = in.subspan(sizeof n + n);
  return true;
}

// Words of another rank become part of a message, which is one line.
bool take_words(std::span<const std::byte> &in, std::string *text) {
  if (!take(in, text)) return false;
  std::replace_if(
      text->begin(), text->end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return true;
}

std::string_view value_of(const RankFacts &facts, std::string_view thing) {
  for (const auto &[name, value] : facts.agreed)
    if (name == thing) return value;
  return kAbsent;
}

struct Difference {
  std::string_view thing, here, there;
};
constexpr size_t kMostShown = 4;

Status disagreement(int rank, const std::vector<Difference> &all) {
  std::string rest;
  for (size_t i = 1; i < all.size() && i < kMostShown; i++)
    rest += fmt::format("{} {} ({} and {})", i == 1 ? "; also" : ",", all[i].thing, all[i].here, all[i].there);
  if (all.size() > kMostShown) rest += fmt::format(", and {} more", all.size() - kMostShown);
  return fail(Code::invalid_usage, "ranks disagree: {} of rank {} is {}, of rank 0 it is {}{}", all[0].thing, rank, all[0].here,
              all[0].there, rest)
      .peer(rank)
      .phase("agreement")
      .hint("start all ranks with the same library, plugins and settings");
}

} // namespace

Bytes RankFacts::encode() const {
  Bytes out;
  const auto words = cpus.words();
  put(out, {reinterpret_cast<const char *>(words.data()), words.size_bytes()});
  put(out, {reinterpret_cast<const char *>(&machine), sizeof machine});
  put(out, machine_error);
  for (const auto &[thing, value] : agreed) {
    put(out, thing);
    put(out, value);
  }
  return out;
}

Result<RankFacts> RankFacts::decode(std::span<const std::byte> data) {
  RankFacts facts;
  std::string a, b;
  if (!take(data, &a) || a.size() % 8) return fail(Code::internal, "facts of a rank cannot be read");
  std::vector<uint64_t> words(a.size() / 8);
  if (!words.empty()) std::memcpy(words.data(), a.data(), a.size());
  facts.cpus = CpuSet::from_words(words);
  if (!take(data, &a) || a.size() != sizeof facts.machine || !take_words(data, &facts.machine_error))
    return fail(Code::internal, "facts of a rank cannot be read");
  std::memcpy(&facts.machine, a.data(), sizeof facts.machine);
  while (!data.empty()) {
    if (!take_words(data, &a) || !take_words(data, &b)) return fail(Code::internal, "facts of a rank cannot be read");
    facts.agreed.emplace_back(std::move(a), std::move(b));
  }
  return facts;
}

RankFacts make_facts(const Config &config, const Registry &registry, Iface<tutti_tuner_v1> tuner, Iface<tutti_net_v1> net) {
  RankFacts facts;
  facts.cpus = CpuSet::of_this_process();
  facts.agreed.emplace_back("library version", fmt::format("{}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH));
  // Before what follows from them.
  const std::string text = config.agreement_text();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (const size_t eq = line.find('='); eq != std::string::npos)
      facts.agreed.emplace_back("setting " + line.substr(0, eq), "\"" + line.substr(eq + 1) + "\"");
  }
  add_all<tutti_algo_v1>(facts, registry, TUTTI_ALGO, "algorithm");
  add_all<tutti_proto_v1>(facts, registry, TUTTI_PROTO, "protocol");
  facts.agreed.emplace_back("tuner", chosen(tuner));
  facts.agreed.emplace_back("network", chosen(net));
  return facts;
}

Status compare_facts(const RankFacts &first, int rank, const RankFacts &other) {
  if (other.agreed == first.agreed) return {};
  std::vector<Difference> all;
  for (const auto &[thing, value] : other.agreed)
    if (const auto his = value_of(first, thing); his != value) all.push_back({thing, value, his});
  for (const auto &[thing, value] : first.agreed)
    if (value_of(other, thing) == kAbsent && value != kAbsent) all.push_back({thing, kAbsent, value});
  return all.empty() ? Status() : disagreement(rank, all);
}

} // namespace tutti
