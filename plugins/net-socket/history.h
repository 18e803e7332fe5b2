// tutti/plugins/net-socket/history.h: what a sender has given to the kernel and may have to send again.
//
// Positions count the bytes of one stream, whatever sockets they go through. The peer's kernel keeps what it has acknowledged
// for its process, also when the connection is reset; so what is lost with a connection is at most what it has not
// acknowledged. That much stays available: in the buffers of sends that are not reported yet, and before them in a bounded copy
// here.
//
//   acked() <= released() <= the first byte of the oldest send that is not reported;  [acked(), released()) is in the copy
#pragma once
#include "sockets.h"
#include <cstdint>
#include <memory>
#include <sys/uio.h>

namespace tutti::net_socket {

class History {
public:
  static constexpr uint64_t max_bytes = 256 << 10;
  bool on() const { return on_; }
  void turn_on() { on_ = true; }

  uint64_t sent() const { return sent_; } // the next byte for the kernel
  void gave(uint64_t bytes) { sent_ += bytes; }
  uint64_t acked() const { return acked_; }
  void ask(const Fd &fd); // the kernel, how much has been acknowledged
  uint64_t released() const { return released_; }
  bool fits(uint64_t bytes) const { return released_ + bytes - acked_ <= max_bytes; }
  bool behind() const { return sent_ < released_; } // bytes of the copy go out before anything else

  // Whether the next `bytes` after released(), which the kernel has, may be released now: they are acknowledged, or so few that
  // copying them costs nothing, or it was asked for some turns in vain and the rest of them fits into the copy.
  bool ready(uint64_t bytes, const Fd &fd);
  bool patient() const { return waited_ < last_turn; } // more turns may help
  // Takes over what follows released(): no more than fits beside what is there.
  void release(const void *data, uint64_t bytes);
  // The part of the copy that goes out next: how many of the two vectors are used.
  int next(iovec (&parts)[2]) const;
  // The peer has all before `position`: false when that is not in reach.
  bool rewind(uint64_t position);

private:
  void grow(uint64_t bytes);
  static constexpr uint32_t last_turn = 255;
  bool on_ = false; // off: nothing is kept, and what is released counts as acknowledged
  uint64_t sent_ = 0, acked_ = 0, released_ = 0;
  uint32_t waited_ = 0; // turns
  uint64_t room_ = 0;   // a power of two; the byte at a position is at its remainder
  std::unique_ptr<uint8_t[]> copy_;
};

} // namespace tutti::net_socket
