// tutti/core/bootstrap/hostlist.h: how Slurm writes many hosts and task counts in one line.
#pragma once
#include "base/status.h"
#include <string>
#include <string_view>
#include <vector>

namespace tutti::boot {

constexpr size_t kMaxHosts = 65536;

// "n[1-3,07],m2,rack[0-1]-[00-15]": the names in their order; of several brackets the last one runs fastest.
Result<std::vector<std::string>> expand_hostlist(std::string_view text, size_t limit = kMaxHosts);
// "4(x2),3": tasks on node 0, 1, 2: 4, 4, 3.
Result<int> tasks_on_node(std::string_view text, int node);

} // namespace tutti::boot
