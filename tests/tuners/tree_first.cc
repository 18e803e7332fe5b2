// A tuner that prefers trees and forbids nothing.
#include "tutti/plugin/cxx/plugin.hpp"

struct TreeFirst {
  static constexpr tutti::plugin::Info info{"tuner-tree-first", "1.0.0", "tests", "Apache-2.0", "trees wherever there is one"};
  static constexpr const char *tuner_name = "tree-first";
  explicit TreeFirst(const tutti::plugin::Host &) {}
  void rate(const tutti_tune_query &, std::vector<tutti_candidate> &candidates) {
    for (auto &c : candidates) {
      const bool tree = std::string_view(c.algo) == "tree";
      c.cost_us = tree ? 1 : 2;
      c.flags = TUTTI_CAND_ORDER_ONLY;
      c.note = tree ? "trees first" : nullptr;
    }
  }
};
TUTTI_CXX_PLUGIN(TreeFirst)
