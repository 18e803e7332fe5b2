// tutti/core/comm/select/grammar.h: the grammar of coll.algo and coll.proto: "[COLL:]a,b;COLL:^c".
// A part without COLL holds for all collectives that no other part names; of two parts for one collective the later holds;
// ^ in front of the list allows all names but these.
#pragma once
#include "base/status.h"
#include "tutti/plugin/base.h"
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class NameFilter {
public:
  // what: "algorithm" or "protocol", for messages; known: the names there are. Names match in any case; NCCL's for what is not
  // here may be excluded, and are errors otherwise.
  static Result<NameFilter> parse(std::string_view text, std::string_view origin, std::string_view what,
                                  std::span<const std::string> known);

  bool allows(tutti_coll coll, std::string_view name) const;
  bool forced(tutti_coll coll) const;                                           // only listed names are allowed
  bool speaks_of(tutti_coll coll) const { return !rules_[coll].names.empty(); } // anything is said about it
  bool named(tutti_coll coll) const { return rules_[coll].own; }                // a part names this collective
  // `"ring,tree" (TUTTI_ALGO)`: what governs coll, for messages.
  std::string describe(tutti_coll coll) const;

private:
  struct Rule {
    bool own = false, exclude = true; // nothing excluded: everything allowed
    std::vector<std::string> names;
    std::string text;
  };
  std::array<Rule, TUTTI_COLL_COUNT> rules_;
  std::string origin_;
};

} // namespace tutti
