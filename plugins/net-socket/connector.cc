// tutti/plugins/net-socket/connector.cc
#include "connector.h"
#include <poll.h>

namespace tutti::net_socket {

using plugin::fail;
using Clock = std::chrono::steady_clock;

Connector::Connector(Context &ctx, const Blob &blob)
    : ctx_(ctx), secret_(blob.secret), peer_(blob_address(blob, ctx.device().interface.index)),
      local_(stays_on_host(ctx.device(), peer_)), deadline_(Clock::now() + ctx.settings().connect_timeout) {
  randombytes_buf(id_, sizeof id_);
  links_.resize(1 + ctx.settings().data_sockets());
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].index = static_cast<uint16_t>(i);
    start(links_[i]);
  }
}

void Connector::start(Link &link) {
  link.fd = make_socket(ctx_.settings(), peer_.family());
  link.connected = false;
  tune_connection(link.fd.get(), ctx_.settings(), local_);
  link.handshake = std::make_unique<ConnectorHandshake>(
      make_hello(link.index, static_cast<uint16_t>(links_.size()), ctx_.settings().min_task, id_), secret_);
  if (::connect(link.fd.get(), peer_.get(), peer_.length()) != 0 && errno != EINPROGRESS && errno != EINTR)
    return retry(link, errno);
  ctx_.watch(link.fd.get(), &link.watch);
}

// Refused or unreachable may mean that the peer or its interface is not up yet; anything else is final.
void Connector::retry(Link &link, int err) {
  link.fd.reset();
  const bool transient = err == ECONNREFUSED || err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH ||
                         err == ECONNRESET || err == ECONNABORTED || err == EADDRNOTAVAIL;
  if (!transient || link.tries >= ctx_.settings().retries)
    fail(TUTTI_ERR_REMOTE, "cannot connect to ", endpoint_text(peer_), " (", ctx_.device().name, "): ", errno_text(err),
         " after ", link.tries + 1, " attempts");
  ++link.tries;
  link.next = Clock::now() + ctx_.settings().retry_sleep * link.tries;
}

bool Connector::advance(Link &link) {
  if (link.done) return true;
  if (!link.fd) {
    if (Clock::now() < link.next) return false;
    start(link);
    if (!link.fd) return false;
  }
  if (!link.connected) {
    pollfd p{link.fd.get(), POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0) return false;
    int err = 0;
    socklen_t len = sizeof err;
    getsockopt(link.fd.get(), SOL_SOCKET, SO_ERROR, &err, &len);
    if (err) return retry(link, err), false;
    link.connected = true;
  }
  switch (link.handshake->advance(link.fd.get())) {
  case Step::again:
    return false;
  case Step::done:
    return link.done = true;
  case Step::denied:
    fail(TUTTI_ERR_DENIED, "what listens at ", endpoint_text(peer_),
         " does not know the secret of its address: not a rank of this job");
  case Step::closed:
    return retry(link, ECONNRESET), false; // a listener that is full closes; so does one that is gone
  case Step::failed:
    return retry(link, link.handshake->error()), false;
  }
  return false;
}

bool Connector::advance() {
  bool all = true;
  for (Link &l : links_) all &= advance(l);
  if (all) return true;
  if (Clock::now() < deadline_) return false;
  fail(TUTTI_ERR_TIMEOUT, "no connection to ", endpoint_text(peer_), " (", ctx_.device().name, ") after ",
       std::chrono::duration_cast<std::chrono::seconds>(ctx_.settings().connect_timeout).count(), " s");
}

std::vector<Fd> Connector::take_data() {
  std::vector<Fd> out;
  for (size_t i = 1; i < links_.size(); ++i) out.push_back(std::move(links_[i].fd));
  return out;
}

} // namespace tutti::net_socket
