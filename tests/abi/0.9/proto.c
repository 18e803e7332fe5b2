/* A protocol as a vendor of 0.9 wrote it: plain bytes, copied. */
#include <string.h>
#include <tutti/plugin/plugin.h>

static void copy(void *dst, const void *src, uint64_t bytes) {
  if (bytes) memcpy(dst, src, bytes);
}
static tutti_kernel kernel(void *plugin, tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) {
  (void)plugin, (void)dtype, (void)op;
  if (flags != 0 || (form != TUTTI_FORM_ENCODE && form != TUTTI_FORM_DECODE)) return NULL;
  return (tutti_kernel)copy;
}
static const tutti_proto_v1 table = {sizeof(table), TUTTI_SIGNAL_COUNTER, "plain", 1, 1, 8, 56, kernel};

static tutti_status open_plugin(const tutti_host *host, void **plugin) {
  (void)plugin;
  return host->get_iface(host, TUTTI_HOST_DIAG) ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
}
static void close_plugin(void *plugin) {
  (void)plugin;
}
static const void *get_iface(void *plugin, const char *id) {
  (void)plugin;
  return strcmp(id, TUTTI_PROTO) == 0 ? &table : NULL;
}
static const char *const ifaces[] = {TUTTI_PROTO, NULL};

const tutti_plugin_desc tutti_plugin_v1 = {sizeof(tutti_plugin_desc),
                                           TUTTI_ABI_MAJOR,
                                           TUTTI_ABI_MINOR,
                                           "proto-plain",
                                           "1.0.0",
                                           "tests",
                                           "Apache-2.0",
                                           "bytes as they are",
                                           ifaces,
                                           NULL,
                                           open_plugin,
                                           close_plugin,
                                           get_iface};
