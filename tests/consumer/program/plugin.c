/* The smallest plugin: a description and no interface that does anything. */
#include <tutti/plugin/plugin.h>

static tutti_status open_plugin(const tutti_host *host, void **plugin) {
  (void)host;
  (void)plugin;
  return TUTTI_OK;
}
static void close_plugin(void *plugin) {
  (void)plugin;
}
static const void *get_iface(void *plugin, const char *id) {
  (void)plugin;
  (void)id;
  return NULL;
}
static const char *const ifaces[] = {"consumer.nothing/1", NULL};

TUTTI_EXPORT const tutti_plugin_desc tutti_plugin_v1 = {
    sizeof(tutti_plugin_desc),
    TUTTI_ABI_MAJOR,
    TUTTI_ABI_MINOR,
    "consumer",
    "1.0.0",
    "tests",
    "Apache-2.0",
    "does nothing",
    ifaces,
    NULL,
    open_plugin,
    close_plugin,
    get_iface,
};
