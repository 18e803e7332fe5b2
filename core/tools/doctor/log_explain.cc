#include "tools/doctor/log_explain.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tutti::doctor {
namespace {

constexpr size_t kLongest = 8192; // of a line; the rest is not looked at

bool digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char &c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "2026-11-30 17:23:22.512 ", also with T between and in brackets, at the start of a line.
std::string_view take_time(std::string_view &line) {
  std::string_view rest = line;
  const bool bracket = rest.starts_with('[');
  if (bracket) rest.remove_prefix(1);
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  if (rest.size() < kForm.size()) return {};
  for (size_t i = 0; i < kForm.size(); i++)
    if (kForm[i] == '0'   ? !digit(rest[i])
        : kForm[i] == ' ' ? rest[i] != ' ' && rest[i] != 'T' && rest[i] != '_'
                          : rest[i] != kForm[i])
      return {};
  size_t end = kForm.size();
  if (end < rest.size() && (rest[end] == '.' || rest[end] == ',')) {
    end++;
    while (end < rest.size() && digit(rest[end])) end++;
  }
  const std::string_view time = rest.substr(0, end);
  rest.remove_prefix(end);
  if (bracket && rest.starts_with(']')) rest.remove_prefix(1);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  line = rest;
  return time;
}

// "3: text" after "rank ": the number, and what follows it.
std::optional<int> rank_at(std::string_view text) {
  int rank = 0;
  size_t i = 0;
  for (; i < text.size() && i < 7 && digit(text[i]); i++) rank = rank * 10 + (text[i] - '0');
  return i > 0 ? std::optional(rank) : std::nullopt;
}

// "host:pid" or "host:pid:tid": NCCL's and our lines begin so.
std::string process_at(std::string_view line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  const size_t first = word.find(':');
  if (first == word.npos || first == 0 || first + 1 >= word.size() || !digit(word[first + 1])) return {};
  size_t at = first + 1;
  while (at < word.size() && digit(word[at])) at++;
  return std::string(word.substr(0, at));
}

bool ours(LogLine &out, std::string_view line) {
  for (std::string_view tool : {"error: ", "note: ", "tutti run: ", "tutti perf: ", "tutti tune: ", "warning: "}) {
    if (!line.starts_with(tool)) continue;
    out.level = tool == "note: " ? "info" : "error";
    out.text = line.substr(tool.starts_with("tutti") ? 0 : tool.size());
    if (out.text.starts_with("rank ") && !tool.starts_with("tutti"))
      if (const auto rank = rank_at(std::string_view(out.text).substr(5))) out.reporter = fmt::format("rank {}", *rank);
    return true;
  }
  // "host:pid rank 3: warn: text", "host:pid: warn: text"; a log line of ours: level after the rank
  const std::string process = process_at(line);
  if (process.empty()) return false;
  std::string_view rest = line.substr(process.size());
  std::string reporter = process;
  if (rest.starts_with(" rank "))
    if (const auto rank = rank_at(rest.substr(6))) {
      reporter = fmt::format("rank {}", *rank);
      rest.remove_prefix(6 + std::to_string(*rank).size());
    }
  if (rest.starts_with(':')) rest.remove_prefix(1);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  for (std::string_view level : {"trace: ", "debug: ", "info: ", "warn: ", "error: "}) {
    if (!rest.starts_with(level)) continue;
    out.level = level.substr(0, level.size() - 2);
    out.reporter = reporter;
    out.text = rest.substr(level.size());
    return true;
  }
  return false;
}

// Ranks that a text names: "rank 3", "ranks 0, 2", "missing: 1, 4-6".
std::set<int> ranks_in(std::string_view text) {
  std::set<int> out;
  for (std::string_view key : {"rank ", "ranks ", "missing: "})
    for (size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
      if (at > 0 && std::isalpha(static_cast<unsigned char>(text[at - 1]))) continue;
      std::string_view rest = text.substr(at + key.size());
      while (const auto low = rank_at(rest)) {
        const size_t used = std::to_string(*low).size();
        rest.remove_prefix(used);
        int high = *low;
        if (rest.starts_with('-') && rank_at(rest.substr(1))) {
          high = *rank_at(rest.substr(1));
          rest.remove_prefix(1 + std::to_string(high).size());
        }
        for (int r = *low; r <= std::min(high, *low + 4096); r++) out.insert(r);
        if (key == "rank " || !rest.starts_with(", ")) break;
        rest.remove_prefix(2);
      }
    }
  return out;
}

bool quiet(const LogLine &line) { // what is written while all is well
  return line.kind == LineKind::ours && (line.level == "info" || line.level == "debug" || line.level == "trace");
}

bool matches(const LogRule &rule, const LogLine &line, std::string_view text) {
  const auto any_of = [&](std::span<const std::string_view> patterns) {
    return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view p) { return log_pattern_matches(p, text); });
  };
  if (line.kind == LineKind::nccl) return any_of(rule.nccl) || (line.level == "WARN" && any_of(rule.any));
  return (line.kind == LineKind::ours && any_of(rule.ours)) || any_of(rule.any);
}

// Like getline, but keeps no more of a line than is looked at.
bool next_line(std::istream &in, std::string &line) {
  line.clear();
  std::streambuf &buffer = *in.rdbuf();
  int c = buffer.sbumpc();
  if (c == std::char_traits<char>::eof()) return false;
  for (; c != '\n' && c != std::char_traits<char>::eof(); c = buffer.sbumpc())
    if (line.size() < kLongest) line += static_cast<char>(c);
  return true;
}

class Reader {
public:
  void add(int number, const std::string &raw) {
    const LogLine line = read_log_line(raw);
    out_.ours += line.kind == LineKind::ours;
    out_.nccl += line.kind == LineKind::nccl;
    if (quiet(line)) return;
    const std::string text = lower(line.text);
    for (const LogRule &rule : log_rules()) {
      if (!matches(rule, line, text)) continue;
      note(rule, number, line);
      // The first rule that fits explains the line, but for the rules that say what the line is a consequence of.
      return;
    }
  }
  Explanation finish(int lines);

private:
  void note(const LogRule &rule, int number, const LogLine &line) {
    auto at = std::find_if(out_.symptoms.begin(), out_.symptoms.end(), [&](const Symptom &s) { return s.rule == &rule; });
    if (at == out_.symptoms.end()) {
      at = out_.symptoms.insert(out_.symptoms.end(), Symptom{});
      at->rule = &rule;
      at->first_line = number;
      at->time = line.time;
      at->line = line.text;
    } else if (!line.time.empty() && line.time < at->time) {
      at->first_line = number;
      at->time = line.time;
      at->line = line.text;
    }
    at->count++;
    if (!line.reporter.empty()) at->reporters.insert(line.reporter);
    for (int rank : ranks_in(line.text))
      if (fmt::format("rank {}", rank) != line.reporter) at->named[rank]++;
  }
  Explanation out_;
};

Explanation Reader::finish(int lines) {
  out_.lines = lines;
  std::stable_sort(out_.symptoms.begin(), out_.symptoms.end(), [](const Symptom &a, const Symptom &b) {
    if (a.rule->depth != b.rule->depth) return a.rule->depth < b.rule->depth;
    if (!a.time.empty() && !b.time.empty() && a.time != b.time) return a.time < b.time;
    return a.first_line < b.first_line;
  });
  // Who exited first, of many that fail alike, is chance.
  std::map<int, int> votes;
  for (const Symptom &s : out_.symptoms)
    if (s.rule->id != "exited" || out_.symptoms.front().rule->depth == Depth::consequence)
      for (const auto &[rank, times] : s.named) votes[rank] += times;
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
  // Only where one is named more than any other.
  if (most != votes.end() &&
      std::count_if(votes.begin(), votes.end(), [&](const auto &v) { return v.second == most->second; }) == 1)
    out_.suspect = most->first;
  return std::move(out_);
}

std::string named_text(const std::map<int, int> &named) {
  std::vector<int> ranks;
  for (const auto &[rank, times] : named) ranks.push_back(rank);
  const size_t shown = std::min<size_t>(ranks.size(), 12);
  return fmt::format("{}{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<long>(shown), ", "),
                     ranks.size() > shown ? ", ..." : "");
}

std::string symptom_text(const Symptom &s, bool whole) {
  std::string out = fmt::format("  {} ({}{})\n", s.rule->meaning, s.count == 1 ? "1 line" : fmt::format("{} lines", s.count),
                                s.time.empty() ? "" : ", first at " + s.time);
  out += fmt::format("    line {}: {}\n", s.first_line, s.line.substr(0, 300));
  if (!s.reporters.empty()) {
    std::vector<std::string> who(s.reporters.begin(), s.reporters.end());
    const size_t shown = std::min<size_t>(who.size(), 6);
    out += fmt::format("    said by: {}{}\n", fmt::join(who.begin(), who.begin() + static_cast<long>(shown), ", "),
                       who.size() > shown ? fmt::format(" and {} more", who.size() - shown) : "");
  }
  if (!s.named.empty()) out += fmt::format("    names rank{}: {}\n", s.named.size() == 1 ? "" : "s", named_text(s.named));
  if (!whole) return out;
  out += "    likely:\n";
  for (size_t i = 0; i < s.rule->causes.size(); i++) out += fmt::format("      {}. {}\n", i + 1, s.rule->causes[i]);
  if (!s.rule->commands.empty()) out += "    look, or do:\n";
  for (std::string_view command : s.rule->commands) out += fmt::format("      {}\n", command);
  return out;
}

} // namespace

LogLine read_log_line(std::string_view line) {
  LogLine out;
  line = line.substr(0, kLongest);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  // "[3] " of tutti run --tag-output, "[1,3]<stderr>:" of mpirun
  std::optional<int> tag;
  if (line.starts_with('[') && line.find(']') != line.npos)
    if (const std::string_view inside = line.substr(1, line.find(']') - 1);
        !inside.empty() && inside.size() < 12 && inside.find_first_not_of("0123456789,") == inside.npos) {
      tag = rank_at(inside.substr(inside.find(',') == inside.npos ? 0 : inside.find(',') + 1));
      line.remove_prefix(line.find(']') + 1);
      for (std::string_view stream : {"<stderr>:", "<stdout>:"})
        if (line.starts_with(stream)) line.remove_prefix(stream.size());
      while (line.starts_with(' ')) line.remove_prefix(1);
    }
  out.time = take_time(line);
  std::replace(out.time.begin(), out.time.end(), 'T', ' ');
  for (std::string_view level : {"WARN", "INFO", "TRACE", "CALL"}) {
    const std::string mark = fmt::format("NCCL {} ", level);
    const size_t at = line.find(mark);
    if (at == line.npos) continue;
    out.kind = LineKind::nccl;
    out.level = level;
    out.reporter = process_at(line);
    out.text = line.substr(at + mark.size());
    break;
  }
  if (out.kind == LineKind::other && ours(out, line)) out.kind = LineKind::ours;
  if (out.kind == LineKind::other) out.text = line;
  if (tag) out.reporter = fmt::format("rank {}", *tag);
  return out;
}

Explanation explain_log(std::istream &in) {
  Reader reader;
  int number = 0;
  bool object = false, flight = false;
  for (std::string line; next_line(in, line);) {
    number++;
    if (number == 1) object = line.starts_with('{'); // a log may quote such a file
    if (object && number <= 8 && line.find("\"tutti.flight/") != line.npos) flight = true;
    reader.add(number, line);
  }
  Explanation out = reader.finish(number);
  out.flight = flight;
  return out;
}

std::string flight_reader(const std::string &file) {
  return fmt::format("tutti ras diff {}", file);
}

std::string explanation_text(const Explanation &e, const std::string &name) {
  if (e.flight)
    return fmt::format("{} is a flight recorder's file, no log; this one, or those of all ranks together, are read by: {}\n",
                       name, flight_reader(name));
  std::string out = fmt::format("{}: {} lines, {} of tutti, {} of NCCL\n", name, e.lines, e.ours, e.nccl);
  if (e.symptoms.empty()) return out + "nothing known to be wrong was found\n";
  const bool only_harmless = e.symptoms.front().rule->depth == Depth::harmless;
  if (!only_harmless) {
    out += "\nlook at this first\n" + symptom_text(e.symptoms.front(), true);
    if (e.suspect) out += fmt::format("  most lines name rank {}: its own log says more\n", *e.suspect);
  }
  std::string also, later, harmless;
  for (size_t i = only_harmless ? 0 : 1; i < e.symptoms.size(); i++) {
    const Symptom &s = e.symptoms[i];
    const bool on_its_own =
        s.rule->depth == Depth::cause || (s.rule->depth == Depth::symptom && s.first_line < e.symptoms.front().first_line);
    (s.rule->depth == Depth::harmless ? harmless
     : on_its_own                     ? also
                                      : later) += symptom_text(s, on_its_own || s.rule->depth == Depth::harmless);
  }
  if (!also.empty()) out += "\nthen at these\n" + also;
  if (!later.empty()) out += "\nprobably consequences\n" + later;
  if (!harmless.empty()) out += "\nlooks alarming, is harmless\n" + harmless;
  return out;
}

nlohmann::json explanation_json(const Explanation &e) {
  constexpr std::string_view kDepths[] = {"cause", "symptom", "consequence", "harmless"};
  nlohmann::json symptoms = nlohmann::json::array();
  for (const Symptom &s : e.symptoms) {
    std::vector<int> named;
    for (const auto &[rank, times] : s.named) named.push_back(rank);
    symptoms.push_back({{"id", s.rule->id},
                        {"depth", kDepths[static_cast<size_t>(s.rule->depth)]},
                        {"meaning", s.rule->meaning},
                        {"first_line", s.first_line},
                        {"count", s.count},
                        {"time", s.time},
                        {"line", s.line},
                        {"reporters", s.reporters},
                        {"names_ranks", named},
                        {"causes", std::vector<std::string>(s.rule->causes.begin(), s.rule->causes.end())},
                        {"commands", std::vector<std::string>(s.rule->commands.begin(), s.rule->commands.end())}});
  }
  nlohmann::json out = {
      {"lines", e.lines}, {"ours", e.ours}, {"nccl", e.nccl}, {"flight_recorder", e.flight}, {"symptoms", symptoms}};
  if (e.suspect) out["suspect_rank"] = *e.suspect;
  return out;
}

} // namespace tutti::doctor
