/* tutti/plugin/plugin.h: all interfaces of the plugin ABI. */
#ifndef TUTTI_PLUGIN_PLUGIN_H
#define TUTTI_PLUGIN_PLUGIN_H
#include "algo.h"
#include "collnet.h"
#include "device.h"
#include "entry.h"
#include "host.h"
#include "host_tls.h"
#include "net.h"
#include "net_counters.h"
#include "net_rma.h"
#include "profiler.h"
#include "proto.h"
#include "store.h"
#include "tuner.h"
#endif
