// tutti/plugins/collnet-aggd/daemon/last_words.cc
#include "last_words.h"
#include <algorithm>

namespace tutti::aggd {

LastWords::LastWords(uint64_t rest_of_body, uint32_t chunk, uint32_t members)
    : skip_(rest_of_body), chunk_(chunk), members_(members), first_(rest_of_body == 0) {}

void LastWords::take(std::span<const uint8_t> &bytes, uint64_t most) {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(bytes.size(), most - frame_.size()));
  frame_.append(reinterpret_cast<const char *>(bytes.data()), n);
  bytes = bytes.subspan(n);
}

void LastWords::feed(std::span<const uint8_t> bytes) {
  while (!done_) {
    const size_t passed = static_cast<size_t>(std::min<uint64_t>(skip_, bytes.size()));
    bytes = bytes.subspan(passed);
    skip_ -= passed;
    if (bytes.empty()) return;
    Header h;
    take(bytes, sizeof h);
    if (frame_.size() < sizeof h) return;
    std::memcpy(&h, frame_.data(), sizeof h);
    if (!check_header(h, chunk_, members_).empty()) {
      done_ = true;
    } else if (h.kind == Kind::chunk) {
      skip_ = padded(body_bytes(h));
      frame_.clear();
      first_ = false;
    } else {
      take(bytes, frame_bytes(h));
      if (frame_.size() < frame_bytes(h)) return;
      done_ = h.kind == Kind::error || h.kind == Kind::goodbye;
      goodbye_ = h.kind == Kind::goodbye && first_;
      if (h.kind == Kind::error) fault_ = read_fault({reinterpret_cast<const uint8_t *>(frame_.data()) + sizeof h, h.bytes});
      frame_.clear();
    }
  }
}

} // namespace tutti::aggd
