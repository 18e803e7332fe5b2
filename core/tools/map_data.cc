#include "tools/map_data.h"
#include "ras/json_reader.h"
#include <algorithm>

namespace tutti::tools::commmap {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

class Reader : private ras::JsonReader {
public:
  using JsonReader::JsonReader;

  Result<Map> read(const json &all) {
    if (!all.is_object() || text(all, "format", "file") != "tutti-map") return bad("file", "is no communication map");
    if (const int64_t v = number(all, "version", 1, INT32_MAX, "file"); v != 1)
      return bad("file", fmt::format("has version {}, this tool reads 1", v));
    Map map;
    for (const json &c : needed(all, "communicators", "file")) map.push_back(comm(c));
    if (!error().ok()) return error();
    std::sort(map.begin(), map.end(), [](const Comm &a, const Comm &b) { return a.id < b.id; });
    for (size_t i = 1; i < map.size(); i++)
      if (map[i].id == map[i - 1].id) return bad("communicators", fmt::format("has {} twice", map[i].id));
    return map;
  }

private:
  const json::array_t &needed(const json &j, const char *key, const std::string &where) {
    (void)member(j, key, where);
    return list(j, key, where);
  }

  Comm comm(const json &j) {
    Comm c;
    c.id = text(j, "id", "communicator");
    const std::string where = "communicator " + c.id;
    c.name = text(j, "name", where);
    c.nranks = static_cast<int>(number(j, "nranks", 1, kMostRanks, where));
    for (const json &r : needed(j, "ranks", where)) {
      const int rank = static_cast<int>(number(r, "rank", 0, c.nranks - 1, where));
      if (!c.ranks.emplace(rank, part(r, c.nranks, fmt::format("{} rank {}", where, rank))).second)
        (void)bad(where, fmt::format("has rank {} twice", rank));
    }
    return c;
  }
  RankPart part(const json &j, int nranks, const std::string &where) {
    RankPart p;
    p.host = text(j, "host", where);
    p.state = text(j, "state", where);
    if (j.is_object() && j.contains("error")) p.error = text(j, "error", where);
    p.pid = number(j, "pid", 0, INT64_MAX, where);
    p.operations = count(j, "operations", where);
    for (const json &l : needed(j, "links", where)) p.links.push_back(link(l, nranks, where));
    return p;
  }
  Link link(const json &j, int nranks, const std::string &where) {
    Link l;
    l.peer = static_cast<int>(number(j, "peer", 0, nranks - 1, where));
    l.conn = static_cast<uint32_t>(number(j, "conn", 0, UINT16_MAX, where));
    l.readers = static_cast<uint32_t>(count(j, "readers", where));
    const std::string direction = text(j, "direction", where);
    l.sending = direction == "send";
    if (!l.sending && direction != "recv") (void)bad(where, fmt::format("has a direction \"{}\"; send or recv", direction));
    l.transport = text(j, "transport", where);
    l.proto = text(j, "proto", where);
    l.counts = {count(j, "messages", where), count(j, "bytes", where), count(j, "wire_bytes", where),
                count(j, "lent_bytes", where)};
    return l;
  }
};

ordered_json link_json(const Link &l) {
  ordered_json j{{"peer", l.peer},
                 {"conn", l.conn},
                 {"direction", l.sending ? "send" : "recv"},
                 {"transport", l.transport},
                 {"proto", l.proto},
                 {"messages", l.counts.messages},
                 {"bytes", l.counts.bytes},
                 {"wire_bytes", l.counts.wire_bytes}};
  if (l.counts.lent_bytes) j["lent_bytes"] = l.counts.lent_bytes;
  if (l.readers) j["readers"] = l.readers;
  return j;
}

ordered_json pairs_json(const Pairs &pairs) {
  ordered_json out = ordered_json::array();
  for (const auto &[pair, c] : pairs.cells())
    out.push_back({{"from", pair.first},
                   {"to", pair.second},
                   {"messages", c.messages},
                   {"bytes", c.bytes},
                   {"wire_bytes", c.wire_bytes}});
  return out;
}

ordered_json comm_json(const Comm &c) {
  ordered_json ranks = ordered_json::array();
  for (const auto &[rank, p] : c.ranks) {
    ordered_json j{{"rank", rank}, {"host", p.host}, {"pid", p.pid}, {"operations", p.operations}, {"state", p.state}};
    if (!p.error.empty()) j["error"] = p.error;
    j["links"] = ordered_json::array();
    for (const Link &l : p.links) j["links"].push_back(link_json(l));
    ranks.push_back(std::move(j));
  }
  const Pairs pairs(c);
  return {{"id", c.id},
          {"name", c.name},
          {"nranks", c.nranks},
          {"ranks", std::move(ranks)},
          {"missing", missing(c)},
          {"pairs", pairs_json(pairs)},
          {"imbalance",
           {{"sent", imbalance(pairs.sent()).ratio},
            {"received", imbalance(pairs.received()).ratio},
            {"pairs", imbalance(pairs).ratio}}}};
}

} // namespace

Counts &Counts::operator+=(const Counts &o) {
  messages += o.messages;
  bytes += o.bytes;
  wire_bytes += o.wire_bytes;
  lent_bytes += o.lent_bytes;
  return *this;
}
Counts &Counts::operator-=(const Counts &o) {
  messages -= o.messages;
  bytes -= o.bytes;
  wire_bytes -= o.wire_bytes;
  lent_bytes -= o.lent_bytes;
  return *this;
}

bool Link::same_link(const Link &o) const {
  return peer == o.peer && conn == o.conn && sending == o.sending && readers == o.readers && proto == o.proto;
}

Result<Map> parse(std::string_view text, const std::string &origin) {
  const json all = json::parse(text, nullptr, false);
  if (all.is_discarded()) return fail(Code::invalid_argument, "{}: is no JSON, or cut off", origin);
  return Reader(origin).read(all);
}

Status merge(Map &map, Map other, const std::string &origin) {
  for (Comm &c : other) {
    const auto at =
        std::lower_bound(map.begin(), map.end(), c.id, [](const Comm &a, const std::string &id) { return a.id < id; });
    if (at == map.end() || at->id != c.id) {
      map.insert(at, std::move(c));
      continue;
    }
    if (at->nranks != c.nranks)
      return fail(Code::invalid_argument, "{}: communicator {} has {} ranks here and {} elsewhere", origin, c.id, c.nranks,
                  at->nranks);
    for (auto &[rank, part] : c.ranks) {
      const auto [known, fresh] = at->ranks.try_emplace(rank, part);
      if (!fresh && !(known->second == part))
        return fail(Code::invalid_argument, "{}: rank {} of communicator {} was in another file already, with other counts",
                    origin, rank, c.id);
    }
  }
  return {};
}

std::string to_json(const Map &map) {
  ordered_json out{{"format", "tutti-map"}, {"version", 1}, {"communicators", ordered_json::array()}};
  for (const Comm &c : map) out["communicators"].push_back(comm_json(c));
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void subtract(RankPart &after, const RankPart &before) {
  after.operations -= before.operations;
  for (const Link &b : before.links)
    for (Link &a : after.links)
      if (a.same_link(b)) a.counts -= b.counts;
  std::erase_if(after.links, [](const Link &l) { return l.counts.messages == 0; });
}

void add(RankPart &sum, const RankPart &part) {
  sum.host = part.host, sum.state = part.state, sum.error = part.error, sum.pid = part.pid;
  sum.operations += part.operations;
  for (const Link &p : part.links) {
    const auto at = std::find_if(sum.links.begin(), sum.links.end(), [&](const Link &l) { return l.same_link(p); });
    if (at == sum.links.end())
      sum.links.push_back(p);
    else
      at->counts += p.counts;
  }
}

Pairs::Pairs(const Comm &c) : n_(c.nranks) {
  Cells told; // by the senders
  for (const auto &[rank, part] : c.ranks)
    for (const Link &l : part.links) {
      if (!l.sending) {
        cells_[{l.peer, rank}] += l.counts;
      } else if (l.readers) {
        written_once_ += l.counts.bytes;
        for (int to = 0; to < n_; to++)
          if (to != rank) told[{rank, to}] += l.counts;
      } else {
        told[{rank, l.peer}] += l.counts;
      }
    }
  const auto has = [&](int rank) { return c.ranks.count(rank) != 0; };
  for (const auto &[pair, counts] : told) {
    if (!has(pair.second))
      cells_[pair] = counts;
    else if (const auto got = cells_.find(pair); got == cells_.end() || got->second.bytes != counts.bytes)
      unequal_++;
  }
  for (const auto &[pair, counts] : cells_)
    if (has(pair.first) && has(pair.second) && !told.count(pair)) unequal_++;
}

std::vector<uint64_t> Pairs::sent() const {
  std::vector<uint64_t> sum(static_cast<size_t>(n_));
  for (const auto &[pair, counts] : cells_) sum[static_cast<size_t>(pair.first)] += counts.bytes;
  return sum;
}
std::vector<uint64_t> Pairs::received() const {
  std::vector<uint64_t> sum(static_cast<size_t>(n_));
  for (const auto &[pair, counts] : cells_) sum[static_cast<size_t>(pair.second)] += counts.bytes;
  return sum;
}

Imbalance imbalance(const std::vector<uint64_t> &by_rank) {
  Imbalance out;
  double sum = 0;
  for (size_t r = 0; r < by_rank.size(); r++) {
    sum += static_cast<double>(by_rank[r]);
    if (by_rank[r] > out.bytes) out.bytes = by_rank[r], out.most = static_cast<int>(r);
  }
  if (sum > 0) out.ratio = static_cast<double>(out.bytes) * static_cast<double>(by_rank.size()) / sum;
  return out;
}

Imbalance imbalance(const Pairs &pairs) {
  Imbalance out;
  double sum = 0;
  for (const auto &[pair, counts] : pairs.cells()) {
    sum += static_cast<double>(counts.bytes);
    if (counts.bytes > out.bytes) out = {0, pair.first, pair.second, counts.bytes};
  }
  const double count = static_cast<double>(pairs.n()) * (pairs.n() - 1);
  if (sum > 0) out.ratio = static_cast<double>(out.bytes) * count / sum;
  return out;
}

std::vector<int> missing(const Comm &c) {
  std::vector<int> out;
  for (int r = 0; r < c.nranks; r++)
    if (!c.ranks.count(r)) out.push_back(r);
  return out;
}

std::vector<int> by_host(const Comm &c) {
  std::vector<std::string> hosts;
  std::map<std::string, std::vector<int>> ranks;
  for (const auto &[rank, part] : c.ranks) {
    auto &list = ranks[part.host];
    if (list.empty()) hosts.push_back(part.host);
    list.push_back(rank);
  }
  std::vector<int> out;
  for (const std::string &h : hosts) out.insert(out.end(), ranks[h].begin(), ranks[h].end());
  const std::vector<int> rest = missing(c);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

std::string bytes_text(double bytes) {
  constexpr std::string_view kUnits[] = {"", "K", "M", "G", "T", "P"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) bytes /= 1024, unit++;
  if (unit == 0) return fmt::format("{:.0f}", bytes);
  return fmt::format("{:.{}f}{}", bytes, bytes < 9.995 ? 2 : bytes < 99.95 ? 1 : 0, kUnits[unit]);
}

} // namespace tutti::tools::commmap
