#include "tools/doctor/finding.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>

namespace tutti::doctor {
namespace {

constexpr std::string_view kLevels[] = {"ok", "note", "warning", "error"};

// What is said of several hosts in a row: "a, b, c and 5 more".
std::string hosts_text(const std::vector<std::string> &hosts) {
  constexpr size_t kShown = 6;
  const size_t shown = std::min(hosts.size(), kShown);
  std::string out = fmt::format("{}", fmt::join(hosts.begin(), hosts.begin() + static_cast<long>(shown), ", "));
  return hosts.size() > shown ? fmt::format("{} and {} more", out, hosts.size() - shown) : out;
}

} // namespace

std::string_view level_name(Level level) {
  return kLevels[static_cast<size_t>(level)];
}

void Findings::add(Level level, std::string id, std::string seen, std::string why, std::string fix) {
  Finding f;
  f.level = level;
  f.topic = id.substr(0, id.find('.'));
  f.id = std::move(id);
  f.seen = std::move(seen);
  f.why = std::move(why);
  f.fix = std::move(fix);
  all_.push_back(std::move(f));
}

void Findings::add(const Findings &other) {
  all_.insert(all_.end(), other.all_.begin(), other.all_.end());
}

Level Findings::worst() const {
  Level out = Level::ok;
  for (const Finding &f : all_) out = std::max(out, f.level);
  return out;
}

int Findings::count(Level level) const {
  return static_cast<int>(std::count_if(all_.begin(), all_.end(), [&](const Finding &f) { return f.level == level; }));
}

const Finding *Findings::find(std::string_view id) const {
  const auto it = std::find_if(all_.begin(), all_.end(), [&](const Finding &f) { return f.id == id; });
  return it == all_.end() ? nullptr : &*it;
}

std::string findings_text(const Findings &findings, bool all) {
  std::map<std::string, Level> worst;
  std::vector<const Finding *> shown;
  for (const Finding &f : findings.all()) {
    if (f.level == Level::ok && !all) continue;
    shown.push_back(&f);
    worst[f.topic] = std::max(worst[f.topic], f.level);
  }
  std::stable_sort(shown.begin(), shown.end(), [&](const Finding *a, const Finding *b) {
    const Level of_a = worst[a->topic], of_b = worst[b->topic];
    if (of_a != of_b) return of_a > of_b;
    return a->topic != b->topic ? a->topic < b->topic : a->level > b->level;
  });
  std::string out, topic;
  for (const Finding *f : shown) {
    if (f->topic != topic) out += fmt::format("{}{}\n", out.empty() ? "" : "\n", topic = f->topic);
    out += fmt::format("  {:<8} {}{}\n", level_name(f->level), f->seen,
                       f->hosts.empty() ? "" : fmt::format("  [{}]", hosts_text(f->hosts)));
    if (!f->why.empty()) out += fmt::format("           why: {}\n", f->why);
    if (!f->fix.empty()) out += fmt::format("           fix: {}\n", f->fix);
  }
  return out;
}

nlohmann::json findings_json(const Findings &findings) {
  nlohmann::json out = nlohmann::json::array();
  for (const Finding &f : findings.all()) {
    nlohmann::json row = {{"level", level_name(f.level)}, {"topic", f.topic}, {"id", f.id}, {"seen", f.seen}};
    if (!f.why.empty()) row["why"] = f.why;
    if (!f.fix.empty()) row["fix"] = f.fix;
    if (!f.hosts.empty()) row["hosts"] = f.hosts;
    out.push_back(std::move(row));
  }
  return out;
}

Findings findings_from(const nlohmann::json &json) {
  Findings out;
  if (!json.is_array()) return out;
  for (const auto &row : json) {
    if (!row.is_object()) continue;
    Finding f;
    const auto text = [&](const char *key) {
      const auto it = row.find(key);
      return it != row.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    const std::string level = text("level");
    const auto at = std::find(std::begin(kLevels), std::end(kLevels), level);
    if (at == std::end(kLevels) || text("id").empty()) continue;
    f.level = static_cast<Level>(at - std::begin(kLevels));
    f.topic = text("topic");
    f.id = text("id");
    f.seen = text("seen");
    f.why = text("why");
    f.fix = text("fix");
    if (const auto it = row.find("hosts"); it != row.end() && it->is_array())
      for (const auto &host : *it)
        if (host.is_string()) f.hosts.push_back(host.get<std::string>());
    out.add(std::move(f));
  }
  return out;
}

std::string amount(double bytes) {
  if (bytes >= 1ull << 30) return fmt::format("{:.1f} GiB", bytes / (1ull << 30));
  if (bytes >= 1ull << 20) return fmt::format("{:.1f} MiB", bytes / (1ull << 20));
  if (bytes >= 1ull << 10) return fmt::format("{:.0f} KiB", bytes / 1024);
  return fmt::format("{:.0f} B", bytes);
}

} // namespace tutti::doctor
