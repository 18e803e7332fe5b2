// tutti/core/plugin/services.h: what a plugin is given: diag, config and memory are made here, other services are looked up in
// the table that upper folders fill.
#pragma once
#include "plugin/registry.h"

namespace tutti {

// Fills plugin->host; `plugin` must stay where it is.
void give_host(Plugin *plugin);
// Forgets what this thread's last set_error() said, so that an old reason is not taken for a new one.
void clear_plugin_error();
// Bytes that plugins hold now through tutti.host.memory/1, all together.
uint64_t plugin_memory_in_use();

} // namespace tutti
