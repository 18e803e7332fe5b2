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

} // namespace tutti::ras
