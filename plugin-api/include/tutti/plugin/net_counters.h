/* tutti/plugin/net_counters.h: what the devices of a net count themselves, beside tutti.net/1 of the same plugin. `tutti info`
 * shows the counters; an error of a device names those of them that have risen since its communicator was made and that say
 * what a rising value means. */
#ifndef TUTTI_PLUGIN_NET_COUNTERS_H
#define TUTTI_PLUGIN_NET_COUNTERS_H
#include "net.h"
TUTTI_BEGIN
#define TUTTI_NET_COUNTERS "tutti.net.counters/1"

/* One counter of a device. Array element: frozen. */
typedef struct tutti_net_counter {
  const char *name; /* as the device's own tools call it, "out_of_sequence"; unique within the device. Valid until close() */
  const char *hint; /* what it means that the value rises, lower case, without full stop: "packets were lost on the way, look at
                       the switch's drops and at flow control"; NULL: nothing is wrong, as with bytes. Valid until close() */
  uint64_t value;   /* since whenever the device began to count; never falls while the device lives */
  uint64_t reserved0; /* 0 */
} tutti_net_counter;

typedef struct tutti_net_counters_v1 {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The counters of a device, in any order. *count in: room at out, may be 0; out: how many there are, of which the first are
   * written as far as there is room. 0 with TUTTI_OK: it has none. What cannot be read is left out. May read files and
   * registers, at most 100 ms. Asked when a communicator opens the device, when an error of it is told, and by tools; not while
   * all is well. INVALID: no such device, see device_count(). [any] */
  tutti_status (*read)(void *plugin, uint32_t dev, tutti_net_counter *out, uint32_t *count) TUTTI_NOEXCEPT;
} tutti_net_counters_v1;

TUTTI_END
#endif
