// What `tutti tune` shows: progress, and the verdict on a table.
#include "base/file.h"
#include "tools/cli.h"
#include "tools/tune.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace tutti::tools::tune {
namespace {

constexpr size_t kBar = 24; // characters

std::string ratio_text(const Verdict &v) {
  return v.ratio.rounds > 0 ? fmt::format("{:.2f}", v.ratio.median) : "-";
}

struct Share {
  size_t within = 0, of = 0;
  double percent() const { return of ? 100.0 * static_cast<double>(within) / static_cast<double>(of) : 0; }
};
Share share_of(const std::vector<Judged> &all, Verdict Judged::*who) {
  Share s;
  for (const Judged &j : all)
    if (!j.in_doubt) s.of++, s.within += (j.*who).holds();
  return s;
}

nlohmann::ordered_json way_json(const Way &w) {
  return {{"algo", w.algo},         {"proto", w.proto},
          {"channels", w.channels}, {"slot_bytes", w.slot_bytes},
          {"depth", w.depth},       {"nontemporal", w.nontemporal}};
}
nlohmann::ordered_json verdict_json(const Verdict &v) {
  nlohmann::ordered_json j = way_json(v.way);
  if (v.ratio.rounds > 0) {
    j["time_us"] = v.us;
    j["ratio"] = v.ratio.median;
    j["ratio_low"] = v.ratio.low;
    j["ratio_high"] = v.ratio.high;
    j["rounds"] = v.ratio.rounds;
  }
  j["within_10_percent"] = v.holds();
  return j;
}

} // namespace

Progress::Progress(int fd, size_t points, double seconds) : fd_(-1), points_(points), seconds_(seconds) {
  for (int f : {STDERR_FILENO, fd}) // stdout may be a terminal of mpirun's, which ends in a file
    if (fd_ < 0 && f >= 0 && isatty(f)) fd_ = f;
}

void Progress::clear() {
  if (shown_ && write(fd_, "\r\033[K", 4) < 0) return; // only for people who look
  shown_ = false;
}

void Progress::at(const std::string &text, size_t done, double elapsed) {
  if (fd_ < 0) return;
  const double part = std::min(1.0, std::max(elapsed / seconds_, static_cast<double>(done) / static_cast<double>(points_)));
  const auto full = static_cast<size_t>(part * kBar);
  const std::string line =
      fmt::format("\r\033[K[{}{}] {:3.0f} %  {} of {}: {}, about {:.0f} s left", std::string(full, '#'),
                  std::string(kBar - full, '.'), part * 100, done + 1, points_, text,
                  std::max(0.0, seconds_ - elapsed) * std::min(1.0, (1 - part) / std::max(1e-9, 1 - elapsed / seconds_)));
  shown_ = write(fd_, line.data(), line.size()) >= 0;
}

void Progress::line(const std::string &text) {
  clear();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

std::string judged_header() {
  return fmt::format("# {:<20} {:<34} {:>10} {:>6}   {:<34} {:>6}   {}\n", "operation, size", "the table's choice", "us",
                     "ratio", "the model's choice", "ratio", "best measured");
}

std::string judged_line(const Judged &j) {
  const auto form = [](const Way &w) {
    return fmt::format("{} {}x{}x{}{}", way_name(w), w.channels, w.depth, size_text(w.slot_bytes), w.nontemporal ? " nt" : "");
  };
  return fmt::format("{:<22} {:<34} {:>10.2f} {:>6}{} {:<34} {:>6}{} {:.2f} {}{}",
                     fmt::format("{} {}", j.op, size_text(j.bytes)), form(j.table.way), j.table.us, ratio_text(j.table),
                     j.table.holds() ? "  " : " !", form(j.model.way), ratio_text(j.model), j.model.holds() ? "  " : " !",
                     j.best.us, form(j.best.way), j.in_doubt ? "; in doubt" : "");
}

std::string judged_summary(const Args &args, const std::vector<Judged> &all) {
  std::string out = "#\n# ratio: time over that of the best way that this run has found; ! where it is over 1.10\n";
  const std::pair<std::string, Share> lines[] = {{fmt::format("table {}", args.judge), share_of(all, &Judged::table)},
                                                 {"model alone, without a table", share_of(all, &Judged::model)}};
  for (const auto &[name, s] : lines)
    out += fmt::format("# within 10 % of the best: {} of {} points ({:.1f} %) by the {}\n", s.within, s.of, s.percent(), name);
  return out;
}

Status write_judged(const Args &args, const Layout &layout, const std::vector<Judged> &all) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const Judged &j : all) {
    nlohmann::ordered_json best = way_json(j.best.way);
    best["time_us"] = j.best.us;
    points.push_back({{"operation", j.op},
                      {"bytes", j.bytes},
                      {"table", verdict_json(j.table)},
                      {"model", verdict_json(j.model)},
                      {"best", best},
                      {"in_doubt", j.in_doubt}});
  }
  const nlohmann::ordered_json out{
      {"table", args.judge},
      {"ranks", layout.ranks},
      {"hosts", layout.hosts},
      {"links", layout.links},
      {"points", points},
      {"within_10_percent",
       {{"table", share_of(all, &Judged::table).percent()}, {"model", share_of(all, &Judged::model).percent()}}}};
  return replace_file(args.json, out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

} // namespace tutti::tools::tune
