/* A core as it was in 0.9, as small as one can be: host FILE... opens each plugin with three services and uses every interface
 * of it that 0.9 knew: a plan is asked for, bytes go through kernels, a message goes from one context to another. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/plugin/plugin.h>

static const tutti_plugin_desc *desc;
static char reason[256];

static void stop(const char *what) {
  fprintf(stderr, "%s: %s%s%s\n", desc && desc->name ? desc->name : "?", what, reason[0] ? ": " : "", reason);
  exit(1);
}
static void need(int holds, const char *what) {
  if (!holds) stop(what);
}

/* ---- services: no log, every option at its default */
static int32_t log_enabled(const tutti_host *host, tutti_log_level level) {
  (void)host, (void)level;
  return 0;
}
static void log_line(const tutti_host *host, tutti_log_level level, const char *text) {
  (void)host, (void)level, (void)text;
}
static void set_error(const tutti_host *host, tutti_status code, const char *text) {
  (void)host, (void)code;
  snprintf(reason, sizeof(reason), "%s", text);
}
static const tutti_option *option(const char *key) {
  for (const tutti_option *o = desc->options; o && o->key; o++)
    if (strcmp(o->key, key) == 0) return o;
  return NULL;
}
static tutti_status get_int(const tutti_host *host, const char *key, int64_t *out) {
  (void)host;
  const tutti_option *o = option(key);
  if (!o) return TUTTI_ERR_INVALID;
  *out = strcmp(o->default_value, "true") == 0 ? 1 : strtoll(o->default_value, NULL, 0);
  return TUTTI_OK;
}
static tutti_status get_string(const tutti_host *host, const char *key, const char **out) {
  (void)host;
  const tutti_option *o = option(key);
  if (!o) return TUTTI_ERR_INVALID;
  *out = o->default_value;
  return TUTTI_OK;
}
static const char *origin(const tutti_host *host, const char *key) {
  (void)host, (void)key;
  return "default";
}
static const tutti_host_diag_v1 diag = {sizeof(diag), 0, log_enabled, log_line, set_error};
static const tutti_host_config_v1 config = {sizeof(config), 0, get_int, get_string, origin};
static const void *service(const tutti_host *host, const char *id) {
  (void)host;
  if (strcmp(id, TUTTI_HOST_DIAG) == 0) return &diag;
  return strcmp(id, TUTTI_HOST_CONFIG) == 0 ? &config : NULL;
}

/* ---- algo: counts what the builder is told */
static uint32_t lanes, steps;
static tutti_status count_begin(void *impl, const tutti_plan_shape *shape) {
  (void)impl;
  return shape->lanes > 0 && shape->in_chunks > 0 ? TUTTI_OK : TUTTI_ERR_INVALID;
}
static tutti_status count_lane(void *impl, uint32_t group, const tutti_link *recv, uint32_t nrecv, const tutti_link *send,
                               uint32_t nsend) {
  (void)impl, (void)group, (void)recv, (void)nrecv, (void)send, (void)nsend;
  lanes++;
  return TUTTI_OK;
}
static tutti_status count_step(void *impl, const tutti_step *step, const tutti_dep *deps) {
  (void)impl, (void)deps;
  steps++;
  return step->ops != 0 && step->repeat > 0 ? TUTTI_OK : TUTTI_ERR_INVALID;
}
static void use_algo(void *state, const tutti_algo_v1 *algo) {
  static const int32_t nodes[4] = {0, 0, 0, 0}, order[4] = {0, 1, 2, 3};
  const tutti_channel channel = {order, NULL, 0, -1, -1, -1};
  const tutti_algo_request request = {sizeof(request), TUTTI_COLL_ALL_REDUCE, 1, 4, -1, 1, 0, 0, 1, sizeof(channel), nodes,
                                      &channel};
  const tutti_plan_builder builder = {sizeof(builder), 0, NULL, count_begin, count_lane, count_step};
  lanes = steps = 0;
  need(algo->supports(state, &request) == TUTTI_OK, "supports no all_reduce of 4 ranks");
  need(algo->plan(state, &request, &builder) == TUTTI_OK && lanes > 0 && steps > 0, "plans nothing");
}

/* ---- proto: 1000 bytes there and back */
static void use_proto(void *state, const tutti_proto_v1 *proto) {
  static unsigned char in[1000], out[1000], slot[32768] __attribute__((aligned(128)));
  for (size_t i = 0; i < sizeof(in); i++) in[i] = (unsigned char)(i * 7);
  const tutti_kernel encode = proto->kernel(state, TUTTI_FORM_ENCODE, TUTTI_DT_UINT8, TUTTI_RED_SUM, 0);
  const tutti_kernel decode = proto->kernel(state, TUTTI_FORM_DECODE, TUTTI_DT_UINT8, TUTTI_RED_SUM, 0);
  need(encode && decode, "offers no ENCODE or DECODE");
  if (proto->signal == TUTTI_SIGNAL_IN_DATA) {
    uint64_t done = 0;
    ((tutti_line_encode_fn)encode)(slot, in, sizeof(in), 5);
    need(((tutti_line_decode_fn)decode)(slot, out, sizeof(out), 5, &done) == 1, "decodes no line");
  } else {
    ((tutti_copy_fn)encode)(slot, in, sizeof(in));
    ((tutti_copy_fn)decode)(out, slot, sizeof(out));
  }
  need(memcmp(in, out, sizeof(in)) == 0, "changes what goes through its slots");
}

static void use_tuner(void *state, const tutti_tuner_v1 *tuner) {
  tutti_tune_query query = {sizeof(query), TUTTI_COLL_ALL_REDUCE, 4096, 4, 1, 4, 4, 0, TUTTI_LINK_CLASS_SHM};
  tutti_candidate candidate = {"ring", "simple", 5, 1, 1, 4, 65536, 8, 0, NULL};
  need(tuner->rate(state, &query, &candidate, 1, sizeof(candidate)) == TUTTI_OK, "rates nothing");
}

/* ---- net: one message between two contexts */
struct side {
  tutti_net_ctx *ctx;
  tutti_net_mr *mr;
  uint64_t word;
  int done;
};
static void drive(const tutti_net_v1 *net, struct side *s) {
  tutti_net_completion c[4];
  const int32_t n = net->progress(s->ctx, c, 4);
  need(n >= 0, "progress failed");
  for (int32_t i = 0; i < n; i++) need(c[i].status == TUTTI_OK && c[i].bytes == sizeof(s->word), "a message failed"), s->done++;
}
static void open_side(void *state, const tutti_net_v1 *net, struct side *s) {
  const tutti_net_ctx_config cfg = {sizeof(cfg), -1, 1, 0, 2, 0, 0};
  const tutti_region region = {sizeof(region), TUTTI_MEM_HOST, &s->word, sizeof(s->word), -1, -1, 0};
  need(net->ctx_create(state, 0, &cfg, &s->ctx) == TUTTI_OK, "ctx_create failed");
  need(net->mr_register(s->ctx, &region, &s->mr) == TUTTI_OK, "mr_register failed");
}
static void use_net(void *state, const tutti_net_v1 *net) {
  uint32_t count = 0, addr_bytes = TUTTI_NET_ADDR_BYTES, answer_bytes = TUTTI_NET_ADDR_BYTES;
  need(net->device_count(state, &count) == TUTTI_OK, "device_count failed");
  if (count == 0) return;
  tutti_net_dev dev = {.struct_size = sizeof(dev)};
  need(net->device_info(state, 0, &dev) == TUTTI_OK && dev.name[0], "device_info failed");
  struct side a = {NULL, NULL, 4711, 0}, b = {NULL, NULL, 0, 0};
  open_side(state, net, &a), open_side(state, net, &b);
  unsigned char addr[TUTTI_NET_ADDR_BYTES], answer[TUTTI_NET_ADDR_BYTES];
  tutti_net_listener *listener = NULL;
  tutti_net_ep *tx = NULL, *rx = NULL;
  need(net->listen(b.ctx, addr, &addr_bytes, &listener) == TUTTI_OK, "listen failed");
  need(net->connect(a.ctx, addr, addr_bytes, answer, &answer_bytes, &tx) == TUTTI_OK, "connect failed");
  const int answers = (dev.flags & TUTTI_NET_ANSWERS) != 0;
  for (long i = 0; !rx || net->ep_ready(tx) != TUTTI_OK || net->ep_ready(rx) != TUTTI_OK; i++) {
    need(i < 100000000, "the endpoints do not become ready");
    if (!rx) need(net->accept(listener, answers ? answer : NULL, answers ? answer_bytes : 0, &rx) >= 0, "accept failed");
    drive(net, &a), drive(net, &b);
  }
  net->listener_destroy(listener);
  const tutti_net_buf from = {&a.word, sizeof(a.word), a.mr, 0}, to = {&b.word, sizeof(b.word), b.mr, 0};
  need(net->recv(rx, &to, 1, NULL, 1) == TUTTI_OK && net->send(tx, &from, 1, 2) == TUTTI_OK, "posting failed");
  while (!a.done || !b.done) drive(net, &a), drive(net, &b);
  need(b.word == 4711, "a message arrived changed");
  net->ep_destroy(tx), net->ep_destroy(rx);
  net->mr_release(a.mr), net->mr_release(b.mr);
  net->ctx_destroy(a.ctx), net->ctx_destroy(b.ctx);
}

static void use(const char *file) {
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  desc = handle ? dlsym(handle, "tutti_plugin_v1") : NULL;
  if (!desc) fprintf(stderr, "%s\n", dlerror()), exit(1);
  reason[0] = '\0';
  const tutti_host host = {sizeof(host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, NULL, service};
  void *state = NULL;
  need(desc->open(&host, &state) == TUTTI_OK, "open failed");
  int used = 0;
  for (const char *const *id = desc->ifaces; *id; id++) {
    const void *table = desc->get_iface(state, *id);
    need(table != NULL, "lists an interface and does not offer it");
    if (strcmp(*id, TUTTI_ALGO) == 0) use_algo(state, table), used++;
    if (strcmp(*id, TUTTI_PROTO) == 0) use_proto(state, table), used++;
    if (strcmp(*id, TUTTI_TUNER) == 0) use_tuner(state, table), used++;
    if (strcmp(*id, TUTTI_NET) == 0) use_net(state, table), used++;
  }
  need(used > 0, "offers nothing that 0.9 knew");
  desc->close(state);
  printf("%s %s: %d\n", desc->name, desc->version, used);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) use(argv[i]);
  return argc > 1 ? 0 : 2;
}
