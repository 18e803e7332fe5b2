#include "transport/traffic.h"
#include "transport/net_port.h"
#include "transport/transport.h"
#include <algorithm>

namespace tutti {
namespace {

// Bytes that every message takes, whatever its length.
uint64_t first_line(const RingCold &r) {
  if (r.link_class == LinkClass::net) return sizeof(NetHeader);
  return r.geometry.line_bytes > 1 ? r.geometry.line_bytes : kSlotHeader;
}

} // namespace

std::vector<LinkTraffic> Transport::traffic() const {
  std::vector<LinkTraffic> out;
  std::lock_guard lock(mutex_);
  for (const auto &[key, cold] : rings_) {
    LinkTraffic link{key.peer, key.conn, key.sending, key.geometry.readers, cold->link_class, cold->protocols};
    const auto same_link = [&](const LinkTraffic &l) {
      return l.peer == link.peer && l.conn == link.conn && l.sending == link.sending;
    };
    auto at = out.rbegin(); // the rings of a link stand side by side
    while (at != out.rend() && same_link(*at) && (at->proto != link.proto || at->readers != link.readers)) ++at;
    LinkTraffic &to = at != out.rend() && same_link(*at) ? *at : out.emplace_back(std::move(link));
    const Ring &r = cold->ring;
    const uint64_t messages = load_relaxed(r.seq), rest = load_relaxed(r.rest), lent = load_relaxed(r.lent);
    to.messages += messages;
    to.bytes += load_relaxed(r.bytes);
    const uint64_t elsewhere = cold->link_class == LinkClass::net ? 0 : std::min(rest, lent); // a message may be half counted
    to.wire_bytes += messages * first_line(*cold) + rest - elsewhere;
    to.lent_bytes += lent;
  }
  return out;
}

} // namespace tutti
