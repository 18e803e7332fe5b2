#include "tools/perf_expect.h"
#include "base/file.h"
#include "config/toml_source.h"
#include "tools/cli.h"
#include "tools/perf.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tutti::tools::perf {
namespace {

using config::bad;

const std::vector<std::string> kKeys{"operation", "link", "sizes", "busbw"};
const std::vector<std::string> kLinks{"local", "shm", "net", "socket", "ib"};
constexpr std::string_view kOtherNet = "net:";

int line_number(const std::string &origin) {
  return std::atoi(origin.c_str() + origin.rfind(':') + 1);
}

std::vector<std::string> tested_operations() {
  std::vector<std::string> out;
  for (const Operation *o : all_operations())
    if (o->has_data) out.emplace_back(o->name); // a barrier has no bandwidth
  return out;
}

// One key after the other into one line.
class LineReader {
public:
  explicit LineReader(PassLine *line) : line_(*line) {}

  Status key(const std::string &key, const config::Raw &raw) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      return bad("{}: [{}] unknown key {}{} valid keys: {}", raw.origin, line_.name, config::quoted(key),
                 config::did_you_mean(key, kKeys), fmt::join(kKeys, ", "));
    if (key == "operation") return operations(raw);
    if (raw.is_list) return bad("{}: {} is a list; one text is wanted", raw.origin, key);
    return key == "link" ? link(raw) : key == "sizes" ? sizes(raw) : bandwidth(raw);
  }

private:
  Status operations(const config::Raw &raw) {
    const auto known = tested_operations();
    line_.operations = raw.is_list ? raw.items : std::vector<std::string>{raw.text};
    if (line_.operations.empty()) return bad("{}: operation = [] names none", raw.origin);
    for (const std::string &o : line_.operations)
      if (std::find(known.begin(), known.end(), o) == known.end())
        return bad("{}: operation {} is none{} one of {}", raw.origin, config::quoted(o), config::did_you_mean(o, known),
                   fmt::join(known, ", "));
    return {};
  }

  Status link(const config::Raw &raw) {
    line_.link = raw.text;
    const bool named = raw.text.starts_with(kOtherNet) && raw.text.size() > kOtherNet.size();
    if (named || std::find(kLinks.begin(), kLinks.end(), raw.text) != kLinks.end()) return {};
    return bad("{}: link {} is no kind of link{} one of {}, or net:NAME for another network plugin", raw.origin,
               config::quoted(raw.text), config::did_you_mean(raw.text, kLinks), fmt::join(kLinks, ", "));
  }

  Status sizes(const config::Raw &raw) {
    const auto wrong = [&](std::string_view why) {
      return bad("{}: sizes {}: {}; write \"1M\", \"1K..64K\" or \"128M..\"", raw.origin, config::quoted(raw.text), why);
    };
    const size_t dots = raw.text.find("..");
    const std::string from = raw.text.substr(0, dots), to = dots == raw.text.npos ? from : raw.text.substr(dots + 2);
    if (from.empty() && to.empty()) return wrong("no size");
    if (!from.empty()) {
      const auto low = parse_size(from);
      if (!low.ok()) return wrong(low.status().error().message);
      line_.min_bytes = *low;
    }
    if (!to.empty()) {
      const auto high = parse_size(to);
      if (!high.ok()) return wrong(high.status().error().message);
      line_.max_bytes = *high;
    }
    return line_.min_bytes <= line_.max_bytes ? Status() : wrong("the first size is the larger one");
  }

  Status bandwidth(const config::Raw &raw) {
    double value = 0;
    const char *const end = raw.text.data() + raw.text.size();
    const auto [at, problem] = std::from_chars(raw.text.data(), end, value);
    std::string_view unit(at, static_cast<size_t>(end - at));
    while (unit.starts_with(' ')) unit.remove_prefix(1);
    const double scale = unit == "GB/s" ? 1 : unit == "MB/s" ? 1e-3 : 0;
    if (problem != std::errc() || scale == 0 || !std::isfinite(value) || value <= 0)
      return bad("{}: busbw {} is no bandwidth above 0; write \"18 GB/s\" or \"950 MB/s\" (units of 1000)", raw.origin,
                 config::quoted(raw.text));
    line_.bus_bw = value * scale;
    return {};
  }

  PassLine &line_;
};

Status complete(const PassLine &line) {
  if (line.operations.empty()) return bad("{}: [{}] has no operation", line.origin, line.name);
  if (line.bus_bw <= 0) return bad("{}: [{}] has no busbw", line.origin, line.name);
  return {};
}

std::string sizes_text(const PassLine &line) {
  if (line.min_bytes == line.max_bytes) return size_text(line.min_bytes);
  if (line.min_bytes == 0 && line.max_bytes == UINT64_MAX) return "all sizes";
  return fmt::format("{}..{}", line.min_bytes ? size_text(line.min_bytes) : "",
                     line.max_bytes == UINT64_MAX ? "" : size_text(line.max_bytes));
}

} // namespace

bool PassLine::serves(std::string_view operation) const {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

bool PassLine::fits_link(std::string_view kind) const {
  if (link.empty()) return true;
  if (link == "net") return !kind.empty() && kind != "local" && kind != "shm";
  return link.starts_with(kOtherNet) ? kind == std::string_view(link).substr(kOtherNet.size()) : kind == link;
}

std::string PassLine::text() const {
  return fmt::format("{:.2f} GB/s over {}, {}", bus_bw, link.empty() ? "any link" : link, sizes_text(*this));
}

Result<std::vector<PassLine>> parse_pass_lines(std::string_view text, const std::string &name) {
  TUTTI_ASSIGN(entries, config::read_toml(text, name));
  std::vector<PassLine> lines;
  for (const config::TomlEntry &e : entries) {
    if (e.key.empty()) { // a table begins
      lines.emplace_back();
      lines.back().name = e.table;
      lines.back().origin = e.raw.origin;
    } else {
      TUTTI_TRY(LineReader(&lines.back()).key(e.key, e.raw));
    }
  }
  if (lines.empty()) return bad("{}: no pass line; write [NAME] with operation and busbw below it", name);
  for (const PassLine &line : lines) TUTTI_TRY(complete(line));
  std::stable_sort(lines.begin(), lines.end(),
                   [](const PassLine &a, const PassLine &b) { return line_number(a.origin) < line_number(b.origin); });
  return lines;
}

Result<std::vector<PassLine>> read_pass_lines(const std::string &path) {
  constexpr size_t kMostBytes = 1 << 20;
  TUTTI_ASSIGN(text, read_file(path, kMostBytes));
  return parse_pass_lines(text, path);
}

std::string slowest_link(const nlohmann::json &explanation) {
  std::string slowest;
  const auto links = explanation.find("links");
  if (links == explanation.end() || !links->is_array()) return slowest;
  for (const auto &link : *links) { // "local", "shm", "net socket eth0 ..."
    std::istringstream words(link.value("link", ""));
    std::string kind, net;
    words >> kind >> net;
    if (kind == "net") return net;
    if (slowest.empty() || kind == "shm") slowest = kind;
  }
  return slowest;
}

PassCheck::PassCheck(const std::vector<PassLine> &lines, std::string_view operation) {
  for (const PassLine &line : lines)
    if (line.serves(operation)) verdicts_.push_back({line});
}

void PassCheck::add(const Row &row) {
  link_ = row.explained.link;
  for (Verdict &v : verdicts_) {
    if (row.asked < v.line.min_bytes || row.asked > v.line.max_bytes || !v.line.fits_link(link_)) continue;
    for (const Timing *t : {&row.out, &row.in}) {
      if (!t->valid) continue;
      if (v.results++ == 0 || t->bus_bw < v.worst) {
        v.worst = t->bus_bw;
        v.worst_bytes = row.bytes;
        v.worst_in_place = t == &row.in;
      }
      v.below += t->bus_bw < v.line.bus_bw;
    }
  }
}

bool PassCheck::missed() const {
  return std::any_of(verdicts_.begin(), verdicts_.end(), [](const Verdict &v) { return v.below > 0; });
}
bool PassCheck::measured() const {
  return verdicts_.empty() || std::any_of(verdicts_.begin(), verdicts_.end(), [](const Verdict &v) { return v.results > 0; });
}

std::string PassCheck::sentence(const Verdict &v) const {
  const std::string head = fmt::format("{} ({}): {}: ", v.line.name, v.line.origin, v.line.text());
  if (v.results == 0) {
    if (v.line.fits_link(link_)) return head + "not measured: no such size";
    return head + "not measured: " + (link_.empty() ? "there are no links" : "the link is " + link_);
  }
  const std::string least = fmt::format("{:.2f} GB/s at {}{}", v.worst, v.worst_bytes, v.worst_in_place ? " in place" : "");
  if (v.below == 0) return head + fmt::format("{} results, the least {} OK", v.results, least);
  const double lacks = v.line.bus_bw - v.worst;
  return head + fmt::format("{} of {} results below, the least {}: {:.2f} GB/s ({:.1f} %) short FAILED", v.below, v.results,
                            least, lacks, 100 * lacks / v.line.bus_bw);
}

std::vector<std::string> PassCheck::report() const {
  std::vector<std::string> out;
  for (const Verdict &v : verdicts_) out.push_back(sentence(v));
  return out;
}

nlohmann::json PassCheck::json() const {
  nlohmann::json all = nlohmann::json::array();
  for (const Verdict &v : verdicts_) {
    nlohmann::json j{{"name", v.line.name},     {"origin", v.line.origin},
                     {"bus_bw", v.line.bus_bw}, {"results", v.results},
                     {"below", v.below},        {"okay", v.results ? nlohmann::json(v.below == 0) : nlohmann::json()}};
    if (!v.line.link.empty()) j["link"] = v.line.link;
    if (v.results) j["least"] = {{"bus_bw", v.worst}, {"size", v.worst_bytes}, {"in_place", v.worst_in_place}};
    if (v.below) j["shortfall"] = v.line.bus_bw - v.worst;
    all.push_back(std::move(j));
  }
  return all;
}

} // namespace tutti::tools::perf
