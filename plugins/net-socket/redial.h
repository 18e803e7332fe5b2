// tutti/plugins/net-socket/redial.h: brings one lost stream of a sender back, without blocking.
#pragma once
#include "resume.h"
#include <functional>
#include <optional>

namespace tutti::net_socket {

class Context;

class Redial {
public:
  enum class Result { waits, restored, gone, late };
  // err: why the connection was lost. places: where the receiver can be found, best first; at least one.
  Redial(Context &ctx, const std::vector<Address> &places, const Secret &secret, uint16_t index, int err);
  // fill: says what the sender has done with the stream so far, and the attempt's number.
  using Fill = std::function<ResumeHello(uint16_t index)>;
  Result step(const Fill &fill);
  uint16_t index() const { return index_; }
  Fd take() { return std::move(fd_); } // once restored
  const ResumeHello &hello() const { return handshake_->hello(); }
  uint64_t position() const { return handshake_->position(); }
  // "lost 60 s ago: Connection reset by peer; not restored in 12 attempts, the last at 10.0.0.2:30004: no answer"
  std::string story() const;
  std::string lasted() const;

private:
  using Time = std::chrono::steady_clock::time_point;
  void start(const Fill &fill);
  void retry(std::string why, bool refused);
  Result shake();
  bool waits_for_process() const;
  void unanswered();
  const Address &place() const { return places_[attempts_ % places_.size()]; }

  Context &ctx_;
  const std::vector<Address> &places_;
  const Secret &secret_;
  const uint16_t index_;
  const int err_;
  const Time since_;
  Time heard_; // when the peer's host was last known to listen; before that, since_
  Time next_, begun_{};
  std::chrono::milliseconds pause_, patience_;
  std::optional<Time> refused_since_; // without a pause
  uint32_t attempts_ = 0;
  std::string why_;
  Fd fd_;
  Watched watch_;
  bool connected_ = false;
  std::optional<ResumeDialler> handshake_;
};

} // namespace tutti::net_socket
