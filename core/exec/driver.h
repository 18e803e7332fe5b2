// tutti/core/exec/driver.h: the engines of this process, and the thread that drives those nobody waits for.
#pragma once
#include <cstdint>

namespace tutti {

class EngineImpl;

namespace driver {
void add(EngineImpl *engine);
void remove(EngineImpl *engine);      // on return nobody drives it from here; ends the thread after the last one
bool drive_another(EngineImpl *self); // one round of one other engine that needs it; false when there was none
void work_arrived();                  // starts or wakes the progress thread
} // namespace driver

} // namespace tutti
