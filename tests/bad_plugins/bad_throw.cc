// Built as C++14, where an exception may leave a function that the header says throws none.
#include "tutti/plugin/plugin.h"
#include <cstring>
#include <stdexcept>

static tutti_status rate(void *, const tutti_tune_query *, tutti_candidate *, uint32_t, uint32_t) {
  return TUTTI_OK;
}
static const tutti_tuner_v1 table = {sizeof(tutti_tuner_v1), 0, "bad-plugin", rate};

static tutti_status open_plugin(const tutti_host *, void **) {
  throw std::runtime_error("the moon is\nnot full");
}
static void close_plugin(void *) {}
static const void *get_iface(void *, const char *id) {
  return std::strcmp(id, TUTTI_TUNER) == 0 ? &table : nullptr;
}
static const char *const ifaces[] = {TUTTI_TUNER, nullptr};

extern "C" const tutti_plugin_desc tutti_plugin_v1 = {
    sizeof(tutti_plugin_desc), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, "bad-plugin", "1.0.0",      "tests",  "Apache-2.0",
    "breaks a rule",           ifaces,          nullptr,         open_plugin,  close_plugin, get_iface};
