// What net-ib takes for granted of verbs, as cases that run on the double and on real devices alike: where one of the two fails
// a case that the other passes, the double is wrong, or net-ib relies on what is not so.
#pragma once
#include "ports.h"
#include <stdexcept>

namespace tutti::net_ib::test {

struct VerbsPair {
  Verbs &a_verbs, &b_verbs;
  std::string a_device, b_device; // port 1 of each; they reach each other
};
struct VerbsCase {
  const char *title;
  void (*run)(const VerbsPair &); // throws std::runtime_error
};
const std::vector<VerbsCase> &verbs_cases();

} // namespace tutti::net_ib::test
