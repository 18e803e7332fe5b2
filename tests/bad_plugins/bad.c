/* Plugins that break one rule each; the rule is chosen by a macro. Everything else is right. */
#include "tutti/plugin/plugin.h"
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef NAME
#define NAME "bad-plugin"
#endif
#ifndef MAJOR
#define MAJOR TUTTI_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR TUTTI_ABI_MINOR
#endif
#ifndef DESC_SIZE
#define DESC_SIZE sizeof(tutti_plugin_desc)
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(tutti_tuner_v1)
#endif
#ifndef RATE
#define RATE rate
#endif
#ifndef OPEN
#define OPEN open_ok
#endif
#ifndef IFACES
#define IFACES TUTTI_TUNER
#endif
#ifndef OPTIONS
#define OPTIONS NULL
#endif

#ifdef CONSTRUCTOR
/* Must never run: the file exports no tutti_plugin_v1, so it is a stranger's. */
__attribute__((constructor)) static void leave_a_trace(void) {
  setenv("TUTTI_TEST_CONSTRUCTOR_RAN", "1", 1);
}
TUTTI_EXPORT int somebody_elses_function(void);
TUTTI_EXPORT int somebody_elses_function(void) {
  return 1;
}
#else

__attribute__((unused)) static tutti_status rate(void *plugin, const tutti_tune_query *query, tutti_candidate *list, uint32_t n,
                                                 uint32_t size) {
  (void)plugin, (void)query, (void)list, (void)n, (void)size;
  return TUTTI_OK;
}
static const tutti_tuner_v1 table = {TABLE_SIZE, 0, NAME, RATE};

__attribute__((unused)) static tutti_status open_ok(const tutti_host *host, void **plugin) {
  (void)host, (void)plugin;
  return TUTTI_OK;
}
#ifdef OPEN_NEEDS_LIBRARY
int tutti_test_absent(void);
static tutti_status open_needs_library(const tutti_host *host, void **plugin) {
  (void)host, (void)plugin;
  return tutti_test_absent();
}
#endif
#ifdef OPEN_CRASHES
static tutti_status open_crash(const tutti_host *host, void **plugin) {
  (void)host, (void)plugin;
  abort();
}
#endif
#ifdef OPEN_HANGS
static tutti_status open_hang(const tutti_host *host, void **plugin) {
  (void)host, (void)plugin;
  while (pause() != 0) {
  }
  return TUTTI_OK;
}
#endif
#ifdef OPEN_REFUSES
static tutti_status open_refuse(const tutti_host *host, void **plugin) {
  const tutti_host_diag_v1 *diag = host->get_iface(host, TUTTI_HOST_DIAG);
  (void)plugin;
  diag->set_error(host, TUTTI_ERR_UNSUPPORTED, "the moon is\nnot full");
  return TUTTI_ERR_UNSUPPORTED;
}
#endif
#ifdef OPEN_TALKS
/* A megabyte of warnings, and one line that is a megabyte. */
static tutti_status open_talk(const tutti_host *host, void **plugin) {
  static char text[1000001];
  const tutti_host_diag_v1 *diag = host->get_iface(host, TUTTI_HOST_DIAG);
  (void)plugin;
  memset(text, 'x', sizeof(text) - 1);
  diag->log(host, TUTTI_LOG_WARN, text);
  for (int i = 0; i < 1000; i++) diag->log(host, TUTTI_LOG_WARN, text + sizeof(text) - 1001);
  return TUTTI_OK;
}
#endif
#ifdef OPEN_WATCHES
/* Not bad: needs a service that only some hosts have, and watches what cannot be watched. */
static void never(void *arg, uint32_t ready) {
  (void)arg, (void)ready;
}
static tutti_status open_watch(const tutti_host *host, void **plugin) {
  const tutti_host_watch_v1 *watch = host->get_iface(host, TUTTI_HOST_WATCH);
  (void)plugin;
  if (!watch) return TUTTI_ERR_UNSUPPORTED;
  return watch->add(host, -1, TUTTI_WATCH_READ, never, NULL) == TUTTI_ERR_INVALID ? TUTTI_OK : TUTTI_ERR_INTERNAL;
}
#endif
/* What each takes from the process, or from the host, and does not give back. */
#ifdef OPEN_TAKES
static void *sleep_on(void *arg) {
  (void)arg;
  for (;;) pause();
  return NULL;
}
__attribute__((unused)) static void *log_later(void *arg) {
  const tutti_host *host = arg;
  const tutti_host_diag_v1 *diag = host->get_iface(host, TUTTI_HOST_DIAG);
  const struct timespec moment = {0, 20000000};
  for (;;) {
    diag->log(host, TUTTI_LOG_WARN, "still here");
    nanosleep(&moment, NULL);
  }
  return NULL;
}
__attribute__((unused)) static void start(void *(*fn)(void *), const void *arg) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, fn, (void *)arg) == 0) pthread_detach(thread);
}
__attribute__((unused)) static void seen(void *arg, uint32_t ready) {
  (void)arg, (void)ready;
}
__attribute__((unused)) static void close_all(int first, int last) {
  for (int fd = first; fd <= last; fd++) close(fd);
}
__attribute__((unused)) static void take_memory(const tutti_host *host) {
  const tutti_host_memory_v1 *memory = host->get_iface(host, TUTTI_HOST_MEMORY);
  tutti_region region = {sizeof(tutti_region), 0, NULL, 0, 0, 0, 0};
  memory->alloc(host, TUTTI_MEM_HOST, 5000, -1, &region);
}
__attribute__((unused)) static int ends[2];
__attribute__((unused)) static void watch_pipe(const tutti_host *host) {
  const tutti_host_watch_v1 *watch = host->get_iface(host, TUTTI_HOST_WATCH);
  if (pipe(ends) == 0) watch->add(host, ends[0], TUTTI_WATCH_READ, seen, NULL);
}
__attribute__((unused)) static void fork_and_wait(void) {
  const pid_t child = fork();
  if (child == 0) sleep_on(NULL);
}
static tutti_status open_take(const tutti_host *host, void **plugin) {
  (void)host, (void)plugin, (void)sleep_on;
  OPEN_TAKES;
  return TUTTI_OK;
}
#endif
#ifdef OPEN_ANSWERS
static tutti_status open_answer(const tutti_host *host, void **plugin) {
  (void)host, (void)plugin;
  return OPEN_ANSWERS;
}
#endif
static void close_plugin(void *plugin) {
  (void)plugin;
}
static const void *get_iface(void *plugin, const char *id) {
  (void)plugin;
#ifdef NO_TABLE
  (void)table, (void)id;
  return NULL;
#else
  return strcmp(id, TUTTI_TUNER) == 0 ? &table : NULL;
#endif
}
static const char *const ifaces[] = {IFACES, NULL};
#ifdef WITH_OPTIONS
static const tutti_option options[] = {{"same", "1", "an option", NULL, NULL, 0, 9, TUTTI_OPT_INT, 0},
                                       {"same", "1", "again", NULL, NULL, 0, 9, TUTTI_OPT_INT, 0},
                                       {0}};
#endif

#ifdef WITH_HELPER
TUTTI_EXPORT int helper_of_mine(void);
TUTTI_EXPORT int helper_of_mine(void) {
  return 1;
}
#endif

const tutti_plugin_desc tutti_plugin_v1 = {DESC_SIZE,       MAJOR,  MINOR,   NAME, "1.0.0",      "tests",  "Apache-2.0",
                                           "breaks a rule", ifaces, OPTIONS, OPEN, close_plugin, get_iface};
#endif
