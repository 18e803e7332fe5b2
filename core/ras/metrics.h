// tutti/core/ras/metrics.h: what this process counts, for Prometheus and what else reads its text format 0.0.4.
#pragma once
#include "config/config.h"
#include "ras/report.h"
#include <string>

namespace tutti::ras {

std::string metrics_text(const ProcessReport &report);
// Where metrics are served: "ADDR:PORT", "[V6]:PORT", "localhost:PORT", ":PORT" for all; PORT may be LOW-HIGH, of which the
// first free one is taken, and 0 = any.
struct MetricsAt {
  std::vector<boot::Endpoint> addresses; // all of them; the port left out
  uint16_t low = 0, high = 0;
};
Result<MetricsAt> parse_metrics_at(std::string_view text);

// Serves it over HTTP, where ras.metrics says so.
void open_metrics(const Config &config, const boot::Contact &self);

// From now on a communicator of this process has failed. [any thread]
void count_failure();
uint64_t failures();

} // namespace tutti::ras
