#include "comm/collnet_offer.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

void put(Bytes &out, std::span<const std::byte> piece) {
  const auto n = static_cast<uint32_t>(piece.size());
  const auto *p = reinterpret_cast<const std::byte *>(&n);
  out.insert(out.end(), p, p + sizeof n);
  out.insert(out.end(), piece.begin(), piece.end());
}
bool take(std::span<const std::byte> &in, Bytes *piece) {
  uint32_t n = 0;
  if (in.size() < sizeof n) return false;
  std::memcpy(&n, in.data(), sizeof n);
  if (in.size() - sizeof n < n) return false;
  const auto from = in.subspan(sizeof n, n);
  piece->assign(from.begin(), from.end());
  in = in.subspan(sizeof n + n);
  return true;
}

template <class T> std::span<const std::byte> raw(const T &value) {
  return std::as_bytes(std::span(&value, 1));
}

} // namespace

Bytes CollnetOffer::encode() const {
  Bytes out;
  put(out, raw(head));
  put(out, std::as_bytes(std::span(why)));
  put(out, std::as_bytes(std::span(where)));
  put(out, std::as_bytes(std::span(device)));
  for (const auto &[group, data] : of_group) {
    put(out, raw(group));
    put(out, data);
  }
  return out;
}

Result<CollnetOffer> CollnetOffer::decode(std::span<const std::byte> in, int rank) {
  CollnetOffer o;
  Bytes a, b, c, d;
  const auto text = [](const Bytes &x) { // it becomes part of a message, which is one line
    std::string out(reinterpret_cast<const char *>(x.data()), x.size());
    std::replace_if(
        out.begin(), out.end(), [](unsigned char ch) { return ch < 0x20 || ch == 0x7f; }, '?');
    return out;
  };
  bool good = take(in, &a) && take(in, &b) && take(in, &c) && take(in, &d) && a.size() == sizeof o.head;
  if (good) std::memcpy(&o.head, a.data(), sizeof o.head), o.why = text(b), o.where = text(c), o.device = text(d);
  while (good && !in.empty()) {
    uint32_t group = 0;
    good = take(in, &a) && take(in, &b) && a.size() == sizeof group;
    if (good) std::memcpy(&group, a.data(), sizeof group), o.of_group[group] = b;
  }
  if (!good) return fail(Code::remote, "rank {} sent an offer of collnet groups that cannot be read", rank).peer(rank);
  return o;
}

} // namespace tutti
