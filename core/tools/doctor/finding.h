// tutti/core/tools/doctor/finding.h: what a check says.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::doctor {

enum class Level { ok, note, warning, error };
std::string_view level_name(Level level);

struct Finding {
  Level level = Level::ok;
  std::string topic;              // "network", "limits": findings are shown by topic
  std::string id;                 // "limits.files": stays the same between versions
  std::string seen;               // the value and where it was read
  std::string why;                // why it matters here; "" for what is ok
  std::string fix;                // a command, or what to do; "" = nothing
  std::vector<std::string> hosts; // of a job: where it was found; empty = this host
};

class Findings {
public:
  void add(Level level, std::string id, std::string seen, std::string why = {},
           std::string fix = {}); // topic: id up to the dot
  void ok(std::string id, std::string seen) { add(Level::ok, std::move(id), std::move(seen)); }
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  void add(const Findings &other);
  const std::vector<Finding> &all() const { return all_; }
  Level worst() const;
  int count(Level level) const;
  const Finding *find(std::string_view id) const; // the first, for tests and for findings that depend on others

private:
  std::vector<Finding> all_;
};

// For people: by topic, the topic with the worst finding first. all: also what is ok.
std::string findings_text(const Findings &findings, bool all);
nlohmann::json findings_json(const Findings &findings);
Findings findings_from(const nlohmann::json &json); // of another host; what is no finding is left out

std::string amount(double bytes); // "64.0 MiB"

} // namespace tutti::doctor
