// tutti/plugin-api/conformance/collnet_cases.h: the parts of the suite of collnets.
#pragma once
#include "suite.h"
#include <vector>

namespace tutti::conformance {
std::vector<Case> collnet_group_cases();   // devices, groups, what is granted, sleeping
std::vector<Case> collnet_data_cases();    // what comes back
std::vector<Case> collnet_failure_cases(); // members that leave, differ or stay away
} // namespace tutti::conformance
