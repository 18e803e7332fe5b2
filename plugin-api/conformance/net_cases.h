// tutti/plugin-api/conformance/net_cases.h: the parts of the net suite.
#pragma once
#include "suite.h"
#include <vector>

namespace tutti::conformance {
std::vector<Case> net_device_cases();     // devices, contexts, registrations
std::vector<Case> net_connection_cases(); // listen, connect, accept, destroy in every state
std::vector<Case> net_data_cases();       // messages
std::vector<Case> net_meanwhile_cases();  // what else goes on: threads, forks, other endpoints
std::vector<Case> net_failure_cases();    // cancelled, truncated, peers that go away
std::vector<Case> net_rma_cases();        // reads of a peer's memory, where the plugin has them
} // namespace tutti::conformance
