#include "plugin/rules.h"
#include <cctype>
#include <fmt/format.h>
#include <set>
#include <string_view>

namespace tutti {
namespace {

// Sizes of the 0.9 structs: what every later version starts with. tests/abi/layout_0_9.c freezes the same numbers.
constexpr uint32_t kDesc09 = 88, kNet09 = 168, kAlgo09 = 40, kProto09 = 40, kTuner09 = 24, kRma09 = 24, kCounters09 = 16,
                   kCollnet09 = 152, kStore09 = 72;
static_assert(sizeof(tutti_plugin_desc) >= kDesc09 && sizeof(tutti_net_v1) >= kNet09 && sizeof(tutti_algo_v1) >= kAlgo09 &&
              sizeof(tutti_proto_v1) >= kProto09 && sizeof(tutti_tuner_v1) >= kTuner09 && sizeof(tutti_net_rma_v1) >= kRma09 &&
              sizeof(tutti_net_counters_v1) >= kCounters09 && sizeof(tutti_collnet_v1) >= kCollnet09 &&
              sizeof(tutti_store_v1) >= kStore09);

bool valid_name(const char *name, std::string_view extra) {
  if (!name || !*name) return false;
  size_t n = 0;
  for (const char *c = name; *c; c++, n++)
    if (n >= 64 || !(std::islower(static_cast<unsigned char>(*c)) || std::isdigit(static_cast<unsigned char>(*c)) ||
                     extra.find(*c) != std::string_view::npos))
      return false;
  return true;
}

// "vendor.thing/1": dots between words, a number at the end.
bool valid_id(std::string_view id) {
  const size_t slash = id.rfind('/');
  if (slash == std::string_view::npos || slash + 1 == id.size() || id.find('.') == std::string_view::npos) return false;
  for (char c : id.substr(slash + 1))
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  return id.size() <= 128;
}

std::string shown(const char *text) {
  return text ? fmt::format("\"{:.80}\"", text) : "NULL";
}

class Findings {
public:
  void fatal(const char *rule, std::string text, std::string todo = "") { add(rule, std::move(text), std::move(todo), true); }
  void note(const char *rule, std::string text, std::string todo = "") { add(rule, std::move(text), std::move(todo), false); }
  void need(const char *rule, const void *pointer, const char *owner, const char *member) {
    if (!pointer) fatal(rule, fmt::format("{}.{} is NULL", owner, member), "set it: it is not optional");
  }
  StaticFindings take() { return std::move(list_); }

private:
  void add(const char *rule, std::string text, std::string todo, bool is_fatal) {
    list_.push_back({rule, std::move(text), std::move(todo), is_fatal});
  }
  StaticFindings list_;
};

void check_version(const tutti_plugin_desc &d, Findings *f) {
  // Before 1.0 a version may change what the one before it had, as 0.9 did with connect() and accept() of 0.1.
  constexpr uint32_t kOldestMinor = TUTTI_ABI_MAJOR == 0 ? TUTTI_ABI_MINOR : 0;
  if (d.abi_major == TUTTI_ABI_MAJOR && d.abi_minor >= kOldestMinor && d.abi_minor <= TUTTI_ABI_MINOR) return;
  const std::string newest = fmt::format("{}.{}", TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR);
  const std::string speaks =
      kOldestMinor == TUTTI_ABI_MINOR ? newest : fmt::format("{}.{} to {}", TUTTI_ABI_MAJOR, kOldestMinor, newest);
  f->fatal(
      d.abi_major == TUTTI_ABI_MAJOR ? "P-ENTRY-04" : "P-ENTRY-03",
      fmt::format("is built for plugin ABI {}.{}, this core speaks {}", d.abi_major, d.abi_minor, speaks),
      fmt::format("rebuild it against these headers, or use it with a core of plugin ABI {}.{}", d.abi_major, d.abi_minor));
}

void check_ids(const tutti_plugin_desc &d, Findings *f) {
  if (!d.ifaces || !d.ifaces[0]) return f->fatal("P-ENTRY-08", "lists no interface", "name at least one in ifaces");
  std::set<std::string_view> seen;
  for (uint32_t i = 0; d.ifaces[i]; i++) {
    if (i >= kMaxIfaces)
      return f->fatal("P-ENTRY-08", fmt::format("list of interfaces has no end after {}", i), "end it with NULL");
    const std::string_view id = d.ifaces[i];
    if (!valid_id(id))
      f->fatal("P-ENTRY-09", fmt::format("interface id {} is malformed", shown(d.ifaces[i])), "write ids as \"name.thing/1\"");
    if (!seen.insert(id).second) f->fatal("P-ENTRY-09", fmt::format("interface id \"{}\" is listed twice", id), "list it once");
    if (id.starts_with("tutti.draft.") && d.abi_minor != TUTTI_ABI_MINOR)
      f->fatal("P-ENTRY-10",
               fmt::format("offers \"{}\" of ABI {}.{}, but drafts load only in a core of the same version ({}.{})", id,
                           d.abi_major, d.abi_minor, TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR),
               "rebuild it against these headers");
  }
}

void check_option(const tutti_option &o, Findings *f) {
  const std::string who = fmt::format("option {}", shown(o.key));
  if (!valid_name(o.key, "_")) f->fatal("P-OPT-02", who + ": key is not of [a-z0-9_]", "rename it");
  if (o.type > TUTTI_OPT_STRING_LIST)
    f->fatal("P-OPT-03", fmt::format("{}: unknown type {}", who, o.type), "use a TUTTI_OPT_* value");
  if (!o.default_value) f->fatal("P-OPT-04", who + ": default_value is NULL", "use \"\" for an empty string or list");
  if (!o.help || !*o.help) f->fatal("P-OPT-05", who + ": has no help", "say in one sentence what it does");
  if (o.min > o.max)
    f->fatal("P-OPT-06", fmt::format("{}: range is empty: [{}, {}]", who, o.min, o.max), "exchange min and max");
  if (o.choices && o.type != TUTTI_OPT_STRING) f->fatal("P-OPT-07", who + ": choices belong to TUTTI_OPT_STRING", "drop them");
  if (o.reserved0 != 0) f->fatal("P-OPT-08", fmt::format("{}: reserved0 is {}", who, o.reserved0), "set it to 0");
}

void check_options(const tutti_plugin_desc &d, Findings *f) {
  if (!d.options) return;
  std::set<std::string_view> seen;
  for (uint32_t i = 0; d.options[i].key; i++) {
    if (i >= kMaxOptions)
      return f->fatal("P-OPT-01", fmt::format("option table has no end after {}", i), "end it with key == NULL");
    check_option(d.options[i], f);
    if (!seen.insert(d.options[i].key).second)
      f->fatal("P-OPT-09", fmt::format("option {} is declared twice", shown(d.options[i].key)), "drop one");
  }
}

// Every table begins with struct_size; all but the tables of drafts are at least as long as in 0.9.
bool check_size(uint32_t size, uint32_t least, const char *what, Findings *f) {
  if (size >= least) return true;
  f->fatal("P-TABLE-02", fmt::format("{}.struct_size is {}, at least {} is needed", what, size, least),
           "set it to sizeof the struct of these headers");
  return false;
}

void check_reserved(uint32_t reserved, const char *what, Findings *f) {
  if (reserved != 0) f->fatal("P-TABLE-05", fmt::format("{}.reserved0 is {}", what, reserved), "set it to 0");
}

void check_table_name(const char *name, const char *what, Findings *f) {
  if (!valid_name(name, "-_"))
    f->fatal("P-TABLE-04", fmt::format("{}.name is {}, expected [a-z0-9_-], up to 64", what, shown(name)), "give it a name");
}

#define TUTTI_NEED(t, what, member) f->need("P-TABLE-03", reinterpret_cast<const void *>((t).member), what, #member)

void check_net(const tutti_net_v1 &t, Findings *f) {
  const char *w = "tutti_net_v1";
  if (!check_size(t.struct_size, kNet09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  check_table_name(t.name, w, f);
  TUTTI_NEED(t, w, device_count);
  TUTTI_NEED(t, w, device_info);
  TUTTI_NEED(t, w, ctx_create);
  TUTTI_NEED(t, w, ctx_destroy);
  TUTTI_NEED(t, w, listen);
  TUTTI_NEED(t, w, connect);
  TUTTI_NEED(t, w, accept);
  TUTTI_NEED(t, w, ep_ready);
  TUTTI_NEED(t, w, ep_describe);
  TUTTI_NEED(t, w, ep_destroy);
  TUTTI_NEED(t, w, listener_destroy);
  TUTTI_NEED(t, w, mr_register);
  TUTTI_NEED(t, w, mr_release);
  TUTTI_NEED(t, w, send);
  TUTTI_NEED(t, w, recv);
  TUTTI_NEED(t, w, progress);
  if (!t.event_fd != !t.arm)
    f->fatal("P-TABLE-06", "tutti_net_v1 has one of event_fd and arm without the other", "offer both or none");
}

void check_rma(const tutti_net_rma_v1 &t, Findings *f) {
  const char *w = "tutti_net_rma_v1";
  if (!check_size(t.struct_size, kRma09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  TUTTI_NEED(t, w, mr_key);
  TUTTI_NEED(t, w, get);
}

void check_counters(const tutti_net_counters_v1 &t, Findings *f) {
  const char *w = "tutti_net_counters_v1";
  if (!check_size(t.struct_size, kCounters09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  TUTTI_NEED(t, w, read);
}

void check_collnet(const tutti_collnet_v1 &t, Findings *f) {
  const char *w = "tutti_collnet_v1";
  if (!check_size(t.struct_size, kCollnet09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  check_table_name(t.name, w, f);
  TUTTI_NEED(t, w, device_count);
  TUTTI_NEED(t, w, device_info);
  TUTTI_NEED(t, w, ctx_create);
  TUTTI_NEED(t, w, ctx_destroy);
  TUTTI_NEED(t, w, listen);
  TUTTI_NEED(t, w, listener_destroy);
  TUTTI_NEED(t, w, group_create);
  TUTTI_NEED(t, w, group_ready);
  TUTTI_NEED(t, w, group_why);
  TUTTI_NEED(t, w, group_describe);
  TUTTI_NEED(t, w, group_destroy);
  TUTTI_NEED(t, w, mr_register);
  TUTTI_NEED(t, w, mr_release);
  TUTTI_NEED(t, w, post);
  TUTTI_NEED(t, w, progress);
  if (!t.event_fd != !t.arm)
    f->fatal("P-TABLE-06", "tutti_collnet_v1 has one of event_fd and arm without the other", "offer both or none");
}

void check_algo(const tutti_algo_v1 &t, Findings *f) {
  const char *w = "tutti_algo_v1";
  if (!check_size(t.struct_size, kAlgo09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  check_table_name(t.name, w, f);
  TUTTI_NEED(t, w, supports);
  TUTTI_NEED(t, w, plan);
}

bool power_of_two(uint32_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

void check_proto(const tutti_proto_v1 &t, void *plugin, Findings *f) {
  const char *w = "tutti_proto_v1";
  if (!check_size(t.struct_size, kProto09, w, f)) return;
  check_table_name(t.name, w, f);
  TUTTI_NEED(t, w, kernel);
  if (t.signal > TUTTI_SIGNAL_DESCRIPTOR)
    return f->fatal("P-PROTO-01", fmt::format("{}.signal is {}, which this core does not know", w, t.signal),
                    "use a TUTTI_SIGNAL_* value");
  const bool counter_ok = t.line_bytes == 1 && t.payload_bytes == 1 && t.atomic_store_bytes == 8 && t.flag_offset == 56;
  if (t.signal != TUTTI_SIGNAL_IN_DATA && !counter_ok)
    f->fatal("P-PROTO-02",
             fmt::format("{}: {} needs line 1, payload 1, atomic store 8, flag offset 56; it has {}, {}, {}, {}", w,
                         t.signal == TUTTI_SIGNAL_COUNTER ? "COUNTER" : "DESCRIPTOR", t.line_bytes, t.payload_bytes,
                         t.atomic_store_bytes, t.flag_offset),
             "set them so");
  const bool lines_ok = power_of_two(t.line_bytes) && t.line_bytes >= 16 && t.payload_bytes > 0 && t.payload_bytes % 8 == 0 &&
                        t.payload_bytes <= t.line_bytes - 8 && power_of_two(t.atomic_store_bytes) &&
                        t.atomic_store_bytes >= 8 && t.atomic_store_bytes <= t.line_bytes && t.flag_offset % 8 == 0 &&
                        t.flag_offset <= t.line_bytes - 8;
  if (t.signal == TUTTI_SIGNAL_IN_DATA && !lines_ok)
    f->fatal(
        "P-PROTO-02",
        fmt::format("{}: line {}, payload {}, atomic store {}, flag offset {} do not fit together", w, t.line_bytes,
                    t.payload_bytes, t.atomic_store_bytes, t.flag_offset),
        "a line is a power of two from 16 on and holds the payload, a multiple of 8, and an 8-byte aligned flag; the atomic "
        "store is a power of two from 8 to the line");
  if (!t.kernel) return;
  for (const tutti_form form : {TUTTI_FORM_ENCODE, TUTTI_FORM_DECODE})
    if (!t.kernel(plugin, form, TUTTI_DT_UINT8, TUTTI_RED_SUM, 0))
      f->fatal("P-PROTO-03", fmt::format("{}.kernel offers no {}", w, form == TUTTI_FORM_ENCODE ? "ENCODE" : "DECODE"),
               "offer both: they have no substitute");
}

void check_tuner(const tutti_tuner_v1 &t, Findings *f) {
  const char *w = "tutti_tuner_v1";
  if (!check_size(t.struct_size, kTuner09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  check_table_name(t.name, w, f);
  TUTTI_NEED(t, w, rate);
}

void check_store(const tutti_store_v1 &t, Findings *f) {
  const char *w = "tutti_store_v1";
  if (!check_size(t.struct_size, kStore09, w, f)) return;
  check_reserved(t.reserved0, w, f);
  check_table_name(t.name, w, f);
  if (!t.schemes || !t.schemes[0]) f->fatal("P-TABLE-09", "tutti_store_v1 has no schemes", "name at least one");
  for (uint32_t i = 0; t.schemes && t.schemes[i]; i++) {
    if (i >= kMaxIfaces)
      return f->fatal("P-TABLE-09", fmt::format("list of schemes has no end after {}", i), "end it with NULL");
    if (!valid_name(t.schemes[i], "+-."))
      f->fatal("P-TABLE-09", fmt::format("scheme {} is not of [a-z0-9+.-]", shown(t.schemes[i])), "write it without \"://\"");
  }
  TUTTI_NEED(t, w, open);
  TUTTI_NEED(t, w, set);
  TUTTI_NEED(t, w, add);
  TUTTI_NEED(t, w, get);
  TUTTI_NEED(t, w, remove);
  TUTTI_NEED(t, w, close);
}

} // namespace

StaticFindings check_desc(const tutti_plugin_desc *desc) {
  Findings f;
  const tutti_plugin_desc &d = *desc;
  check_version(d, &f); // first: of another major version nothing else can be trusted
  if (d.abi_major != TUTTI_ABI_MAJOR) return f.take();
  if (d.struct_size < kDesc09) {
    f.fatal("P-ENTRY-05", fmt::format("tutti_plugin_desc.struct_size is {}, at least {} is needed", d.struct_size, kDesc09),
            "set it to sizeof(tutti_plugin_desc)");
    return f.take();
  }
  if (!valid_name(d.name, "-"))
    f.fatal("P-ENTRY-06", fmt::format("name is {}, expected [a-z0-9-], up to 64", shown(d.name)), "rename it");
  const std::pair<const char *, const char *> texts[] = {
      {"version", d.version}, {"vendor", d.vendor}, {"license", d.license}, {"summary", d.summary}};
  for (const auto &[member, value] : texts)
    if (!value || !*value) f.fatal("P-ENTRY-07", fmt::format("{} is missing", member), "fill it in");
  check_ids(d, &f);
  check_options(d, &f);
  const char *w = "tutti_plugin_desc";
  f.need("P-ENTRY-11", reinterpret_cast<const void *>(d.open), w, "open");
  f.need("P-ENTRY-11", reinterpret_cast<const void *>(d.close), w, "close");
  f.need("P-ENTRY-11", reinterpret_cast<const void *>(d.get_iface), w, "get_iface");
  return f.take();
}

StaticFindings check_table(const tutti_plugin_desc &, const std::string &id, const void *table, void *plugin) {
  Findings f;
  if (!table)
    f.fatal("P-TABLE-01", fmt::format("lists \"{}\" but get_iface() gives NULL for it", id),
            "return the table, or do not list the id");
  else if (id == TUTTI_NET)
    check_net(*static_cast<const tutti_net_v1 *>(table), &f);
  else if (id == TUTTI_NET_RMA)
    check_rma(*static_cast<const tutti_net_rma_v1 *>(table), &f);
  else if (id == TUTTI_NET_COUNTERS)
    check_counters(*static_cast<const tutti_net_counters_v1 *>(table), &f);
  else if (id == TUTTI_COLLNET)
    check_collnet(*static_cast<const tutti_collnet_v1 *>(table), &f);
  else if (id == TUTTI_ALGO)
    check_algo(*static_cast<const tutti_algo_v1 *>(table), &f);
  else if (id == TUTTI_PROTO)
    check_proto(*static_cast<const tutti_proto_v1 *>(table), plugin, &f);
  else if (id == TUTTI_TUNER)
    check_tuner(*static_cast<const tutti_tuner_v1 *>(table), &f);
  else if (id == TUTTI_STORE)
    check_store(*static_cast<const tutti_store_v1 *>(table), &f);
  return f.take();
}

} // namespace tutti
