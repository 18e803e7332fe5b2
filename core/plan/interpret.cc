#include "plan/interpret.h"
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>

namespace tutti {
namespace {

using Block = std::vector<uint8_t>;

struct Fifo {
  std::deque<Block> slots;
  bool has_writer = false, has_reader = false;
};

// A collnet group: takes the front of every sender's FIFO at once.
struct Group {
  std::map<int, Fifo> senders, receivers; // by rank
};

struct Lane {
  uint32_t rank, number;
  uint64_t slice = 0;
  uint32_t step = 0, iter = 0;
  std::vector<Fifo *> recv;
  std::vector<std::vector<Fifo *>> send; // a multicast link has several
};

class Machine {
public:
  Machine(std::span<const std::shared_ptr<const Plan>> plans, std::span<const RankBuffers> buffers,
          const Arithmetic &arithmetic, const InterpretOptions &options)
      : plans_(plans), buffers_(buffers), arithmetic_(arithmetic), options_(options),
        depth_(options.depth ? options.depth : plans[0]->min_depth),
        window_(options.window ? options.window : std::max(1u, plans[0]->window)) {}

  Status run() {
    TUTTI_TRY(connect());
    count_slices();
    for (uint32_t r = 0; r < plans_.size(); r++) scratch_.emplace_back(size_t{plans_[r]->scratch_chunks} * window_);
    bool moved = true;
    while (moved && error_.ok()) {
      moved = false;
      for (size_t i = 0; i < lanes_.size() && error_.ok(); i++)
        moved |= advance(lanes_[options_.reverse ? lanes_.size() - 1 - i : i]);
      for (auto &[number, group] : groups_) moved |= error_.ok() && combine(group);
    }
    TUTTI_TRY(error_);
    for (const Lane &l : lanes_)
      if (l.slice < slices_)
        return fail(Code::internal, "rank {} lane {} step {} of slice {} waits for ever", l.rank, l.number, l.step, l.slice);
    for (const auto &[key, fifo] : fifos_)
      if (!fifo.slots.empty()) return fail(Code::internal, "{} messages were never taken", fifo.slots.size());
    for (const auto &[number, group] : groups_)
      for (const auto *side : {&group.senders, &group.receivers})
        for (const auto &[rank, fifo] : *side)
          if (!fifo.slots.empty()) return fail(Code::internal, "messages of group {} were never taken", number);
    return {};
  }

private:
  const Plan &plan(const Lane &l) const { return *plans_[l.rank]; }

  Status connect() {
    for (uint32_t r = 0; r < plans_.size(); r++) {
      const int me = static_cast<int>(r);
      for (uint32_t n = 0; n < plans_[r]->lanes.size(); n++) {
        Lane &lane = lanes_.emplace_back(Lane{r, n, 0, 0, 0, {}, {}});
        for (const tutti_link &l : plans_[r]->lanes[n].recv) {
          if (l.flags & TUTTI_LINK_REDUCING) {
            lane.recv.push_back(&groups_[l.peer].receivers[me]);
            continue;
          }
          lane.recv.push_back(&fifos_[{l.peer, me, l.conn}]);
          lane.recv.back()->has_reader = true;
        }
        for (const tutti_link &l : plans_[r]->lanes[n].send) {
          auto &targets = lane.send.emplace_back();
          if (l.flags & TUTTI_LINK_REDUCING) {
            targets.push_back(&groups_[l.peer].senders[me]);
            continue;
          }
          for (int to = 0; to < static_cast<int>(plans_.size()); to++)
            if (l.flags & TUTTI_LINK_MULTICAST ? to != me : to == l.peer) targets.push_back(&fifos_[{me, to, l.conn}]);
          for (Fifo *f : targets) f->has_writer = true;
        }
      }
    }
    for (const auto &[key, f] : fifos_)
      if (!f.has_reader || !f.has_writer)
        return fail(Code::internal, "link {} -> {} conn {} has one end", std::get<0>(key), std::get<1>(key), std::get<2>(key));
    return {};
  }

  bool combine(Group &g) {
    for (const auto &[rank, fifo] : g.senders)
      if (fifo.slots.empty()) return false;
    for (const auto &[rank, fifo] : g.receivers)
      if (fifo.slots.size() >= depth_) return false;
    if (g.senders.empty()) return false;
    Block v;
    for (auto &[rank, fifo] : g.senders) { // in rank order
      const Block next = std::move(fifo.slots.front());
      fifo.slots.pop_front();
      if (rank == g.senders.begin()->first) {
        v = next;
        continue;
      }
      if (next.size() != v.size()) {
        error_ = fail(Code::internal, "rank {} sends {} bytes to a group, another one {}", rank, next.size(), v.size());
        return false;
      }
      arithmetic_.reduce(v.data(), next.data(), v.size());
    }
    if (g.senders.size() > 1 && arithmetic_.round) arithmetic_.round(v.data(), v.size());
    for (auto &[rank, fifo] : g.receivers) fifo.slots.push_back(v);
    return true;
  }

  void count_slices() {
    for (uint32_t r = 0; r < plans_.size(); r++)
      for (uint32_t g = 0; g < plans_[r]->groups; g++)
        for (uint32_t buf : {TUTTI_BUF_IN, TUTTI_BUF_OUT})
          for (uint32_t c = 0, end = buf == TUTTI_BUF_IN ? plans_[r]->in_chunks : plans_[r]->out_chunks; c < end; c++)
            slices_ = std::max(slices_, (span_of(r, g, buf, c).bytes + options_.slice_bytes - 1) / options_.slice_bytes);
  }

  Span span_of(uint32_t rank, uint32_t group, uint32_t buf, uint32_t chunk) const {
    const Plan &p = *plans_[rank];
    if (buf == TUTTI_BUF_SCRATCH) {
      const tutti_chunk_id like = p.scratch_size[chunk];
      return {0, span_of(rank, group, like.buf, like.chunk).bytes};
    }
    const BufferShape &shape = buf == TUTTI_BUF_IN ? buffers_[rank].in_shape : buffers_[rank].out_shape;
    return chunk_span(shape, p.pieces(), p.groups, group, chunk);
  }

  static uint32_t chunk_at(const tutti_ref &r, uint32_t iter) {
    int64_t c = r.first;
    for (uint32_t i = 0; i < iter; i++) c += r.stride;
    while (r.modulus && c < 0) c += r.modulus;
    return static_cast<uint32_t>(r.modulus ? c % r.modulus : c);
  }

  // Where this slice of a chunk is. IN is only read.
  std::pair<uint8_t *, uint64_t> memory(const Lane &l, uint32_t buf, uint32_t chunk) {
    const Span s = slice_span(span_of(l.rank, plan(l).lanes[l.number].group, buf, chunk), options_.slice_bytes, l.slice);
    if (buf == TUTTI_BUF_SCRATCH) {
      Block &b = scratch_[l.rank][(l.slice % window_) * plan(l).scratch_chunks + chunk];
      b.resize(s.bytes, 0xdb);
      return {b.data(), s.bytes};
    }
    const RankBuffers &b = buffers_[l.rank];
    return {(buf == TUTTI_BUF_IN ? const_cast<uint8_t *>(b.in) : b.out) + s.offset, s.bytes};
  }

  uint64_t message_bytes(const Lane &l, const tutti_step &s) const {
    const tutti_ref &r = s.ops & TUTTI_STEP_SRC ? s.src : s.dst;
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < r.count; j++)
      bytes += slice_span(span_of(l.rank, plan(l).lanes[l.number].group, r.buf, chunk_at(r, l.iter) + j), options_.slice_bytes,
                          l.slice)
                   .bytes;
    return bytes;
  }

  bool advance(Lane &l) {
    bool moved = false;
    while (l.slice < slices_ && error_.ok()) {
      const auto &steps = plan(l).lanes[l.number].steps;
      if (l.step == 0 && l.iter == 0 && !in_window(l)) break;
      if (!steps.empty()) {
        const tutti_step &s = steps[l.step];
        if (!deps_done(l, s)) break;
        if (message_bytes(l, s) > 0) {
          if (!links_ready(l, s)) break;
          execute(l, s);
        }
        if (++l.iter == s.repeat) l.iter = 0, l.step++;
      }
      if (l.step == steps.size()) l.step = 0, l.slice++;
      moved = true;
    }
    return moved;
  }

  bool in_window(const Lane &l) const {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane &o) {
      return o.rank != l.rank || plan(o).lanes[o.number].group != plan(l).lanes[l.number].group || o.slice + window_ > l.slice;
    });
  }

  bool deps_done(const Lane &l, const tutti_step &s) const {
    for (uint32_t d = 0; d < s.dep_count && l.iter == 0; d++) {
      const tutti_dep &dep = plan(l).deps[s.dep_first + d];
      for (const Lane &o : lanes_)
        if (o.rank == l.rank && o.number == dep.lane && (o.slice < l.slice || (o.slice == l.slice && o.step <= dep.step)))
          return false;
    }
    return true;
  }

  bool links_ready(const Lane &l, const tutti_step &s) const {
    const int64_t shift = static_cast<int64_t>(l.iter) * s.link_stride;
    for (int i = 0; i < s.recv_count; i++)
      if (l.recv[static_cast<size_t>(s.recv_first + shift + i)]->slots.empty()) return false;
    for (int i = 0; i < s.send_count; i++)
      for (const Fifo *f : l.send[static_cast<size_t>(s.send_first + shift + i)])
        if (f->slots.size() >= depth_) return false;
    return true;
  }

  void execute(Lane &l, const tutti_step &s) {
    const int64_t shift = static_cast<int64_t>(l.iter) * s.link_stride;
    std::vector<Block> operands;
    for (int i = 0; i < s.recv_count; i++) {
      auto &slots = l.recv[static_cast<size_t>(s.recv_first + shift + i)]->slots;
      operands.push_back(std::move(slots.front()));
      slots.pop_front();
    }
    if (s.ops & TUTTI_STEP_SRC) operands.insert(operands.begin() + s.src_pos, load(l, s));
    Block v = operands[0];
    const uint64_t want = message_bytes(l, s);
    for (size_t i = 0; i < operands.size(); i++) {
      if (operands[i].size() != want) {
        error_ = fail(Code::internal, "rank {} lane {} step {}: {} bytes where {} are due", l.rank, l.number, l.step,
                      operands[i].size(), want);
        return;
      }
      if (i > 0) arithmetic_.reduce(v.data(), operands[i].data(), want);
    }
    if (operands.size() > 1 && arithmetic_.round) arithmetic_.round(v.data(), want);
    if (s.ops & TUTTI_STEP_POSTOP && arithmetic_.postop) arithmetic_.postop(v.data(), want);
    if (s.ops & TUTTI_STEP_STORE) store(l, s, v);
    for (int i = 0; i < s.send_count; i++)
      for (Fifo *f : l.send[static_cast<size_t>(s.send_first + shift + i)]) f->slots.push_back(v);
  }

  Block load(const Lane &l, const tutti_step &s) {
    Block v;
    for (uint32_t j = 0; j < s.src.count; j++) {
      const auto [at, bytes] = memory(l, s.src.buf, chunk_at(s.src, l.iter) + j);
      v.insert(v.end(), at, at + bytes);
    }
    if (s.ops & TUTTI_STEP_PREOP && arithmetic_.preop) arithmetic_.preop(static_cast<int>(l.rank), v.data(), v.size());
    return v;
  }

  void store(const Lane &l, const tutti_step &s, const Block &v) {
    uint64_t done = 0;
    for (uint32_t j = 0; j < s.dst.count; j++) {
      const auto [at, bytes] = memory(l, s.dst.buf, chunk_at(s.dst, l.iter) + j);
      const uint64_t part = std::min(bytes, v.size() - done);
      if (part) std::memcpy(at, v.data() + done, part);
      done += part;
    }
  }

  std::span<const std::shared_ptr<const Plan>> plans_;
  std::span<const RankBuffers> buffers_;
  const Arithmetic &arithmetic_;
  const InterpretOptions options_;
  const uint32_t depth_, window_;
  uint64_t slices_ = 0;
  std::map<std::tuple<int, int, uint16_t>, Fifo> fifos_; // (from, to, conn)
  std::map<int, Group> groups_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<Block>> scratch_;
  Status error_;
};

} // namespace

Status interpret(std::span<const std::shared_ptr<const Plan>> plans, std::span<const RankBuffers> buffers,
                 const Arithmetic &arithmetic, const InterpretOptions &options) {
  return Machine(plans, buffers, arithmetic, options).run();
}

} // namespace tutti
