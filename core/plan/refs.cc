#include "plan/refs.h"
#include <algorithm>

namespace tutti {

uint32_t most_chunks(const PlanLane &lane, bool sending, uint32_t link) {
  uint32_t most = 1;
  for (const tutti_step &s : lane.steps) {
    if (!has(s, sending ? TUTTI_STEP_SEND : TUTTI_STEP_RECV)) continue;
    const uint32_t first = sending ? s.send_first : s.recv_first, count = sending ? s.send_count : s.recv_count;
    for (uint32_t i = 0; i < s.repeat; i++) {
      const int64_t at = first + int64_t(s.link_stride) * i;
      if (at <= link && link < at + count) most = std::max<uint32_t>(most, sizing_ref(s).count);
      if (s.link_stride == 0) break;
    }
  }
  return most;
}

uint32_t Plan::pieces() const {
  return in_chunks / coll_in_blocks(request.coll, static_cast<uint32_t>(request.nranks));
}

uint64_t chunk_identity(const Plan &p, uint32_t buf, uint32_t chunk) {
  const auto [base, c] = sizing_chunk(p, buf, chunk);
  const uint64_t n = static_cast<uint64_t>(p.request.nranks), rank = static_cast<uint64_t>(p.request.rank);
  switch (p.request.coll) {
  case TUTTI_COLL_ALL_GATHER:
  case TUTTI_COLL_GATHER:
    return base == TUTTI_BUF_IN ? rank * p.pieces() + c : c;
  case TUTTI_COLL_REDUCE_SCATTER:
  case TUTTI_COLL_SCATTER:
    return base == TUTTI_BUF_OUT ? rank * p.pieces() + c : c;
  case TUTTI_COLL_ALL_TO_ALL: {
    const uint64_t pieces = p.pieces(), block = c / pieces, piece = c % pieces;
    if (!(p.request.flags & TUTTI_REQ_NONUNIFORM)) return piece;
    return (base == TUTTI_BUF_IN ? rank * n + block : block * n + rank) * pieces + piece;
  }
  default:
    return c;
  }
}

std::optional<uint32_t> out_of_in(const Plan &p, uint32_t in_chunk) {
  const uint32_t k = p.pieces(), rank = static_cast<uint32_t>(p.request.rank);
  switch (p.request.coll) {
  case TUTTI_COLL_ALL_TO_ALL:
    return std::nullopt;
  case TUTTI_COLL_ALL_GATHER:
  case TUTTI_COLL_GATHER:
    if (!has_out(p)) return std::nullopt;
    return rank * k + in_chunk;
  case TUTTI_COLL_REDUCE_SCATTER:
  case TUTTI_COLL_SCATTER:
    if (!has_in(p) || in_chunk / k != rank) return std::nullopt;
    return in_chunk % k;
  default:
    if (!has_in(p) || !has_out(p)) return std::nullopt;
    return in_chunk;
  }
}

std::optional<uint32_t> in_of_out(const Plan &p, uint32_t out_chunk) {
  const uint32_t k = p.pieces(), rank = static_cast<uint32_t>(p.request.rank);
  switch (p.request.coll) {
  case TUTTI_COLL_ALL_TO_ALL:
    return std::nullopt;
  case TUTTI_COLL_ALL_GATHER:
  case TUTTI_COLL_GATHER:
    if (!has_out(p) || out_chunk / k != rank) return std::nullopt;
    return out_chunk % k;
  case TUTTI_COLL_REDUCE_SCATTER:
  case TUTTI_COLL_SCATTER:
    if (!has_in(p)) return std::nullopt;
    return rank * k + out_chunk;
  default:
    if (!has_in(p) || !has_out(p)) return std::nullopt;
    return out_chunk;
  }
}

uint64_t Plan::fingerprint(const tutti_link &link, bool receiving) const {
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&h](uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  };
  for (const PlanLane &lane : lanes) {
    const auto &links = receiving ? lane.recv : lane.send;
    for (uint32_t at = 0; at < links.size(); at++) {
      if (links[at].peer != link.peer || links[at].conn != link.conn) continue;
      mix(lane.group);
      mix(groups);
      mix(pieces());
      for (const tutti_step &s : lane.steps) {
        const uint32_t first = receiving ? s.recv_first : s.send_first, count = receiving ? s.recv_count : s.send_count;
        if (count == 0) continue;
        const tutti_ref &ref = sizing_ref(s);
        for (uint32_t i = 0; i < s.repeat; i++) {
          const int64_t lo = first + static_cast<int64_t>(i) * s.link_stride;
          if (at < lo || at >= lo + count) continue;
          mix(ref.count);
          for (uint32_t j = 0; j < ref.count; j++)
            mix(chunk_identity(*this, ref.buf, static_cast<uint32_t>(ref_first(ref, i)) + j));
        }
      }
    }
  }
  return h;
}

} // namespace tutti
