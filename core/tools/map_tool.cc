// `tutti map`: puts the files of ranks together, prints, draws, or writes them as one.
#include "base/file.h"
#include "bootstrap/wire.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "tools/map_svg.h"
#include <algorithm>
#include <cstdio>

namespace tutti::tools {
namespace commmap {
namespace {

constexpr size_t kMostBytes = 64 << 20; // of thousands of ranks

constexpr int kMostColumns = 16; // ranks, for a table on a terminal
constexpr size_t kPairsShown = 16;

std::string table(const Comm &c, const Pairs &pairs) {
  std::string out = "  bytes from (row) to (column)\n  from";
  for (int to = 0; to < c.nranks; to++) out += fmt::format(" {:>6}", to);
  out += fmt::format(" {:>8}\n", "sent");
  const auto sent = pairs.sent(), received = pairs.received();
  for (int from = 0; from < c.nranks; from++) {
    out += fmt::format("  {:>4}", from);
    for (int to = 0; to < c.nranks; to++) {
      const auto at = pairs.cells().find({from, to});
      out += fmt::format(" {:>6}", at == pairs.cells().end() ? "." : bytes_text(static_cast<double>(at->second.bytes)));
    }
    out += fmt::format(" {:>8}\n", bytes_text(static_cast<double>(sent[static_cast<size_t>(from)])));
  }
  out += "  recv";
  for (const uint64_t b : received) out += fmt::format(" {:>6}", bytes_text(static_cast<double>(b)));
  return out + "\n";
}

std::string busiest(const Pairs &pairs) {
  std::vector<std::pair<std::pair<int, int>, Counts>> all(pairs.cells().begin(), pairs.cells().end());
  std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.second.bytes > b.second.bytes; });
  std::string out = "  the busiest pairs\n";
  for (size_t i = 0; i < std::min(all.size(), kPairsShown); i++)
    out += fmt::format("  rank {:>5} -> {:>5}  {:>15} bytes  {:>9} messages\n", all[i].first.first, all[i].first.second,
                       all[i].second.bytes, all[i].second.messages);
  if (all.size() > kPairsShown) out += fmt::format("  and {} more\n", all.size() - kPairsShown);
  return out;
}

// What the receivers counted, by what carried it.
std::string carriers(const Comm &c) {
  std::map<std::string, Counts> by;
  for (const auto &[rank, part] : c.ranks)
    for (const Link &l : part.links)
      if (!l.sending) by[fmt::format("{}: {}", l.transport, l.proto)] += l.counts;
  std::string out;
  for (const auto &[name, n] : by) {
    out += fmt::format("  {:<16} {:>15} bytes  {:>9} messages  {:>15} on the wire", name, n.bytes, n.messages, n.wire_bytes);
    out += n.lent_bytes ? fmt::format(", {} read where they were\n", n.lent_bytes) : "\n";
  }
  return out;
}

std::string ratio_text(const char *what, const Imbalance &i) {
  if (i.most < 0) return fmt::format("{} nothing", what);
  const std::string who = i.to < 0 ? fmt::format("rank {}", i.most) : fmt::format("{} -> {}", i.most, i.to);
  return fmt::format("{} {:.2f} ({}: {})", what, i.ratio, who, bytes_text(static_cast<double>(i.bytes)));
}

std::string comm_text(const Comm &c) {
  const Pairs pairs(c);
  std::vector<std::string> hosts;
  std::string ends;
  for (const auto &[rank, part] : c.ranks) {
    if (std::find(hosts.begin(), hosts.end(), part.host) == hosts.end()) hosts.push_back(part.host);
    if (part.state == "failed") ends += fmt::format("  rank {} failed: {}\n", rank, part.error);
  }
  std::string out =
      fmt::format("communicator {}{}: {} ranks on {} host{}\n", c.id, c.name.empty() ? "" : fmt::format(" \"{}\"", c.name),
                  c.nranks, hosts.size(), hosts.size() == 1 ? "" : "s");
  if (const auto lost = missing(c); !lost.empty())
    out += fmt::format("  no file of rank {}\n", boot::list_ranks(lost, lost.size()));
  out += ends;
  if (pairs.unequal())
    out += fmt::format("  {} pairs whose ends have counted differently: on its way when the run ended, or lost\n",
                       pairs.unequal());
  if (pairs.cells().empty()) return out + "  nothing moved\n";
  out += c.nranks <= kMostColumns ? table(c, pairs) : busiest(pairs);
  out += fmt::format("  largest over mean: {}, {}, {}\n", ratio_text("sent", imbalance(pairs.sent())),
                     ratio_text("received", imbalance(pairs.received())), ratio_text("pairs", imbalance(pairs)));
  return out + carriers(c);
}

Result<Map> read_all(const std::vector<std::string> &files) {
  Map map;
  for (const std::string &path : files) {
    TUTTI_ASSIGN(text, read_file(path, kMostBytes));
    TUTTI_ASSIGN(one, parse(text, path));
    TUTTI_TRY(merge(map, std::move(one), path));
  }
  return map;
}

Status save(const std::string &path, const std::string &text) {
  if (path != "-") return replace_file(path, text);
  fmt::print("{}", text);
  return {};
}

struct Options {
  std::vector<std::string> files;
  std::string svg, json, comm, title = "communication map";
};

Status show(const Options &o) {
  TUTTI_ASSIGN(map, read_all(o.files));
  if (!o.comm.empty()) {
    const Map all = map;
    std::erase_if(map, [&](const Comm &c) { return c.id != o.comm && c.name != o.comm; });
    std::string ids;
    for (const Comm &c : all) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", c.id);
    if (map.empty()) return fail(Code::invalid_argument, "--comm {}: no such communicator; {}", o.comm, ids);
  }
  if (!o.json.empty()) TUTTI_TRY(save(o.json, to_json(map)));
  if (!o.svg.empty()) {
    TUTTI_ASSIGN(drawn, draw(map, o.title));
    TUTTI_TRY(save(o.svg, drawn));
  }
  if (o.json.empty() && o.svg.empty()) fmt::print("{}", as_text(map));
  return {};
}

} // namespace

std::string as_text(const Map &map) {
  std::string out;
  for (const Comm &c : map) out += (out.empty() ? "" : "\n") + comm_text(c);
  return out;
}

Status write(const Map &map, const std::string &path, std::string_view title) {
  if (path.ends_with(".json")) return save(path, to_json(map));
  TUTTI_ASSIGN(drawn, draw(map, title));
  return save(path, drawn);
}

} // namespace commmap

int map_main(int argc, char **argv) {
  commmap::Options o;
  CLI::App app(
      "Shows what ranks have sent to each other, from the files that TUTTI_COMM_MAP_FILE had them write: a table and the\n"
      "imbalance, or a heat map",
      "tutti map");
  app.formatter(std::make_shared<HelpText>());
  app.add_option("FILES", o.files, "files of ranks, or of whole jobs as --json writes them")->required();
  app.add_option("--svg", o.svg, "draw a heat map to FILE (\"-\" = standard output)")->type_name("FILE");
  app.add_option("--json", o.json, "write all of it to FILE, which can be read again")->type_name("FILE");
  app.add_option("--comm", o.comm, "only the communicator with this id or name")->type_name("ID");
  app.add_option("--title", o.title, "of the heat map")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }
  const Status s = commmap::show(o);
  if (s.ok()) return kOk;
  print_error("map: " + s.error().message);
  return kFailed;
}

} // namespace tutti::tools
