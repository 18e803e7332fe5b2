// tutti/plugins/net-fault/inner.cc
#include "inner.h"
#include "tutti/plugin/host_tls.h"
#include <charconv>
#include <cstddef>
#include <dlfcn.h>
#include <unistd.h>

namespace tutti::net_fault {

using plugin::fail;

struct Inner::Services {
  static const Inner &of(const tutti_host *h) { return *static_cast<const Inner *>(h->impl); }
  static const tutti_host_diag_v1 *diag(const tutti_host *h) {
    return of(h).outer_.service<tutti_host_diag_v1>(TUTTI_HOST_DIAG);
  }
  static int32_t log_enabled(const tutti_host *h, tutti_log_level level) noexcept {
    return diag(h) ? diag(h)->log_enabled(of(h).outer_.c(), level) : 0;
  }
  static void log(const tutti_host *h, tutti_log_level level, const char *text) noexcept {
    if (diag(h)) diag(h)->log(of(h).outer_.c(), level, text);
  }
  static void set_error(const tutti_host *h, tutti_status code, const char *text) noexcept {
    if (diag(h)) diag(h)->set_error(of(h).outer_.c(), code, text);
  }
  static const Value *find(const tutti_host *h, const char *key) {
    const auto it = of(h).values_.find(key);
    return it == of(h).values_.end() ? nullptr : &it->second;
  }
  static tutti_status get_int(const tutti_host *h, const char *key, int64_t *out) noexcept {
    const Value *v = find(h, key);
    if (!v) return TUTTI_ERR_INVALID;
    *out = v->number;
    return TUTTI_OK;
  }
  static tutti_status get_string(const tutti_host *h, const char *key, const char **out) noexcept {
    const Value *v = find(h, key);
    if (!v) return TUTTI_ERR_INVALID;
    *out = v->text.c_str();
    return TUTTI_OK;
  }
  static const char *origin(const tutti_host *h, const char *key) noexcept {
    const Value *v = find(h, key);
    return v && v->set ? of(h).origin_.c_str() : "default";
  }
  template <class Table> static const Table &core(const tutti_host *h, const char *id) {
    return *of(h).outer_.service<Table>(id);
  }
  static tutti_status alloc(const tutti_host *h, tutti_mem_kind kind, uint64_t bytes, int32_t node,
                            tutti_region *out) noexcept {
    return core<tutti_host_memory_v1>(h, TUTTI_HOST_MEMORY).alloc(of(h).outer_.c(), kind, bytes, node, out);
  }
  static void release(const tutti_host *h, const tutti_region *region) noexcept {
    core<tutti_host_memory_v1>(h, TUTTI_HOST_MEMORY).release(of(h).outer_.c(), region);
  }
  static tutti_status add(const tutti_host *h, int32_t fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg) noexcept {
    return core<tutti_host_watch_v1>(h, TUTTI_HOST_WATCH).add(of(h).outer_.c(), fd, events, fn, arg);
  }
  static void remove(const tutti_host *h, int32_t fd) noexcept {
    core<tutti_host_watch_v1>(h, TUTTI_HOST_WATCH).remove(of(h).outer_.c(), fd);
  }
  // Every table that takes a host looks into it, and knows ours alone.
  static const void *get_iface(const tutti_host *h, const char *id) noexcept {
    static constexpr tutti_host_diag_v1 diag_table = {sizeof(tutti_host_diag_v1), 0, log_enabled, log, set_error};
    static constexpr tutti_host_config_v1 config_table = {sizeof(tutti_host_config_v1), 0, get_int, get_string, origin};
    static constexpr tutti_host_memory_v1 memory_table = {sizeof(tutti_host_memory_v1), 0, alloc, release};
    static constexpr tutti_host_watch_v1 watch_table = {sizeof(tutti_host_watch_v1), 0, add, remove};
    const std::string_view want(id);
    const void *cores = of(h).outer_.c()->get_iface(of(h).outer_.c(), id);
    if (want == TUTTI_HOST_DIAG) return &diag_table;
    if (want == TUTTI_HOST_CONFIG) return &config_table;
    if (want == TUTTI_HOST_MEMORY) return cores ? &memory_table : nullptr;
    if (want == TUTTI_HOST_WATCH) return cores ? &watch_table : nullptr;
    return want == TUTTI_HOST_REDUCE || want == TUTTI_HOST_TLS ? cores : nullptr; // they ask the host that they are given
  }
};

namespace {

std::string file_of(const std::string &name) {
  if (name.find('/') != std::string::npos) return name;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void *>(&file_of), &self) == 0) return name;
  std::string folder = self.dli_fname;
  folder.resize(folder.rfind('/') + 1);
  const std::string file = plugin::text(folder, "libtutti-", name, ".so");
  return access(file.c_str(), F_OK) == 0 ? file : plugin::text(folder, "libtutti-net-", name, ".so");
}

// With one of the units, or none..
bool number(std::string_view text, tutti_option_type type, int64_t &out) {
  constexpr std::pair<std::string_view, int64_t> sizes[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
                                                            {"K", 1 << 10},   {"M", 1 << 20},   {"G", 1 << 30}};
  constexpr std::pair<std::string_view, int64_t> times[] = {
      {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"min", 60000000000}};
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (err != std::errc()) return false;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (unit.empty()) return true;
  const auto scaled = [&](const auto &table) {
    for (const auto &[name, factor] : table)
      if (name == unit) return !__builtin_mul_overflow(out, factor, &out);
    return false;
  };
  return type == TUTTI_OPT_BYTES ? scaled(sizes) : type == TUTTI_OPT_DURATION && scaled(times);
}

// The first function that every net must have and this one has not; "" = it has all.
std::string missing(const tutti_net_v1 &net) {
#define TUTTI_NEEDS(function)                                                                                                  \
  if (!TUTTI_HAS(tutti_net_v1, &net, function)) return #function
  TUTTI_NEEDS(device_count);
  TUTTI_NEEDS(device_info);
  TUTTI_NEEDS(ctx_create);
  TUTTI_NEEDS(ctx_destroy);
  TUTTI_NEEDS(listen);
  TUTTI_NEEDS(connect);
  TUTTI_NEEDS(accept);
  TUTTI_NEEDS(ep_ready);
  TUTTI_NEEDS(ep_describe);
  TUTTI_NEEDS(ep_destroy);
  TUTTI_NEEDS(listener_destroy);
  TUTTI_NEEDS(mr_register);
  TUTTI_NEEDS(mr_release);
  TUTTI_NEEDS(send);
  TUTTI_NEEDS(recv);
  TUTTI_NEEDS(progress);
#undef TUTTI_NEEDS
  return "";
}

} // namespace

Inner::Value Inner::parse(const tutti_option &option, const std::string &text) const {
  Value v{text, 0, false};
  bool good = true;
  if (option.type == TUTTI_OPT_BOOL) {
    good = text == "true" || text == "false" || text == "1" || text == "0";
    v.number = text == "true" || text == "1";
  } else if (option.type <= TUTTI_OPT_DURATION) {
    good = number(text, option.type, v.number);
    good = good && (option.min == 0 && option.max == 0 ? v.number >= 0 : v.number >= option.min && v.number <= option.max);
  } else if (option.choices)
    good = plugin::text("|", option.choices, "|").find(plugin::text("|", text, "|")) != std::string::npos;
  if (!good)
    fail(TUTTI_ERR_INVALID, "inner_options (", origin_, "): \"", text, "\" is no value of option \"", option.key, "\" of ",
         desc_->name, ": ", option.help);
  return v;
}

void Inner::read_options(const std::vector<std::string> &options) {
  std::string known;
  for (const tutti_option *o = desc_->options; o && o->key; ++o) {
    values_[o->key] = parse(*o, o->default_value);
    known += plugin::text(known.empty() ? "" : ", ", o->key);
  }
  for (const std::string &entry : options) {
    const size_t equals = entry.find('=');
    const std::string key = entry.substr(0, equals);
    const tutti_option *o = desc_->options;
    while (o && o->key && key != o->key) ++o;
    if (equals == std::string::npos || !o || !o->key)
      fail(TUTTI_ERR_INVALID, "inner_options (", origin_, "): \"", entry, "\" is not key=value with an option of ", desc_->name,
           ": ", known);
    values_[key] = parse(*o, entry.substr(equals + 1));
    values_[key].set = true;
  }
}

Inner::Inner(const Host &outer, const std::string &name, const std::vector<std::string> &options, const std::string &origin)
    : outer_(outer), origin_(origin) {
  const std::string file = file_of(name);
  void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); // stays mapped, as plugins do
  if (!handle) fail(TUTTI_ERR_INVALID, "inner \"", name, "\" cannot be loaded: ", dlerror());
  desc_ = static_cast<const tutti_plugin_desc *>(dlsym(handle, "tutti_plugin_v1"));
  if (!desc_) fail(TUTTI_ERR_INVALID, "inner \"", name, "\" is no plugin: ", file, " has no tutti_plugin_v1");
  if (desc_->abi_major != TUTTI_ABI_MAJOR || desc_->abi_minor != TUTTI_ABI_MINOR)
    fail(TUTTI_ERR_INVALID, "inner \"", name, "\" is built for plugin ABI ", desc_->abi_major, ".", desc_->abi_minor);
  read_options(options);
  host_ = {sizeof(tutti_host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, this, Services::get_iface};
  if (const tutti_status s = desc_->open(&host_, &state_); s < 0) throw plugin::Error(s, "");
  net_ = static_cast<const tutti_net_v1 *>(desc_->get_iface(state_, TUTTI_NET));
  const std::string lacks = net_ ? missing(*net_) : std::string();
  if (net_ && lacks.empty()) return;
  desc_->close(state_);
  if (net_) fail(TUTTI_ERR_INVALID, "inner \"", name, "\": its ", TUTTI_NET, " has no ", lacks, "()");
  fail(TUTTI_ERR_INVALID, "inner \"", name, "\" offers no ", TUTTI_NET);
}

Inner::~Inner() {
  desc_->close(state_);
}

} // namespace tutti::net_fault
