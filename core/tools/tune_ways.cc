#include "tools/tune_ways.h"
#include "plugin/registry.h"
#include "tutti/plugin/tuner.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace tutti::tools::tune {
namespace {

constexpr uint64_t kLeastSlot = 1024, kMostSlot = 4 << 20;
constexpr uint32_t kMostDepth = 256;
constexpr uint64_t kSeveralChannels = 256 << 10; // bytes from which two channels may gain

// ---- the measuring tuners

// How a proposal of stores past the caches survives a communicator in which none are made.
constexpr const char *kProposedPast = "stores past the caches are proposed";

template <bool PastCaches>
tutti_status rate(void *, const tutti_tune_query *, tutti_candidate *list, uint32_t n, uint32_t stride) noexcept {
  for (uint32_t i = 0; i < n; i++) {
    auto &c = *reinterpret_cast<tutti_candidate *>(reinterpret_cast<char *>(list) + size_t(i) * stride);
    if (c.flags & TUTTI_CAND_NONTEMPORAL) c.note = kProposedPast;
    c.flags = TUTTI_CAND_SHARED_ONLY | (PastCaches ? uint32_t{TUTTI_CAND_NONTEMPORAL} : 0u);
  }
  return TUTTI_OK;
}
constexpr tutti_tuner_v1 kCached = {sizeof(tutti_tuner_v1), 0, kCachedTuner, rate<false>};
constexpr tutti_tuner_v1 kPastCaches = {sizeof(tutti_tuner_v1), 0, kPastCachesTuner, rate<true>};

tutti_status open(const tutti_host *, void **plugin) noexcept {
  *plugin = nullptr;
  return TUTTI_OK;
}
void close(void *) noexcept {}
template <const tutti_tuner_v1 *Table> const void *iface(void *, const char *id) noexcept {
  return std::strcmp(id, TUTTI_TUNER) == 0 ? Table : nullptr;
}
const char *const kIfaces[] = {TUTTI_TUNER, nullptr};
constexpr tutti_plugin_desc desc(const char *name, const void *(*get)(void *, const char *) noexcept) {
  return {sizeof(tutti_plugin_desc),
          TUTTI_ABI_MAJOR,
          TUTTI_ABI_MINOR,
          name,
          "0.1.0",
          "tutti",
          "Apache-2.0",
          "the core's proposals as they are, for measurements",
          kIfaces,
          nullptr,
          open,
          close,
          get};
}
const tutti_plugin_desc kCachedPlugin = desc("tuner-as-proposed", iface<&kCached>);
const tutti_plugin_desc kPastCachesPlugin = desc("tuner-as-proposed-nt", iface<&kPastCaches>);

} // namespace

void add_measuring_tuners() {
  Registry::add_static(&kCachedPlugin);
  Registry::add_static(&kPastCachesPlugin);
}

Way way_of(const ExplainedWay &w) {
  return {w.algo, w.proto, w.channels, w.slot_bytes, w.depth, w.nontemporal || w.note == kProposedPast};
}
Way choice_of(const Explanation &e) {
  const ExplainedWay *chosen = e.chosen();
  const bool past = e.nontemporal || (chosen && chosen->note == kProposedPast);
  return {e.algo, e.proto, e.channels, e.slot_bytes, e.depth, past};
}

std::vector<Way> usable_ways(const Explanation &e) {
  std::vector<const ExplainedWay *> usable;
  for (const ExplainedWay &w : e.ways)
    if (w.refused.empty()) usable.push_back(&w);
  const auto cost = [](const ExplainedWay *w) { return w->predicted_us.value_or(INFINITY); };
  std::stable_sort(usable.begin(), usable.end(), [&](const auto *a, const auto *b) { return cost(a) < cost(b); });
  std::vector<Way> out;
  for (const ExplainedWay *w : usable) out.push_back(way_of(*w));
  return out;
}

std::vector<Way> variants(const Way &way, uint64_t bytes, uint32_t max_channels) {
  std::vector<Way> out;
  const auto add = [&](uint64_t slot, uint32_t depth, uint32_t channels, bool past) {
    slot = std::clamp(slot, kLeastSlot, kMostSlot);
    const Way v{way.algo, way.proto, channels, slot, std::clamp(depth, 2u, kMostDepth), past};
    if (v != way && std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  const bool past = way.nontemporal;
  add(way.slot_bytes / 4, way.depth * 4, way.channels, past);
  if (bytes > way.slot_bytes) add(way.slot_bytes * 4, way.depth / 4, way.channels, past);
  if (bytes > way.slot_bytes) add(way.slot_bytes, way.depth * 2, way.channels, past);
  if (bytes >= kLongStores) add(way.slot_bytes, way.depth, way.channels, !past);
  if (bytes >= kSeveralChannels && way.channels * 2 <= max_channels) add(way.slot_bytes, way.depth, way.channels * 2, past);
  return out;
}

std::string encode_ways(const std::vector<Way> &ways) {
  std::string out = fmt::format("{}\n", ways.size());
  for (const Way &w : ways)
    out += fmt::format("{} {} {} {} {} {}\n", w.algo, w.proto, w.channels, w.slot_bytes, w.depth, w.nontemporal ? 1 : 0);
  return out;
}
Result<std::vector<Way>> decode_ways(const std::string &text) {
  std::istringstream in(text);
  size_t n = 0;
  in >> n;
  std::vector<Way> out;
  for (size_t i = 0; i < n && in; i++) {
    Way w;
    in >> w.algo >> w.proto >> w.channels >> w.slot_bytes >> w.depth >> w.nontemporal;
    out.push_back(w);
  }
  if (!in) return fail(Code::internal, "the list of ways of rank 0 cannot be read");
  return out;
}

} // namespace tutti::tools::tune
