// tutti/core/ras/desk.h: where a process answers questions: of its user on this host, and of those who have its job's key.
// On the service thread, so also while the application computes or is stuck. Nothing of it runs unless somebody asks.
#pragma once
#include "bootstrap/hub.h"
#include "config/config.h"
#include <memory>

namespace tutti::ras {

// Opens it, and what ras.metrics asks for, once per process, as the options say. Problems are lines in the log: no communicator
// fails for them. [any thread]
void open_desk(const std::shared_ptr<const Config> &config);

// Where metrics are served: "ADDR:PORT", "[V6]:PORT", "localhost:PORT", ":PORT" for all; PORT may be LOW-HIGH, of which the
// first free one is taken, and 0 = any.
struct MetricsAt {
  std::vector<boot::Endpoint> addresses; // all of them; the port left out
  uint16_t low = 0, high = 0;
};
Result<MetricsAt> parse_metrics_at(std::string_view text);

} // namespace tutti::ras
