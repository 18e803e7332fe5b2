#include "stream.h"
#include <cstring>

namespace tutti::net_ib::test {

constexpr uint8_t guard = 0xa5, spoiled = 0x5e;

Stream::Stream(World &world, const Shape &shape, uint64_t seed)
    : world_(world), shape_(shape), seed_(seed), slot_bytes_(shape.largest + 64), out_(slots * slot_bytes_, spoiled),
      in_(slots * slot_bytes_, guard), out_buf_(world.a->buf(out_.data(), out_.size())),
      in_buf_(world.b->buf(in_.data(), in_.size())), out_busy_(slots), in_busy_(slots), guarded_(slot_bytes_, guard) {}

size_t Stream::size_of(uint64_t message) const {
  std::mt19937_64 r(seed_ * 7919 + message);
  const uint64_t kind = r() % 4;
  return kind == 0 ? r() % 4 : kind == 1 ? r() % 200 : r() % (shape_.largest + 1);
}

void Stream::spoil(std::vector<uint8_t> &arena, uint64_t slot, uint8_t with, size_t bytes) {
  std::memset(&arena[slot * slot_bytes_], with, bytes);
}

void Stream::finished(tutti_status status) {
  if (status == TUTTI_OK || status == TUTTI_ERR_CANCELLED) return;
  ended_ = true;
  ending_ = status;
}

void Stream::post() {
  if (ended_) return;
  Fabric &f = world_.fabric;
  const auto batch = [&](uint64_t posted, const std::vector<bool> &busy) {
    uint64_t n = std::min<uint64_t>(1 + f.below(max_batch), shape_.messages - posted), fit = 0;
    while (fit < n && !busy[(posted + fit) % slots]) ++fit;
    return fit;
  };
  try {
    if (const uint64_t n = sender_gone_ ? 0 : batch(posted_sends_, out_busy_); n && f.below(3)) {
      std::vector<tutti_net_buf> bufs;
      for (uint64_t i = posted_sends_; i < posted_sends_ + n; ++i) {
        const std::vector<uint8_t> data = content(i);
        uint8_t *at = &out_[i % slots * slot_bytes_];
        if (!data.empty()) std::memcpy(at, data.data(), data.size());
        bufs.push_back({at, data.size(), out_buf_.mr, i});
      }
      if (world_.tx->send(bufs.data(), static_cast<uint32_t>(n), next_cookie_) == TUTTI_OK) {
        for (uint64_t i = posted_sends_; i < posted_sends_ + n; ++i) out_busy_[i % slots] = true;
        sends_[next_cookie_++] = {posted_sends_, n, false, {}};
        posted_sends_ += n;
      }
    }
    if (const uint64_t n = receiver_gone_ ? 0 : batch(posted_receives_, in_busy_); n && f.below(3)) {
      Call &call = receives_[next_cookie_];
      call = {posted_receives_, n, false, std::vector<uint64_t>(n, ~uint64_t{0})};
      std::vector<tutti_net_buf> bufs;
      for (uint64_t i = posted_receives_; i < posted_receives_ + n; ++i)
        bufs.push_back({&in_[i % slots * slot_bytes_], size_of(i) + f.below(60), in_buf_.mr, i});
      if (world_.rx->recv(bufs.data(), static_cast<uint32_t>(n), call.received.data(), next_cookie_) == TUTTI_OK) {
        for (uint64_t i = posted_receives_; i < posted_receives_ + n; ++i) in_busy_[i % slots] = true;
        ++next_cookie_;
        posted_receives_ += n;
      } else {
        receives_.erase(next_cookie_);
      }
    }
  } catch (const plugin::Error &e) {
    finished(e.code());
  }
}

void Stream::check() {
  for (auto &[cookie, list] : world_.a->done) {
    Call &call = sends_.at(cookie);
    REQUIRE(list.size() == 1);
    if (std::exchange(call.done, true)) continue;
    finished(list[0].status);
    if (list[0].status != TUTTI_OK) continue;
    for (uint64_t i = call.first; i < call.first + call.n; ++i) {
      spoil(out_, i % slots, spoiled, slot_bytes_); // it is ours again
      out_busy_[i % slots] = false;
    }
    sent_done_ += call.n;
  }
  for (auto &[cookie, list] : world_.b->done) {
    Call &call = receives_.at(cookie);
    REQUIRE(list.size() == 1);
    if (std::exchange(call.done, true)) continue;
    finished(list[0].status);
    if (list[0].status != TUTTI_OK) continue;
    for (uint64_t i = call.first; i < call.first + call.n; ++i) {
      const std::vector<uint8_t> expected = content(i);
      const uint8_t *at = &in_[i % slots * slot_bytes_];
      REQUIRE_MESSAGE(call.received[i - call.first] == expected.size(), "message ", i, ", seed ", seed_);
      REQUIRE_MESSAGE(std::equal(expected.begin(), expected.end(), at), "message ", i, ", seed ", seed_);
      spoil(in_, i % slots, guard, expected.size());
      in_busy_[i % slots] = false;
    }
    received_done_ += call.n;
  }
  if (!left_.empty()) REQUIRE_MESSAGE(left_ == in_, "written after ep_destroy(), seed ", seed_);
  // What no receive is posted for is as it was left, and so is what lies behind a message.
  for (size_t s = 0; s < slots; ++s)
    if (!in_busy_[s] && std::memcmp(&in_[s * slot_bytes_], guarded_.data(), slot_bytes_) != 0)
      FAIL("a buffer was written after it had been given back, slot ", s, ", seed ", seed_);
}

void Stream::abandon(bool sender) {
  Process &p = sender ? *world_.a : *world_.b;
  (sender ? sender_gone_ : receiver_gone_) = true;
  (sender ? world_.tx : world_.rx).reset();
  while (p.progress()) {
  }
  check();
  for (const auto &call : sender ? sends_ : receives_)
    REQUIRE_MESSAGE(call.second.done, "cookie ", call.first, " was not reported");
  if (sender)
    spoil(out_, 0, spoiled, out_.size());
  else
    left_ = in_;
}

void Stream::dead(bool sender) {
  (sender ? sender_gone_ : receiver_gone_) = true;
}

bool Stream::pending(bool sender) const {
  const auto &calls = sender ? receives_ : sends_;
  return std::any_of(calls.begin(), calls.end(), [](const auto &c) { return !c.second.done; });
}

std::string Stream::text() const {
  return plugin::text("seed ", seed_, ": ", sent_done_, " sent and ", received_done_, " received of ", shape_.messages,
                      ", posted ", posted_sends_, " and ", posted_receives_, ", ended ", ended_, " with ", ending_, ": ",
                      world_.core.error);
}

} // namespace tutti::net_ib::test
