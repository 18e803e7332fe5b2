// What rank 0 tells all ranks about the channels.
#include "base/fork.h"
#include "comm/channels.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace tutti {
namespace {

enum Told : uint8_t { kNothing = 0, kCluster = 1, kRefused = 2 };

void put(Bytes &out, std::string_view text) {
  const auto n = static_cast<uint32_t>(text.size());
  const auto *p = reinterpret_cast<const std::byte *>(&n);
  out.insert(out.end(), p, p + sizeof n);
  p = reinterpret_cast<const std::byte *>(text.data());
  out.insert(out.end(), p, p + n);
}

bool take(std::span<const std::byte> &in, std::string *text) {
  uint32_t n = 0;
  if (in.size() < sizeof n) return false;
  std::memcpy(&n, in.data(), sizeof n);
  if (in.size() - sizeof n < n) return false;
  text->assign(reinterpret_cast<const char *>(in.data()) + sizeof n, n);
  in = in.subspan(sizeof n + n);
  return true;
}

Result<ChannelPlan> decoded(std::span<const std::byte> told) {
  const auto broken = [] { return fail(Code::internal, "the channels of rank 0 cannot be read"); };
  if (told.empty()) return broken();
  const auto kind = static_cast<uint8_t>(told[0]);
  told = told.subspan(1);
  std::string text;
  if (!take(told, &text)) return broken();
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?'); // it becomes a line of messages
  if (kind == kRefused) return fail(Code::invalid_usage, "{}", text);
  if (kind == kNothing) return ChannelPlan{nullptr, {text}};
  TUTTI_ASSIGN(cluster, decode_cluster(told));
  ChannelPlan plan{nullptr, cluster.why};
  plan.cluster = std::make_shared<const Cluster>(std::move(cluster));
  return plan;
}

} // namespace

Bytes ChannelPlan::encode() const {
  Bytes out{std::byte{cluster ? kCluster : kNothing}};
  put(out, cluster ? "" : why.front()); // a cluster brings its own reasons
  if (!cluster) return out;
  const auto all = encode_cluster(*cluster);
  out.insert(out.end(), all.begin(), all.end());
  return out;
}

Bytes ChannelPlan::encode_refusal(const Status &why) {
  Bytes out{std::byte{kRefused}};
  put(out, why.error().message);
  return out;
}

Result<std::shared_ptr<const ChannelPlan>> ChannelPlan::decode(std::span<const std::byte> told, uint64_t comm_id) {
  static auto &mutex = *new ChildFreeMutex; // guards known
  static auto *known = new std::map<uint64_t, std::weak_ptr<const ChannelPlan>>;
  std::lock_guard lock(mutex);
  std::erase_if(*known, [](const auto &entry) { return entry.second.expired(); });
  if (const auto it = known->find(comm_id); it != known->end())
    if (auto plan = it->second.lock()) return plan;
  TUTTI_ASSIGN(plan, decoded(told));
  auto shared = std::make_shared<const ChannelPlan>(std::move(plan));
  (*known)[comm_id] = shared;
  return shared;
}

} // namespace tutti
