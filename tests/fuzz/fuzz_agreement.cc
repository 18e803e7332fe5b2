// What ranks tell each other at set-up: facts to compare, the channels that rank 0 has found, offers of collnet groups. What is
// read can be told again, and is the same then.
#include "comm/channels.h"
#include "comm/collnet_offer.h"
#include "cut.h"

using namespace tutti;

namespace {

template <class T> void again(const Result<T> &first, const std::function<Result<T>(std::span<const std::byte>)> &decode) {
  if (!fuzz::good(first)) return;
  const Bytes bytes = first->encode();
  const Result<T> second = decode(bytes);
  fuzz::expect(second.ok() && second->encode() == bytes);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  const uint32_t kind = in.below(4);
  const std::string_view rest = in.rest();
  const auto bytes = std::as_bytes(std::span(rest));
  switch (kind) {
  case 0: {
    const auto facts = RankFacts::decode(bytes);
    again<RankFacts>(facts, RankFacts::decode);
    if (facts.ok()) (void)fuzz::good(compare_facts(RankFacts(), 1, *facts), 1 << 20);
    break;
  }
  case 1: {
    static uint64_t comm = 0;
    const auto plan = ChannelPlan::decode(bytes, comm++);
    if (!fuzz::good(plan)) break;
    const Bytes told = (*plan)->encode();
    const auto second = ChannelPlan::decode(told, comm++);
    fuzz::expect(second.ok() && (*second)->encode() == told);
    break;
  }
  case 2:
    again<CollnetOffer>(CollnetOffer::decode(bytes, 3),
                        [](std::span<const std::byte> b) { return CollnetOffer::decode(b, 3); });
    break;
  default:
    (void)fuzz::good(ChannelPlan::decode(ChannelPlan::encode_refusal(fail(Code::internal, "{}", rest)), 0), 1 << 20);
    break;
  }
  return 0;
}
