// The tuner "table": a query is answered from the first rule that fits it. See table.h.
#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <atomic>
#include <memory>

namespace tuner {
namespace {

using namespace tutti::plugin;

constexpr size_t kMostWarnings = 40; // the core drops more than 100 lines in a second

struct Tuner {
  Host host;
  Table table;
  std::atomic<bool> warned{false};
};

Table load(const Host &host) {
  const std::string file = host.get_string("file");
  if (file.empty() || file == "built-in") return parse_table(built_in_table(), kBuiltIn);
  if (file == "none") return {};
  Table table = parse_table(read_file(file, host.origin("file")), file);
  host.info("read ", table.rules.size(), " rules from ", file);
  return table;
}

tutti_status open(const tutti_host *h, void **plugin) noexcept {
  const Host host(h);
  return guarded(host, [&] {
    auto tuner = std::make_unique<Tuner>();
    tuner->host = host;
    tuner->table = load(host);
    *plugin = tuner.release();
  });
}

void close(void *plugin) noexcept {
  delete static_cast<Tuner *>(plugin);
}

// At the first question, which only rank 0 is asked: one rank warns, and only where the table is used.
void warn_once(Tuner &t) {
  if (t.warned.exchange(true)) return;
  const auto &all = t.table.warnings;
  for (size_t i = 0; i < std::min(all.size(), kMostWarnings); i++) t.host.warn(all[i]);
  if (all.size() > kMostWarnings) t.host.warn("and ", all.size() - kMostWarnings, " more rows like these");
}

tutti_status rate(void *plugin, const tutti_tune_query *query, tutti_candidate *candidates, uint32_t n,
                  uint32_t candidate_size) noexcept {
  Tuner &t = *static_cast<Tuner *>(plugin);
  return guarded(t.host, [&] {
    if (candidate_size < sizeof(tutti_candidate))
      fail(TUTTI_ERR_INVALID, "candidates of ", candidate_size, " bytes are too short");
    warn_once(t);
    tuner::rate(t.table, read_in(query), Candidates(candidates, n, candidate_size));
  });
}

const tutti_tuner_v1 kTuner = {sizeof(tutti_tuner_v1), 0, "table", rate};
const void *get_iface(void *, const char *id) noexcept {
  return std::strcmp(id, TUTTI_TUNER) == 0 ? &kTuner : nullptr;
}

const char *const kIfaces[] = {TUTTI_TUNER, nullptr};
const tutti_option kOptions[] = {{"file", "built-in",
                                  "table, in TOML or the field's CSV; built-in: the one that comes with the library; none: no "
                                  "table, the core's model decides",
                                  "NCCL_TUNER_CONFIG_FILE", nullptr, 0, 0, TUTTI_OPT_STRING, 0},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0}};

} // namespace
} // namespace tuner

extern "C" const tutti_plugin_desc tutti_plugin_v1 = {sizeof(tutti_plugin_desc),
                                                      TUTTI_ABI_MAJOR,
                                                      TUTTI_ABI_MINOR,
                                                      "tuner",
                                                      "0.1.0",
                                                      "tutti",
                                                      "Apache-2.0",
                                                      "tables of algorithms, channels and slots by operation and size",
                                                      tuner::kIfaces,
                                                      tuner::kOptions,
                                                      tuner::open,
                                                      tuner::close,
                                                      tuner::get_iface};
