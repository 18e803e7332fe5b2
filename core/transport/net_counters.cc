#include "transport/net_counters.h"
#include "tutti/plugin/net_counters.h"
#include <algorithm>
#include <fmt/format.h>

namespace tutti {
namespace {

constexpr uint32_t kMost = 512; // counters of a device that are looked at
constexpr size_t kMostTold = 4; // of them in one error
constexpr size_t kHintBytes = 200;

std::string text_of(const char *text) {
  return text ? std::string(text).substr(0, kHintBytes) : std::string();
}

} // namespace

std::vector<NetCounter> read_counters(const Plugin *plugin, uint32_t device) {
  if (!plugin) return {};
  const auto *table = static_cast<const tutti_net_counters_v1 *>(plugin->iface(TUTTI_NET_COUNTERS));
  if (!table || !TUTTI_HAS(tutti_net_counters_v1, table, read)) return {};
  uint32_t count = 0;
  if (table->read(plugin->state, device, nullptr, &count) < 0) return {};
  std::vector<tutti_net_counter> raw(std::min(count, kMost));
  count = static_cast<uint32_t>(raw.size());
  if (raw.empty() || table->read(plugin->state, device, raw.data(), &count) < 0) return {};
  raw.resize(std::min<size_t>(raw.size(), count)); // one may have gone since
  std::vector<NetCounter> out;
  for (const tutti_net_counter &c : raw)
    if (c.name) out.push_back({text_of(c.name), text_of(c.hint), c.value});
  return out;
}

std::string risen_counters(const std::vector<NetCounter> &before, const std::vector<NetCounter> &now) {
  std::string out;
  size_t told = 0;
  for (const NetCounter &c : now) {
    const auto was = std::find_if(before.begin(), before.end(), [&](const NetCounter &b) { return b.name == c.name; });
    if (c.hint.empty() || was == before.end() || c.value <= was->value) continue;
    if (told++ == kMostTold) return out + ", ...";
    out += fmt::format("{}{} +{} ({})", out.empty() ? "" : ", ", c.name, c.value - was->value, c.hint);
  }
  return out;
}

} // namespace tutti
