// tutti/plugins/collnet-aggd/farewell.h: what a member has to say to a daemon when its part in a group is over. The last frame
// that it has begun is finished first, from a copy: its post's buffer belongs to the caller again.
#pragma once
#include "sockets.h"

namespace tutti::aggd {

class Farewell {
public:
  Farewell() = default; // nothing to say, and nobody to say it to
  Farewell(Fd fd, std::string words);
  Fd &fd() { return fd_; }
  // Goes on as far as it can without waiting. True: the daemon has closed its side, or it has taken too long.
  bool over(Clock::time_point now);

private:
  bool drained(); // closing with something unread would throw away words that are still on their way

  Fd fd_;
  std::string words_;
  size_t said_ = 0;
  bool said_all_ = false;
  Clock::time_point until_{};
};

} // namespace tutti::aggd
