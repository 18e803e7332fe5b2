// tutti/plugins/net-socket/history.cc
#include "history.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::net_socket {

constexpr uint64_t first_room = 4 << 10;
// The kernel of the receiver holds an acknowledgement back where it expects an answer to carry it. So after some turns of the
// caller, which has nothing better to do then, a tail is copied; of a path that is full much more is unacknowledged.
constexpr uint64_t copied_at_once = 4 << 10;
constexpr uint32_t turns_before_copy = 7;
constexpr uint64_t tail_bytes = 64 << 10;

void History::ask(const Fd &fd) {
  if (const auto left = fd.unacknowledged(); left && *left <= sent_) acked_ = std::max(acked_, sent_ - *left);
}

bool History::ready(uint64_t bytes, const Fd &fd) {
  const uint64_t end = released_ + bytes;
  const bool few = bytes <= copied_at_once;
  const auto within = [&](uint64_t limit) { return end <= acked_ || end - acked_ <= limit; };
  bool yes = !on_ || within(few ? max_bytes : 0);
  if (!yes && (waited_ & (waited_ + 1)) == 0) { // at turn 0, 1, 3, 7, ...; at last at every one
    ask(fd);
    yes = within(few || !patient() ? max_bytes : waited_ < turns_before_copy ? 0 : tail_bytes);
  }
  waited_ = yes ? 0 : std::min(waited_ + 1, last_turn);
  return yes;
}

void History::grow(uint64_t bytes) {
  const uint64_t room = std::bit_ceil(std::max(bytes, first_room));
  auto copy = std::make_unique_for_overwrite<uint8_t[]>(room);
  for (uint64_t at = acked_; at < released_;) {
    const uint64_t n = std::min({released_ - at, room_ - (at & (room_ - 1)), room - (at & (room - 1))});
    std::memcpy(&copy[at & (room - 1)], &copy_[at & (room_ - 1)], n);
    at += n;
  }
  copy_ = std::move(copy);
  room_ = room;
}

void History::release(const void *data, uint64_t bytes) {
  const uint64_t end = released_ + bytes;
  if (!on_ && sent_ >= end) {
    acked_ = released_ = end;
    return;
  }
  const uint64_t from = std::max(released_, std::min(acked_, end));
  if (end > acked_ && end - acked_ > room_) grow(end - acked_);
  const auto *source = static_cast<const uint8_t *>(data) + (from - released_);
  for (uint64_t at = from; at < end;) {
    const uint64_t n = std::min(end - at, room_ - (at & (room_ - 1)));
    std::memcpy(&copy_[at & (room_ - 1)], source, n);
    source += n;
    at += n;
  }
  released_ = end;
}

int History::next(iovec (&parts)[2]) const {
  int used = 0;
  for (uint64_t at = sent_; at < released_ && used < 2;) {
    const uint64_t n = std::min(released_ - at, room_ - (at & (room_ - 1)));
    parts[used++] = {&copy_[at & (room_ - 1)], n};
    at += n;
  }
  return used;
}

bool History::rewind(uint64_t position) {
  if (position < acked_ || position > sent_) return false;
  sent_ = acked_ = position;
  return true;
}

} // namespace tutti::net_socket
