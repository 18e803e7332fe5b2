#include "ras/question.h"

namespace tutti::ras {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint8_t kRelay = 1, kAlone = 2;

} // namespace

Bytes encode(const Question &q) {
  boot::Writer w;
  w.u32(kVersion);
  w.u8(static_cast<uint8_t>(q.ask));
  w.u8(static_cast<uint8_t>((q.relay ? kRelay : 0) | (q.alone ? kAlone : 0)));
  w.u32(q.budget_ms);
  const size_t n = std::min(q.known.size(), kMostKnown);
  w.u32(static_cast<uint32_t>(n));
  for (size_t i = 0; i < n; i++) w.u64(q.known[i]);
  return w.take();
}

std::optional<Question> decode_question(std::span<const std::byte> data) {
  boot::Reader r(data);
  if (r.u32() != kVersion) return {};
  Question q;
  const uint8_t ask = r.u8(), flags = r.u8();
  q.ask = static_cast<Ask>(ask);
  q.relay = flags & kRelay;
  q.alone = flags & kAlone;
  q.budget_ms = r.u32();
  const uint32_t n = r.u32();
  if (ask < 1 || ask > static_cast<uint8_t>(Ask::collect) || flags > (kRelay | kAlone) || q.budget_ms > kMostBudgetMs ||
      n > kMostKnown)
    return {};
  if (data.size() != 4 + 1 + 1 + 4 + 4 + size_t(n) * 8) return {};
  q.known.resize(n);
  for (uint64_t &id : q.known) id = r.u64();
  if (!r.done()) return {};
  return q;
}

} // namespace tutti::ras
