// tutti/plugins/collnet-aggd/daemon/upstream.h: a group's connection to the daemon above, where this one is a child like any
// other.
#pragma once
#include "group.h"

namespace tutti::aggd {

class Upstream final : public Source {
public:
  explicit Upstream(Group &group);
  ~Upstream() override;
  void on_events(uint32_t events) override;
  void cover(const CoverOf &cover); // who has come below
  bool turn();
  void tick(Clock::time_point now) override;
  void tell(std::string frame) { report_ = std::move(frame); } // between two chunks; the last one counts
  void say_last(const std::string &frame);                     // after what was folded
  bool quiet() const { return closed_ || (last_.empty() && ended_); }

private:
  void advance();
  bool read_control();
  bool read_results();
  bool send_front();
  bool send();
  void cross();
  void lost(const std::string &what);
  void ended(int err); // the connection, with errno or 0

  Group &group_;
  Dialer dialer_;
  Fd fd_;
  bool ready_ = false, readable_ = true, writable_ = true, closed_ = false, ended_ = false;
  CoverOf pending_;
  bool has_pending_ = false, joined_ = false, granted_ = false;
  int error_ = 0; // errno of what could not be sent
  std::string front_, report_, last_;
  Header header_{};
  bool has_header_ = false;
  std::string body_;
  Transfer in_;
  uint64_t sent_ = 0, boundary_ = 0, next_ = 0; // of the group's out_: bytes, start of the frame on its way, its end
  uint64_t received_ = 0;                       // of its down_: whole frames end at down_.head
  SilenceWatch silence_;
};

} // namespace tutti::aggd
