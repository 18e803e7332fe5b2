/* tutti/plugin/device.h: memory and queues of an accelerator. DRAFT: loads only in a core of the same minor version, and its
 * id will change when it leaves draft. Host memory is built into the core. */
#ifndef TUTTI_PLUGIN_DEVICE_H
#define TUTTI_PLUGIN_DEVICE_H
#include "base.h"
TUTTI_BEGIN
#define TUTTI_DEVICE_DRAFT "tutti.draft.device/0"
typedef struct tutti_device_event tutti_device_event;
enum { TUTTI_DEVICE_IPC_BYTES = 64 };

typedef struct tutti_device_v0 {
  uint32_t struct_size;
  tutti_mem_kind kind; /* the one kind this plugin serves */
  const char *name;
  /* UNSUPPORTED: not this plugin's memory. region covers the whole allocation. [any] */
  tutti_status (*classify)(void *plugin, const void *addr, tutti_region *region) TUTTI_NOEXCEPT;
  tutti_status (*alloc)(void *plugin, int32_t device, uint64_t bytes, tutti_region *region) TUTTI_NOEXCEPT; /* [setup] */
  void (*release)(void *plugin, const tutti_region *region) TUTTI_NOEXCEPT;                                 /* [setup] */
  /* Copies in stream order; host or device on either side. stream is the accelerator's own handle. [progress] */
  tutti_status (*copy_async)(void *plugin, void *dst, const void *src, uint64_t bytes, void *stream) TUTTI_NOEXCEPT;
  tutti_status (*event_record)(void *plugin, void *stream, tutti_device_event **out) TUTTI_NOEXCEPT; /* [progress] */
  tutti_status (*event_query)(void *plugin, tutti_device_event *event) TUTTI_NOEXCEPT; /* AGAIN = not yet. [progress] */
  void (*event_destroy)(void *plugin, tutti_device_event *event) TUTTI_NOEXCEPT;       /* [progress] */
  tutti_status (*ipc_export)(void *plugin, const tutti_region *region, void *handle) TUTTI_NOEXCEPT; /* [setup] */
  tutti_status (*ipc_import)(void *plugin, const void *handle, tutti_region *region) TUTTI_NOEXCEPT; /* [setup] */
} tutti_device_v0;

TUTTI_END
#endif
