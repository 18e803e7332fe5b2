// The CSV that tuners of the field read, in two shapes, told apart by the header, which the first may lack:
//   collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks[,pipeOps[,regBuff]]   a rule a line, the first wins
//   collective,size_bytes,algorithm,protocol,channels,nodes,ranks,...,cost_metric,latency_us     a measurement a line
// '#' starts a comment, -1 leaves a column open. A row that asks for something which this library does not have is skipped with
// a warning; what cannot be read is an error.
#include "names.h"
#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

namespace tuner {
namespace {

using tutti::plugin::fail;
using tutti::plugin::text;

constexpr std::string_view kTheirColls[] = {"allreduce", "reduce", "broadcast", "allgather", "reducescatter"}; // as tutti_coll
constexpr std::string_view kElsewhere[] = {"nvls", "nvls_tree"};

enum Column {
  coll,
  size,
  min_bytes,
  max_bytes,
  algo,
  proto,
  channels,
  nodes,
  ranks,
  pipe_ops,
  reg_buff,
  cost,
  latency,
  kColumns
};
constexpr std::string_view kShown[kColumns] = {"collective", "size_bytes",  "min_bytes", "max_bytes", "algorithm",
                                               "protocol",   "channels",    "nodes",     "ranks",     "pipeOps",
                                               "regBuff",    "cost_metric", "latency_us"};
constexpr struct {
  std::string_view name;
  int column; // -1: nothing of ours
} kHeaders[] = {{"collective", coll},     {"collective_type", coll}, {"size_bytes", size},  {"min_bytes", min_bytes},
                {"max_bytes", max_bytes}, {"algorithm", algo},       {"protocol", proto},   {"channels", channels},
                {"nodes", nodes},         {"nNodes", nodes},         {"ranks", ranks},      {"nRanks", ranks},
                {"pipeOps", pipe_ops},    {"numPipeOps", pipe_ops},  {"regBuff", reg_buff}, {"cost_metric", cost},
                {"latency_us", latency},  {"bandwidth_gbps", -1}};
constexpr Column kUnnamed[] = {coll, min_bytes, max_bytes, algo, proto, channels, nodes, ranks, pipe_ops, reg_buff};
constexpr size_t kFewest = 8;

std::vector<std::string_view> split(std::string_view s) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= s.size();) {
    const size_t end = std::min(s.find(',', at), s.size());
    out.push_back(trimmed(s.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

std::string quoted(std::string_view s) {
  std::string out(s.substr(0, 80));
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return '"' + out + '"';
}

struct Sample { // a line of the second shape
  uint64_t bytes;
  double cost;
  std::optional<double> us;
  int line;
  Way way;
};
struct Place { // what it was measured on
  uint32_t colls;
  Range hosts, ranks;
  bool operator==(const Place &o) const {
    return colls == o.colls && hosts.min == o.hosts.min && hosts.max == o.hosts.max && ranks.min == o.ranks.min &&
           ranks.max == o.ranks.max;
  }
};

class Reader {
public:
  Reader(const std::string &source, Table &out)
      : source_(source), out_(out), order_(std::begin(kUnnamed), std::end(kUnnamed)) {}

  void line(std::string_view row, int number) {
    line_ = number;
    if (++rows_ > kMostRules) bad("more than ", kMostRules, " rows");
    const auto cells = split(row);
    if (first_ && (cells[0] == "collective" || cells[0] == "collective_type"))
      header(cells);
    else
      values(cells);
    first_ = false;
  }

  // Each measured size speaks for sizes up to the geometric mean with its neighbours.
  void finish() {
    for (auto &[place, samples] : measured_) {
      std::stable_sort(samples.begin(), samples.end(), [](const Sample &a, const Sample &b) {
        return a.bytes != b.bytes ? a.bytes < b.bytes : a.cost < b.cost;
      });
      uint64_t from = 0;
      for (size_t i = 0; i < samples.size();) {
        size_t end = i;
        while (end < samples.size() && samples[end].bytes == samples[i].bytes) end++;
        Rule r = rule_of(place, {samples.data() + i, end - i});
        r.min_bytes = from;
        if (end < samples.size())
          r.max_bytes = static_cast<uint64_t>(std::sqrt(static_cast<double>(samples[i].bytes)) *
                                              std::sqrt(static_cast<double>(samples[end].bytes)));
        from = r.max_bytes + 1;
        out_.rules.push_back(std::move(r));
        i = end;
      }
    }
  }

private:
  template <class... Parts> [[noreturn]] void bad(const Parts &...parts) const {
    fail(TUTTI_ERR_INVALID, source_, ":", line_, ": ", parts...);
  }
  template <class... Parts> void skip(const Parts &...parts) {
    out_.warnings.push_back(text(source_, ":", line_, ": ", parts..., "; the row is skipped"));
  }

  void header(const std::vector<std::string_view> &cells) {
    order_.clear();
    for (auto name : cells) {
      const auto hit = std::find_if(std::begin(kHeaders), std::end(kHeaders), [&](const auto &h) { return h.name == name; });
      if (hit == std::end(kHeaders)) bad("unknown column ", quoted(name), "; known: ", joined(kShown), ", bandwidth_gbps");
      if (hit->column >= 0 && std::find(order_.begin(), order_.end(), hit->column) != order_.end())
        bad("column ", quoted(name), " twice");
      order_.push_back(hit->column);
    }
    const auto has = [&](Column c) { return std::find(order_.begin(), order_.end(), c) != order_.end(); };
    samples_ = has(size);
    for (Column c : {coll, algo, proto, channels, nodes, ranks})
      if (!has(c)) bad("column ", kShown[c], " is missing");
    if (!samples_ && (!has(min_bytes) || !has(max_bytes))) bad("columns min_bytes and max_bytes, or size_bytes, are missing");
    if (samples_ && !has(cost) && !has(latency))
      bad("column latency_us or cost_metric is missing: nothing says which way is best");
    fewest_ = order_.size();
  }

  std::optional<std::string_view> cell(const std::vector<std::string_view> &cells, Column c) const {
    const auto at = static_cast<size_t>(std::find(order_.begin(), order_.end(), c) - order_.begin());
    return at < cells.size() ? std::optional(cells[at]) : std::nullopt;
  }
  [[noreturn]] void bad_cell(Column c, std::string_view value, std::string_view allowed) const {
    bad(kShown[c], " ", quoted(value), " is not valid; allowed: ", allowed);
  }
  // Nothing for -1 and for a column that the row lacks.
  std::optional<int64_t> number(const std::vector<std::string_view> &cells, Column c, int64_t min, int64_t max) const {
    const auto value = cell(cells, c);
    if (!value) return std::nullopt;
    const auto n = parse_integer(*value);
    if (n == -1) return std::nullopt;
    if (!n || *n < min || *n > max) bad_cell(c, *value, text(min, " to ", max, ", or -1 for any"));
    return n;
  }
  uint64_t bytes(const std::vector<std::string_view> &cells, Column c) const {
    const auto n = parse_integer(*cell(cells, c));
    if (!n || *n < 0) bad_cell(c, *cell(cells, c), "a whole number of bytes from 0 up");
    return static_cast<uint64_t>(*n);
  }
  std::optional<double> positive(const std::vector<std::string_view> &cells, Column c) const {
    const auto value = cell(cells, c);
    if (!value) return std::nullopt;
    double out = 0;
    const auto [end, err] = std::from_chars(value->data(), value->data() + value->size(), out);
    if (err != std::errc() || end != value->data() + value->size() || !std::isfinite(out) || out <= 0)
      bad_cell(c, *value, "a number over 0");
    return out;
  }

  // What is in the way of using the row; everything in it has been read, so that errors are found behind it as well.
  std::string against(uint32_t of, std::string_view algorithm, std::optional<int64_t> pipe, std::optional<int64_t> reg) const {
    if (position(kElsewhere, algorithm))
      return text("algorithm ", quoted(algorithm), " needs switches that this library does not drive");
    if (algorithm == "pat" && of != TUTTI_COLL_ALL_GATHER && of != TUTTI_COLL_REDUCE_SCATTER)
      return text("algorithm \"pat\" runs allgather and reducescatter only, not ", kTheirColls[of]);
    if (pipe && *pipe > 1) return text("pipeOps ", *pipe, ": operations of a group are tuned one by one here");
    if (reg == 1) return "regBuff 1: nothing is known of buffers when the table is made, write -1 for all";
    return "";
  }

  void values(const std::vector<std::string_view> &cells) {
    if (cells.size() < fewest_ || cells.size() > order_.size())
      bad(cells.size(), " columns; ", fewest_ == order_.size() ? std::string("the header has ") : text(fewest_, " to "),
          order_.size(),
          fewest_ == order_.size()
              ? ""
              : " are allowed: collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff");
    const std::string_view name = *cell(cells, coll), algorithm = *cell(cells, algo), protocol = *cell(cells, proto);
    const auto of = position(kTheirColls, name);
    if (!of) bad_cell(coll, name, joined(kTheirColls) + did_you_mean(kTheirColls, name));
    if (!position(kAlgos, algorithm) && !position(kElsewhere, algorithm))
      bad_cell(algo, algorithm, joined(kAlgos) + ", " + joined(kElsewhere) + did_you_mean(kAlgos, algorithm));
    if (!position(kProtos, protocol)) bad_cell(proto, protocol, joined(kProtos) + did_you_mean(kProtos, protocol));
    Way way{std::string(algorithm), std::string(protocol), {}, {}};
    if (const auto n = number(cells, channels, 1, 64)) way.geometry.channels = static_cast<uint32_t>(*n);
    const auto range = [&](Column c) {
      const auto n = number(cells, c, 1, INT32_MAX);
      return n ? Range{*n, *n} : Range{};
    };
    const Place place{1u << *of, range(nodes), range(ranks)};
    const std::string why = against(*of, algorithm, number(cells, pipe_ops, 0, INT32_MAX), number(cells, reg_buff, 0, 1));
    if (samples_)
      sample(cells, place, std::move(way), why);
    else
      rule(cells, place, std::move(way), why);
  }

  void rule(const std::vector<std::string_view> &cells, const Place &place, Way way, const std::string &why) {
    Rule r;
    r.min_bytes = bytes(cells, min_bytes);
    r.max_bytes = bytes(cells, max_bytes);
    if (r.min_bytes > r.max_bytes) bad_cell(max_bytes, *cell(cells, max_bytes), text("min_bytes, ", r.min_bytes, ", or more"));
    if (!why.empty()) return skip(why);
    r.colls = place.colls;
    r.hosts = place.hosts;
    r.ranks = place.ranks;
    r.note = text(source_, ":", line_);
    r.ways.push_back(std::move(way));
    out_.rules.push_back(std::move(r));
  }

  void sample(const std::vector<std::string_view> &cells, const Place &place, Way way, const std::string &why) {
    const auto us = positive(cells, latency), metric = positive(cells, cost);
    const Sample s{bytes(cells, size), us ? *us : *metric, us, line_, std::move(way)};
    if (!why.empty()) return skip(why);
    auto hit = std::find_if(measured_.begin(), measured_.end(), [&](const auto &m) { return m.first == place; });
    if (hit == measured_.end()) hit = measured_.insert(measured_.end(), {place, {}});
    hit->second.push_back(s);
  }

  Rule rule_of(const Place &place, std::span<const Sample> best_first) const {
    Rule r;
    r.colls = place.colls;
    r.hosts = place.hosts;
    r.ranks = place.ranks;
    r.note = text(source_, ":", best_first.front().line);
    r.sizes = {best_first.front().bytes};
    for (const Sample &s : best_first) {
      r.ways.push_back(s.way);
      if (s.us) r.ways.back().time_us = {*s.us};
    }
    return r;
  }

  const std::string &source_;
  Table &out_;
  std::vector<int> order_; // column of each cell
  size_t fewest_ = kFewest, rows_ = 0;
  bool first_ = true, samples_ = false;
  int line_ = 0;
  std::vector<std::pair<Place, std::vector<Sample>>> measured_; // in the order of the file
};

} // namespace

Table parse_field_csv(std::string_view file, const std::string &source) {
  Table out;
  Reader reader(source, out);
  int number = 0;
  for (size_t at = 0; at < file.size();) {
    const size_t end = std::min(file.find('\n', at), file.size());
    std::string_view row = file.substr(at, end - at);
    at = end + 1;
    number++;
    row = trimmed(row.substr(0, std::min(row.find('#'), row.size())));
    if (!row.empty()) reader.line(row, number);
  }
  reader.finish();
  return out;
}

} // namespace tuner
