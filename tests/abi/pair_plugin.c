/* A tuner compiled with the headers of 0.9, with today's, and with those of a fabricated next version. */
#include "tutti/plugin/plugin.h"
#include <string.h>

static int64_t rails_of(const tutti_tune_query *query) {
#ifdef HAS_RAILS
  /* An appended field: a host of 0.9 does not have it, which reads as 0. */
  if (query->struct_size >= offsetof(tutti_tune_query, rails) + sizeof(query->rails)) return query->rails;
#endif
  (void)query;
  return 0;
}

static tutti_status rate(void *plugin, const tutti_tune_query *query, tutti_candidate *candidates, uint32_t n,
                         uint32_t candidate_size) {
  (void)plugin;
  for (uint32_t i = 0; i < n; i++) {
    tutti_candidate *c = (tutti_candidate *)((char *)candidates + (size_t)i * candidate_size);
    c->cost_us = (double)(query->nranks * 10 + rails_of(query));
  }
  return TUTTI_OK;
}

#ifdef HAS_RAILS
static tutti_status explain(void *plugin, char *text, uint32_t cap) {
  (void)plugin;
  if (cap < 4) return TUTTI_ERR_INVALID;
  memcpy(text, "why", 4);
  return TUTTI_OK;
}
static const tutti_tuner_v1 table = {sizeof(table), 0, "pair", rate, explain};
#else
static const tutti_tuner_v1 table = {sizeof(table), 0, "pair", rate};
#endif

static tutti_status open_plugin(const tutti_host *host, void **plugin) {
  (void)plugin;
  return host->abi_major == TUTTI_ABI_MAJOR ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
}
static void close_plugin(void *plugin) {
  (void)plugin;
}
static const void *get_iface(void *plugin, const char *id) {
  (void)plugin;
  return strcmp(id, TUTTI_TUNER) == 0 ? &table : NULL;
}
static const char *const ifaces[] = {TUTTI_TUNER, NULL};

const tutti_plugin_desc tutti_plugin_v1 = {sizeof(tutti_plugin_desc),
                                           TUTTI_ABI_MAJOR,
                                           TUTTI_ABI_MINOR,
                                           "pair",
                                           "1.0.0",
                                           "tests",
                                           "Apache-2.0",
                                           "old and new",
                                           ifaces,
                                           NULL,
                                           open_plugin,
                                           close_plugin,
                                           get_iface};
