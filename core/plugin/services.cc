#include "plugin/services.h"
#include "base/fork.h"
#include "base/time.h"
#include "log/log.h"
#include "plugin/guard.h"
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti {
namespace {

const Plugin &plugin_of(const tutti_host *host) {
  return *static_cast<const Plugin *>(host->impl);
}

// Plugins hand in any bytes; a log line stays one line of bounded length.
std::string one_line(const char *text) {
  constexpr size_t kMaxLine = 1000;
  std::string out(text ? text : "", text ? ::strnlen(text, kMaxLine) : 0);
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

// ---- diag ----
struct LastError {
  const Plugin *plugin = nullptr;
  tutti_status status = TUTTI_OK;
  std::string text;
};
thread_local LastError t_last_error;

log::Level level_of(tutti_log_level level) {
  switch (level) {
  case TUTTI_LOG_TRACE:
    return log::Level::trace;
  case TUTTI_LOG_DEBUG:
    return log::Level::debug;
  case TUTTI_LOG_INFO:
    return log::Level::info;
  case TUTTI_LOG_WARN:
    return log::Level::warn;
  default:
    return log::Level::error;
  }
}
// Set by LogBudget::take() for the thread that opens a new second: lines dropped in the one before.
thread_local uint32_t t_suppressed = 0;

int32_t diag_enabled(const tutti_host *, tutti_log_level level) noexcept {
  return log::enabled(level_of(level), log::Subsys::plugin) ? 1 : 0;
}
void diag_log(const tutti_host *host, tutti_log_level level, const char *text) noexcept {
  if (!diag_enabled(host, level)) return;
  const Plugin &plugin = plugin_of(host);
  const LogBudget::Answer answer = plugin.log_budget.take();
  if (const uint32_t n = std::exchange(t_suppressed, 0))
    log::warn(log::Subsys::plugin, "{}: {} lines suppressed, a plugin may write {} in a second", plugin.desc->name, n,
              LogBudget::kLinesPerSecond);
  if (answer == LogBudget::Answer::drop) return;
  log::write(level_of(level), log::Subsys::plugin, fmt::format("{}: {}", plugin.desc->name, one_line(text)));
  if (answer == LogBudget::Answer::write_last)
    log::warn(log::Subsys::plugin, "{}: further lines of this second are dropped, a plugin may write {}", plugin.desc->name,
              LogBudget::kLinesPerSecond);
}
void diag_set_error(const tutti_host *host, tutti_status code, const char *text) noexcept {
  t_last_error = {&plugin_of(host), code, one_line(text)};
}
const tutti_host_diag_v1 kDiag = {sizeof(tutti_host_diag_v1), 0, diag_enabled, diag_log, diag_set_error};

// ---- config ----
const tutti_option *find_option(const Plugin &plugin, const char *key) {
  for (const tutti_option *o = plugin.desc->options; key && o && o->key; o++)
    if (std::strcmp(o->key, key) == 0) return o;
  return nullptr;
}
const Setting *find_setting(const tutti_host *host, const char *key, bool number) {
  const Plugin &plugin = plugin_of(host);
  const tutti_option *option = find_option(plugin, key);
  const auto it = key ? plugin.settings.find(key) : plugin.settings.end();
  const bool is_number = option && option->type <= TUTTI_OPT_DURATION;
  if (option && is_number == number && it != plugin.settings.end()) return &it->second;
  const std::string what = option ? fmt::format("option \"{}\" is not a {}", key, number ? "number" : "text")
                                  : fmt::format("the plugin declares no option \"{}\"", key ? key : "(null)");
  diag_set_error(host, TUTTI_ERR_INVALID, what.c_str());
  return nullptr;
}
tutti_status config_get_int(const tutti_host *host, const char *key, int64_t *out) noexcept {
  const Setting *setting = find_setting(host, key, true);
  if (!setting) return TUTTI_ERR_INVALID;
  *out = setting->number;
  return TUTTI_OK;
}
tutti_status config_get_string(const tutti_host *host, const char *key, const char **out) noexcept {
  const Setting *setting = find_setting(host, key, false);
  if (!setting) return TUTTI_ERR_INVALID;
  *out = setting->text.c_str(); // lists were joined when the plugin was loaded
  return TUTTI_OK;
}
const char *config_origin(const tutti_host *host, const char *key) noexcept {
  const Plugin &plugin = plugin_of(host);
  const auto it = key ? plugin.settings.find(key) : plugin.settings.end();
  return it == plugin.settings.end() ? "" : it->second.origin.c_str();
}
const tutti_host_config_v1 kConfig = {sizeof(tutti_host_config_v1), 0, config_get_int, config_get_string, config_origin};

// ---- memory ----
std::atomic<uint64_t> g_memory_in_use{0}; // relaxed: a count, orders nothing

uint64_t pages(uint64_t bytes) {
  static const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}
// Takes `bytes` from the cap, or leaves everything as it was.
bool take_memory(uint64_t bytes, uint64_t cap, uint64_t *in_use) {
  *in_use = g_memory_in_use.load(std::memory_order_relaxed);
  do {
    if (cap != 0 && (*in_use > cap || bytes > cap - *in_use)) return false;
  } while (!g_memory_in_use.compare_exchange_weak(*in_use, *in_use + bytes, std::memory_order_relaxed));
  return true;
}
// A wish: without permission or NUMA the memory comes from anywhere.
void prefer_node(void *addr, uint64_t bytes, int32_t node) {
#ifdef SYS_mbind
  constexpr int kPreferred = 1; // MPOL_PREFERRED
  if (node < 0 || node >= 64) return;
  const unsigned long mask = 1ul << node;
  (void)::syscall(SYS_mbind, addr, bytes, kPreferred, &mask, sizeof(mask) * 8, 0u);
#else
  (void)addr, (void)bytes, (void)node;
#endif
}
tutti_status memory_alloc(const tutti_host *host, tutti_mem_kind kind, uint64_t bytes, int32_t node,
                          tutti_region *region) noexcept {
  const auto refuse = [&](tutti_status code, const std::string &text) {
    diag_set_error(host, code, text.c_str());
    return code;
  };
  if (kind != TUTTI_MEM_HOST)
    return refuse(TUTTI_ERR_UNSUPPORTED, fmt::format("memory of kind {:#x} is not available in this core", kind));
  if (bytes == 0 || bytes > UINT64_MAX / 2 || !region)
    return refuse(TUTTI_ERR_INVALID, fmt::format("{} bytes asked for", bytes));
  const uint64_t size = pages(bytes), cap = plugin_of(host).memory_cap;
  uint64_t in_use = 0;
  if (!take_memory(size, cap, &in_use))
    return refuse(TUTTI_ERR_NO_MEMORY,
                  fmt::format("{} bytes do not fit under memory.cap = {}: plugins hold {}", size, cap, in_use));
  void *addr = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (addr == MAP_FAILED) {
    const int err = errno;
    g_memory_in_use.fetch_sub(size, std::memory_order_relaxed);
    return refuse(TUTTI_ERR_NO_MEMORY, fmt::format("mmap of {} bytes: {}", size, std::strerror(err)));
  }
  prefer_node(addr, size, node);
  tutti_region filled{};
  filled.struct_size = region->struct_size;
  filled.kind = TUTTI_MEM_HOST;
  filled.addr = addr;
  filled.bytes = bytes;
  filled.device = filled.dmabuf_fd = -1;
  std::memcpy(region, &filled, std::min<size_t>(region->struct_size, sizeof(filled)));
  return TUTTI_OK;
}
void memory_release(const tutti_host *, const tutti_region *region) noexcept {
  if (!region || !region->addr) return;
  const uint64_t size = pages(region->bytes);
  ::munmap(region->addr, size);
  g_memory_in_use.fetch_sub(size, std::memory_order_relaxed);
}
const tutti_host_memory_v1 kMemory = {sizeof(tutti_host_memory_v1), 0, memory_alloc, memory_release};

// ---- services of upper folders ----
struct Provided {
  std::mutex mutex; // guards tables
  std::map<std::string, const void *, std::less<>> tables;
};
Provided &provided() {
  static Provided *p = [] { // plugins may ask until the process ends
    auto *made = new Provided;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *p;
}

const void *host_get_iface(const tutti_host *, const char *id) noexcept {
  if (!id) return nullptr;
  const std::string_view want(id);
  if (want == TUTTI_HOST_DIAG) return &kDiag;
  if (want == TUTTI_HOST_CONFIG) return &kConfig;
  if (want == TUTTI_HOST_MEMORY) return &kMemory;
  std::lock_guard lock(provided().mutex);
  const auto it = provided().tables.find(want);
  return it == provided().tables.end() ? nullptr : it->second;
}

Code code_of(tutti_status status) {
  switch (status) {
  case TUTTI_ERR_UNSUPPORTED:
    return Code::invalid_usage;
  case TUTTI_ERR_NO_MEMORY:
  case TUTTI_ERR_SYSTEM:
    return Code::system;
  case TUTTI_ERR_REMOTE:
  case TUTTI_ERR_DENIED:
    return Code::remote;
  case TUTTI_ERR_TIMEOUT:
    return Code::timeout;
  default:
    return Code::internal;
  }
}
const char *status_text(tutti_status status) {
  switch (status) {
  case TUTTI_ERR_INVALID:
    return "the call breaks the plugin contract";
  case TUTTI_ERR_UNSUPPORTED:
    return "not supported";
  case TUTTI_ERR_NO_MEMORY:
    return "out of memory, descriptors or another bounded resource";
  case TUTTI_ERR_SYSTEM:
    return "a system call failed";
  case TUTTI_ERR_REMOTE:
    return "the peer closed the connection or failed";
  case TUTTI_ERR_TIMEOUT:
    return "a deadline passed";
  case TUTTI_ERR_CANCELLED:
    return "cancelled";
  case TUTTI_ERR_INTERNAL:
    return "internal error of the plugin";
  case TUTTI_ERR_TRUNCATED:
    return "a message was longer than the buffer posted for it";
  case TUTTI_ERR_DENIED:
    return "the peer could not prove that it belongs to the job";
  default:
    return "unknown status";
  }
}

} // namespace

void provide_host_service(std::string_view id, const void *table) {
  std::lock_guard lock(provided().mutex);
  provided().tables.insert_or_assign(std::string(id), table);
}

void give_host(Plugin *plugin) {
  plugin->host.struct_size = sizeof(tutti_host);
  plugin->host.abi_major = TUTTI_ABI_MAJOR;
  plugin->host.abi_minor = TUTTI_ABI_MINOR;
  plugin->host.impl = plugin;
  plugin->host.get_iface = host_get_iface;
}

LogBudget::Answer LogBudget::take() {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
  int64_t then = second_.load(std::memory_order_relaxed);
  if (now != then && second_.compare_exchange_strong(then, now, std::memory_order_relaxed)) {
    const uint32_t asked = taken_.exchange(0, std::memory_order_relaxed);
    t_suppressed = asked > kLinesPerSecond ? asked - kLinesPerSecond : 0;
  }
  const uint32_t before = taken_.fetch_add(1, std::memory_order_relaxed);
  return before + 1 < kLinesPerSecond ? Answer::write : before + 1 == kLinesPerSecond ? Answer::write_last : Answer::drop;
}

tutti_status blame_exception(const Plugin *plugin, const char *function) noexcept {
  std::string what = "of a type of its own";
  try {
    throw;
  } catch (const std::exception &e) {
    what = e.what();
  } catch (...) { // its type says nothing here
  }
  t_last_error = {plugin, TUTTI_ERR_INTERNAL, one_line(fmt::format("{}() threw an exception: {}", function, what).c_str())};
  return TUTTI_ERR_INTERNAL;
}
tutti_status blame_answer(const Plugin *plugin, const char *function, int32_t answer) noexcept {
  t_last_error = {plugin, TUTTI_ERR_INTERNAL,
                  fmt::format("{}() answered {}, which is no answer of the plugin contract", function, answer)};
  return TUTTI_ERR_INTERNAL;
}

void clear_plugin_error() {
  t_last_error = {};
}
uint64_t plugin_memory_in_use() {
  return g_memory_in_use.load(std::memory_order_relaxed);
}

Status plugin_error(const Plugin &plugin, tutti_status status, std::string_view doing) {
  const bool explained = t_last_error.plugin == &plugin && t_last_error.status == status && !t_last_error.text.empty();
  const std::string why = explained ? std::exchange(t_last_error, {}).text
                                    : fmt::format("{} (status {}, the plugin gave no reason)", status_text(status), status);
  return fail(code_of(status), "{}: {}: {}", plugin.desc->name, doing, why).phase("plugin");
}

} // namespace tutti
