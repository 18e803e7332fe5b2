// The tuner "table": a query is answered from the first rule that fits it. See table.h.
#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace tuner {
namespace {

using namespace tutti::plugin;

constexpr uintmax_t kMostBytes = 1 << 20;

struct Tuner {
  Host host;
  std::vector<Rule> rules;
};

std::string read_file(const std::string &path, const std::string &origin) {
  const auto bad = [&](const char *why) {
    fail(TUTTI_ERR_INVALID, origin, ": option file: \"", path, "\" ", why, "; name an existing table, or leave it empty");
  };
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) bad("is no regular file");
  if (std::filesystem::file_size(path, ec) > kMostBytes || ec) bad("is longer than 1 MiB");
  std::ifstream in(path);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) bad("cannot be read, or is empty");
  return text.str();
}

tutti_status open(const tutti_host *h, void **plugin) noexcept {
  const Host host(h);
  return guarded(host, [&] {
    auto tuner = std::make_unique<Tuner>();
    tuner->host = host;
    if (const std::string file = host.get_string("file"); !file.empty()) {
      tuner->rules = parse_table(read_file(file, host.origin("file")), file);
      host.info("read ", tuner->rules.size(), " rules from ", file);
    } else {
      tuner->rules = parse_table(built_in_table(), "built-in table");
    }
    *plugin = tuner.release();
  });
}

void close(void *plugin) noexcept {
  delete static_cast<Tuner *>(plugin);
}

// Position of the candidate among the preferred ways, or past them.
double cost_of(const Rule &rule, const tutti_candidate &c, uint32_t position) {
  for (size_t i = 0; i < rule.ways.size(); i++)
    if (rule.ways[i].algo == c.algo && (rule.ways[i].proto.empty() || rule.ways[i].proto == c.proto))
      return static_cast<double>(i + 1);
  return 1000.0 + position;
}

tutti_status rate(void *plugin, const tutti_tune_query *query, tutti_candidate *candidates, uint32_t n,
                  uint32_t candidate_size) noexcept {
  const Tuner &t = *static_cast<Tuner *>(plugin);
  return guarded(t.host, [&] {
    if (candidate_size < sizeof(tutti_candidate))
      fail(TUTTI_ERR_INVALID, "candidates of ", candidate_size, " bytes are too short");
    const auto rule = std::find_if(t.rules.begin(), t.rules.end(),
                                   [&](const Rule &r) { return r.fits(*query) && r.offered(candidates, n, candidate_size); });
    if (rule == t.rules.end()) return;
    for (uint32_t i = 0; i < n; i++) {
      auto &c = *reinterpret_cast<tutti_candidate *>(reinterpret_cast<char *>(candidates) + size_t(i) * candidate_size);
      c.cost_us = cost_of(*rule, c, i);
      c.channels = std::clamp(std::max(rule->channels, c.channels), c.min_channels, c.max_channels); // rules know of no NICs
      c.slot_bytes = rule->slot_bytes;
      c.depth = rule->depth;
      c.flags = rule->flags | TUTTI_CAND_ORDER_ONLY;
    }
  });
}

const tutti_tuner_v1 kTuner = {sizeof(tutti_tuner_v1), 0, "table", rate};
const void *get_iface(void *, const char *id) noexcept {
  return std::strcmp(id, TUTTI_TUNER) == 0 ? &kTuner : nullptr;
}

const char *const kIfaces[] = {TUTTI_TUNER, nullptr};
const tutti_option kOptions[] = {
    {"file", "", "table of rules in CSV that replaces the built-in one", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING, 0},
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
                                                      "size-class table of algorithms, channels and slots",
                                                      tuner::kIfaces,
                                                      tuner::kOptions,
                                                      tuner::open,
                                                      tuner::close,
                                                      tuner::get_iface};
