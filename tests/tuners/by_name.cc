// A tuner whose costs are made from the names of the ways, and that has an option: the algorithm that costs least.
#include "tutti/plugin/cxx/plugin.hpp"

struct ByName {
  static constexpr tutti::plugin::Info info{"tuner-by-name", "1.0.0", "tests", "Apache-2.0", "made-up times"};
  static constexpr tutti_option options[] = {
      {"cheap", "ring", "algorithm that costs least", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0}, {}};
  static constexpr const char *tuner_name = "by-name";
  explicit ByName(const tutti::plugin::Host &host) : cheap_(host.get_string("cheap")) {}
  void rate(const tutti_tune_query &, std::vector<tutti_candidate> &candidates) {
    for (auto &c : candidates) {
      c.cost_us = c.algo == cheap_ ? 10 : 20 + static_cast<double>(c.algo[0]);
      c.flags = 0;
    }
  }

private:
  std::string cheap_;
};
TUTTI_CXX_PLUGIN(ByName)
