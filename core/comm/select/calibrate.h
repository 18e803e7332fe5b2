// tutti/core/comm/select/calibrate.h: the constants of the cost model for this machine: measured at first use, kept in a file.
#pragma once
#include "comm/select/model.h"
#include "config/config.h"

namespace tutti {

// As tuner.calibrate says: from the file, measured now, or built in; built in too where coll.deterministic asks for choices
// that depend on no clock. cpus: of all ranks on this host, which wait meanwhile. Never fails: what is in the way is one line
// of the log. [any thread]
CostConstants machine_costs(const Config &config, const CpuSet &cpus);

// What the user knows better: tuner.p2p_bandwidth for both kinds of memory links, tuner.net_bandwidth for a stream and for a
// host's devices.
void apply_bandwidths(const Config &config, CostConstants *costs, CostModel::Device *device);

// Measures; at most about 150 ms. What this process may not do keeps its built-in value. *whole: there was time for everything.
CostConstants measure_machine(const CpuSet &cpus, bool *whole);

// The file. One machine is told from another by processor, cores, kernel and version of the library.
std::string machine_name(const CpuSet &cpus);
// $XDG_CACHE_HOME/tutti or ~/.cache/tutti unless the option names another; "" when there is no home.
std::string cache_path(const Config &config, const CpuSet &cpus);
// Absent file: no value and ok. An error says what is wrong with it.
Result<std::optional<CostConstants>> read_costs(const std::string &path, std::string_view machine);
Result<CostConstants> parse_costs(std::string_view text, std::string_view machine);
// At once or not at all, also when several processes write.
Status write_costs(const std::string &path, std::string_view machine, const CostConstants &costs);

} // namespace tutti
