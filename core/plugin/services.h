// tutti/core/plugin/services.h: what a plugin is given: diag, config and memory are made here, other services are looked up in
// the table that upper folders fill.
#pragma once
#include "plugin/registry.h"

namespace tutti {

// Fills plugin->host; `plugin` must stay where it is.
void give_host(Plugin *plugin);
// Bytes that plugins hold now through tutti.host.memory/1, all together.
uint64_t plugin_memory_in_use();

} // namespace tutti
