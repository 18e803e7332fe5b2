// tutti/core/tools/doctor/facts.h: what the hosts of a job tell each other before they are compared.
#pragma once
#include "tools/doctor/host.h"
#include "tools/doctor/wire.h"
#include <nlohmann/json_fwd.hpp>

namespace tutti::doctor {

// One line of a comparison: hosts whose values differ are a finding of that level.
struct Fact {
  std::string name, value;
  Level level = Level::note;
  std::string why, fix;
};
std::vector<Fact> facts_of(const Host &host);

struct HostReport {
  std::string name;
  bool present = false; // it has told something
  std::vector<Fact> facts;
  std::vector<Place> places;
  std::string problem; // why it could not listen
  Findings findings;   // about it alone
};
std::string report_text(const std::string &name, const Host &host, const std::vector<Place> &places, const std::string &problem,
                        const Findings &findings);
HostReport report_from(const std::string &text);

} // namespace tutti::doctor
