// tutti/plugins/net-socket/redial.cc
#include "redial.h"
#include "context.h"
#include <poll.h>

namespace tutti::net_socket {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds first_pause{5}, longest_pause{1000};
// The ports of a process that has ended refuse at once; a network that comes back may do so for a moment, too.
constexpr milliseconds refused_limit{2000};

Redial::Redial(Context &ctx, const std::vector<Address> &places, const Secret &secret, uint16_t index, int err)
    : ctx_(ctx), places_(places), secret_(secret), index_(index), err_(err), since_(Clock::now()), heard_(since_),
      next_(since_), pause_(first_pause), patience_(answer_limit) {}

void Redial::start(const Fill &fill) {
  const Address &to = place();
  begun_ = Clock::now();
  connected_ = false;
  try {
    fd_ = make_socket(ctx_.settings(), to.family());
  } catch (const plugin::Error &e) {
    return retry(e.what(), false); // no descriptor is free now
  }
  tune_connection(fd_.get(), ctx_.settings(), ctx_.stays_here(to));
  handshake_.emplace(fill(index_), secret_, ctx_.encryption());
  if (::connect(fd_.get(), to.get(), to.length()) != 0 && errno != EINPROGRESS && errno != EINTR)
    return retry(errno_text(errno), errno == ECONNREFUSED);
  watch_ = {};
  ctx_.watch(fd_, &watch_);
}

void Redial::retry(std::string why, bool refused) {
  const auto now = Clock::now();
  if (attempts_ % places_.size() == 0) { // where the connection was; the others may never have answered
    if (!refused)
      refused_since_.reset();
    else if (!refused_since_)
      refused_since_ = now;
  }
  why_ = plugin::text("at ", endpoint_text(place()), ": ", why);
  const bool everywhere = ++attempts_ % places_.size() == 0;
  // The receiver may have taken this one for the stream, and its word of that is lost: an end would be the stream's.
  if (fd_) abandon(fd_.get());
  fd_.reset();
  next_ = everywhere ? std::max(now, begun_ + pause_) : now;
  if (everywhere) pause_ = std::min(2 * pause_, longest_pause);
}

Redial::Result Redial::shake() {
  switch (handshake_->advance(fd_)) {
  case Step::done:
    return Result::restored;
  case Step::denied:
    if (handshake_->unknown())
      return why_ = plugin::text("at ", endpoint_text(place()), ": it has given the connection up"), Result::gone;
    retry("what listens there does not know the secret of the connection", true);
    break;
  case Step::closed:
    retry("the peer hung up", false);
    break;
  case Step::failed:
    retry(errno_text(handshake_->error()), false);
    break;
  default:
    break;
  }
  return Result::waits;
}

// The peer's kernel has what was said, and its process has not looked yet.
bool Redial::waits_for_process() const {
  return fd_ && connected_ && all_acknowledged(fd_.get());
}

// What was connected and gets no answer: an answer may have been lost, or nobody drives the peer's context now. The latter may
// take as long as it likes, as it may with a connection that is not lost.
void Redial::unanswered() {
  if (!waits_for_process()) return retry("no answer", false);
  heard_ = Clock::now();
  patience_ = std::min(2 * patience_, longest_answer_limit);
  retry("its process has not answered", false);
}

Redial::Result Redial::step(const Fill &fill) {
  const auto now = Clock::now();
  if (now >= heard_ + ctx_.settings().reconnect) {
    if (!waits_for_process()) return Result::late;
    heard_ = now;
  }
  if (refused_since_ && now >= *refused_since_ + refused_limit) return Result::gone;
  if (!fd_) {
    if (now < next_) return Result::waits;
    start(fill);
    if (!fd_) return Result::waits;
  }
  if (now >= begun_ + (connected_ ? patience_ : syn_limit)) return unanswered(), Result::waits;
  if (!connected_) {
    pollfd p{fd_.get(), POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0) return Result::waits;
    int err = 0;
    socklen_t len = sizeof err;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &err, &len);
    if (err) return retry(errno_text(err), err == ECONNREFUSED), Result::waits;
    connected_ = true;
  }
  return shake();
}

std::string Redial::lasted() const {
  const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - since_).count();
  return ms < 10000 ? plugin::text(ms, " ms") : plugin::text(ms / 1000, " s");
}

std::string Redial::story() const {
  const uint32_t tries = attempts_ + (fd_ ? 1 : 0);
  return plugin::text("lost ", lasted(), " ago: ", errno_text(err_), "; not restored in ", tries,
                      tries == 1 ? " attempt" : " attempts", why_.empty() ? "" : ", the last ", why_);
}

} // namespace tutti::net_socket
