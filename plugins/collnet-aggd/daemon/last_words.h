// tutti/plugins/collnet-aggd/daemon/last_words.h: what a child said at the end of a stream that will not be folded any more.
#pragma once
#include "wire.h"

namespace tutti::aggd {

// Fed with the stream, from the middle of a frame's body on, it passes over chunks and finds the error or goodbye.
class LastWords {
public:
  LastWords(uint64_t rest_of_body, uint32_t chunk, uint32_t members);
  void feed(std::span<const uint8_t> bytes);
  const std::optional<Fault> &fault() const { return fault_; }
  bool goodbye() const { return goodbye_; } // and nothing before it

private:
  void take(std::span<const uint8_t> &bytes, uint64_t most);

  uint64_t skip_;
  const uint32_t chunk_, members_;
  std::string frame_; // the header, and the body of one that is no chunk
  bool first_, goodbye_ = false, done_ = false;
  std::optional<Fault> fault_;
};

} // namespace tutti::aggd
