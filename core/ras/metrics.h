// tutti/core/ras/metrics.h: what this process counts, for Prometheus and what else reads its text format 0.0.4.
#pragma once
#include "config/config.h"
#include "ras/report.h"
#include <string>

namespace tutti::ras {

std::string metrics_text(const ProcessReport &report);
// Serves it over HTTP, where ras.metrics says so.
void open_metrics(const Config &config, const boot::Contact &self);

// From now on a communicator of this process has failed. [any thread]
void count_failure();
uint64_t failures();

} // namespace tutti::ras
