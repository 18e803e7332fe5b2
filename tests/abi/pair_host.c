/* A tiny core, compiled with the headers of 0.9, with today's, and with those of a fabricated next version: pair_host FILE
 * EXPECTED. It says what it could use of the plugin: "minor cost explanation". */
#include "tutti/plugin/plugin.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const void *no_services(const tutti_host *host, const char *id) {
  (void)host, (void)id;
  return NULL;
}

static const char *explanation(const tutti_tuner_v1 *tuner, void *state, char *text, uint32_t cap) {
#ifdef HAS_RAILS
  if (!TUTTI_HAS(tutti_tuner_v1, tuner, explain)) return "absent";
  return tuner->explain(state, text, cap) == TUTTI_OK ? text : "failed";
#else
  (void)tuner, (void)state, (void)text, (void)cap;
  return "unknown"; /* this host has never heard of it */
#endif
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  const tutti_plugin_desc *desc = handle ? dlsym(handle, "tutti_plugin_v1") : NULL;
  if (!desc) return fprintf(stderr, "%s\n", dlerror()), 2;
  const tutti_host host = {sizeof(host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, NULL, no_services};
  void *state = NULL;
  if (desc->open(&host, &state) != TUTTI_OK) return fprintf(stderr, "open failed\n"), 2;
  const tutti_tuner_v1 *tuner = desc->get_iface(state, TUTTI_TUNER);
  /* Bytes behind the request that an older plugin must not take for fields. */
  struct {
    tutti_tune_query query;
    unsigned char beyond[64];
  } in;
  memset(&in, 0xff, sizeof(in));
  memset(&in.query, 0, sizeof(in.query));
  in.query.struct_size = sizeof(in.query);
  in.query.nranks = 4;
#ifdef HAS_RAILS
  in.query.rails = 3;
#endif
  tutti_candidate candidate[2];
  memset(candidate, 0, sizeof(candidate));
  if (!TUTTI_HAS(tutti_tuner_v1, tuner, rate)) return fprintf(stderr, "rate is absent\n"), 2;
  if (tuner->rate(state, &in.query, candidate, 2, sizeof(candidate[0])) != TUTTI_OK) return 2;
  char text[16], said[64];
  snprintf(said, sizeof(said), "%u %.0f %s", (unsigned)desc->abi_minor, candidate[1].cost_us,
           explanation(tuner, state, text, sizeof(text)));
  desc->close(state);
  if (strcmp(said, argv[2]) == 0) return 0;
  fprintf(stderr, "expected \"%s\", the pair said \"%s\"\n", argv[2], said);
  return 1;
}
