// Operations that a call configuration shapes. What it comes to is found once per collective and size class and then kept.
#include "comm/communicator.h"
#include "log/log.h"
#include <algorithm>

namespace tutti {

Result<uint32_t> Communicator::choice_as_asked(uint32_t row, uint32_t bucket, const CallConfig &asked) {
  if (asked.id == 0) return uint32_t{selection_.index[row][bucket]};
  const AskedClass key{asked.id, row, row == kRowV ? 0 : bucket};
  if (const auto it = asked_places_.find(key); it != asked_places_.end()) return it->second;
  auto found = selector_->as_asked(selection_, row, bucket, asked);
  if (!found.ok()) {
    if (!asked.tag.empty()) found.status().error().message += fmt::format(" [{}]", asked.tag);
    return std::move(found.status());
  }
  const Choice &c = found->choice;
  if (!found->instead.empty() && rank_ == 0)
    log::write_once(log::Level::warn, log::Subsys::tuning, fmt::format("asked {} {} {}", uid_, asked.id, row),
                    fmt::format("comm {:#x}: {}; {}/{} runs instead (tuttiCallConfig_t.preferred){}",
                                core_->bootstrap->comm_id(), found->instead, c.algo.table->name, c.proto.table->name,
                                asked.tag.empty() ? "" : " [" + asked.tag + "]"));
  uint32_t place = 0;
  const auto known = static_cast<uint32_t>(selection_.choices.size() + asked_choices_.size());
  while (place < known && !same(choice(place), c)) place++;
  if (place == known) asked_choices_.push_back(c);
  return asked_places_[key] = place;
}

Result<Communicator::Resolved> Communicator::bound_as_asked(const Op &op, uint32_t bucket, uint64_t key,
                                                            const CallConfig &asked) {
  if (asked_latest_.key == key && asked_latest_.id == asked.id) return asked_latest_.way;
  auto it = asked_bounds_.find({key, asked.id});
  if (it == asked_bounds_.end()) {
    uint32_t place = 0;
    if (nranks_ > 1) {
      TUTTI_ASSIGN(found, choice_as_asked(op.row, bucket, asked));
      place = found;
    }
    TUTTI_ASSIGN(way, find_bound(op, bucket, place));
    it = asked_bounds_.emplace(std::pair(key, asked.id), way).first;
  }
  asked_latest_ = {key, asked.id, it->second};
  return it->second;
}

} // namespace tutti
