// tutti/plugin/cxx/plan_writer.hpp: write a plan as one reads a schedule. Part of plugin.hpp.
//
//   w.shape(req, n);                                            // n chunks per block
//   auto ring = w.lane(0).from(prev).to(next);
//   ring.step().src(in(r)).preop().send();
//   ring.step().src(in(r - 1).every(-1, n)).preop().recv().reduce().send().repeat(n - 2);
//
// A step does what it lists, in this order: take src, receive, combine, post-operation, store, send.
#ifndef TUTTI_PLUGIN_CXX_PLAN_WRITER_HPP
#define TUTTI_PLUGIN_CXX_PLAN_WRITER_HPP
#include "host.hpp"
#include "tutti/plugin/algo.h"

namespace tutti::plugin {

// A number of a plan's 16-bit fields; what does not fit would become another number.
inline uint16_t field16(const char *what, int64_t value) {
  if (value < 0 || value > UINT16_MAX)
    unsupported("a step or link with ", what, " ", value, ", which is not in 0..", UINT16_MAX);
  return static_cast<uint16_t>(value);
}

// `count` chunks from `first` on; every(stride, n): each iteration of the step moves on by stride, modulo n.
struct Chunks {
  tutti_ref ref{};
  Chunks every(int stride, int modulus = 0) const {
    Chunks c = *this;
    c.ref.stride = stride;
    c.ref.modulus = static_cast<uint32_t>(modulus);
    if (modulus > 0) c.ref.first = ((c.ref.first % modulus) + modulus) % modulus; // so that r - 1 may be written as it is
    return c;
  }
};
inline Chunks chunks(int buf, int first, int count) {
  Chunks c;
  c.ref.buf = static_cast<uint16_t>(buf);
  c.ref.count = field16("count", count);
  c.ref.first = first;
  return c;
}
inline Chunks in(int first, int count = 1) {
  return chunks(TUTTI_BUF_IN, first, count);
}
inline Chunks out(int first, int count = 1) {
  return chunks(TUTTI_BUF_OUT, first, count);
}
inline Chunks scratch(int first, int count = 1) {
  return chunks(TUTTI_BUF_SCRATCH, first, count);
}

// How many blocks a collective sees in IN and OUT; the table is in base.h.
inline uint32_t in_blocks(tutti_coll coll, int nranks) {
  const bool many = coll == TUTTI_COLL_REDUCE_SCATTER || coll == TUTTI_COLL_ALL_TO_ALL || coll == TUTTI_COLL_SCATTER;
  return many ? static_cast<uint32_t>(nranks) : 1u;
}
inline uint32_t out_blocks(tutti_coll coll, int nranks) {
  const bool many = coll == TUTTI_COLL_ALL_GATHER || coll == TUTTI_COLL_ALL_TO_ALL || coll == TUTTI_COLL_GATHER;
  return many ? static_cast<uint32_t>(nranks) : 1u;
}

class PlanWriter {
  struct StepData {
    tutti_step step{};
    std::vector<tutti_dep> deps;
  };
  struct LaneData {
    uint32_t group = 0;
    std::vector<tutti_link> recv, send;
    std::vector<StepData> steps;
  };

public:
  // One step, refined by chaining. Copies refer to the same step.
  class Step {
  public:
    Step &src(Chunks c) { return data().src = c.ref, add(TUTTI_STEP_SRC); }
    // Receive from `count` of the lane's receive links, from position `first` on.
    Step &recv(int first = 0, int count = 1) {
      data().recv_first = field16("recv_first", first);
      data().recv_count = field16("recv_count", count);
      return add(TUTTI_STEP_RECV);
    }
    Step &send(int first = 0, int count = 1) {
      data().send_first = field16("send_first", first);
      data().send_count = field16("send_count", count);
      return add(TUTTI_STEP_SEND);
    }
    // The same, link by link: at position `at`, behind those that the step sends to so far.
    Step &send_more(int at) {
      if (data().send_count == 0) data().send_first = field16("send_first", at);
      data().send_count++;
      return add(TUTTI_STEP_SEND);
    }
    Step &reduce() { return add(TUTTI_STEP_REDUCE); }
    Step &preop() { return add(TUTTI_STEP_PREOP); }
    Step &postop() { return add(TUTTI_STEP_POSTOP); }
    Step &store(Chunks c) { return data().dst = c.ref, add(TUTTI_STEP_STORE); }
    // For a step that only relays: the chunk that sizes the message.
    Step &sized_as(Chunks c) { return data().dst = c.ref, *this; }
    Step &repeat(int n) { return data().repeat = static_cast<uint32_t>(n < 0 ? 0 : n), *this; } // 0 = leave the step out
    Step &next_link(int stride) { return data().link_stride = static_cast<int16_t>(stride), *this; }
    Step &position(int p) { return data().src_pos = field16("src_pos", p), *this; } // of src among the operands
    Step &after(const Step &other) {
      entry().deps.push_back({other.lane_, other.index_});
      return *this;
    }

  private:
    friend class PlanWriter;
    Step(PlanWriter *w, uint32_t lane, uint32_t index) : w_(w), lane_(lane), index_(index) {}
    StepData &entry() { return w_->lanes_[lane_].steps[index_]; }
    tutti_step &data() { return entry().step; }
    Step &add(uint32_t bit) { return data().ops |= bit, *this; }
    PlanWriter *w_;
    uint32_t lane_, index_;
  };

  // One lane. from() and to() append links; positions count from 0 in the order of the calls.
  class Lane {
  public:
    Lane &from(int peer, int conn = 0, int flags = 0) { return data().recv.push_back(link(peer, conn, flags)), *this; }
    Lane &to(int peer, int conn = 0, int flags = 0) { return data().send.push_back(link(peer, conn, flags)), *this; }
    Step step() {
      data().steps.emplace_back().step.repeat = 1;
      return Step(w_, index_, static_cast<uint32_t>(data().steps.size() - 1));
    }

  private:
    friend class PlanWriter;
    Lane(PlanWriter *w, uint32_t index) : w_(w), index_(index) {}
    LaneData &data() { return w_->lanes_[index_]; }
    static tutti_link link(int peer, int conn, int flags) { return {peer, field16("conn", conn), field16("flags", flags)}; }
    PlanWriter *w_;
    uint32_t index_;
  };

  // Every block of IN and OUT is cut into `pieces` chunks; the data first into `groups` shares.
  PlanWriter &shape(const tutti_algo_request &req, int pieces, int groups = 1) {
    shape_.in_chunks = in_blocks(req.coll, req.nranks) * static_cast<uint32_t>(pieces);
    shape_.out_chunks = out_blocks(req.coll, req.nranks) * static_cast<uint32_t>(pieces);
    shape_.groups = static_cast<uint32_t>(groups);
    return *this;
  }
  // Scratch chunks sized as OUT chunk c, or IN chunk c where there is no such OUT chunk.
  PlanWriter &scratch_chunks(int count) { return shape_.scratch_chunks = static_cast<uint32_t>(count), *this; }
  // One more scratch chunk, sized as the given chunk of IN or OUT; returns its number.
  int scratch_as(Chunks like) {
    sizes_.push_back({like.ref.buf, static_cast<uint32_t>(like.ref.first)});
    return static_cast<int>(sizes_.size()) - 1;
  }
  PlanWriter &min_depth(int slots) { return shape_.min_depth = static_cast<uint32_t>(slots), *this; }
  PlanWriter &window(int slices) { return shape_.window = static_cast<uint32_t>(slices), *this; }
  PlanWriter &resident_lanes(int n) { return shape_.resident_lanes = static_cast<uint32_t>(n), *this; }

  Lane lane(int group = 0) {
    lanes_.emplace_back().group = static_cast<uint32_t>(group);
    return Lane(this, static_cast<uint32_t>(lanes_.size() - 1));
  }

  // Hands everything to the core's builder; called for you after plan(). The builder has attached its reason to an error.
  tutti_status emit(const tutti_plan_builder &b) {
    if (!sizes_.empty()) {
      shape_.scratch_chunks = static_cast<uint32_t>(sizes_.size());
      shape_.scratch_size = sizes_.data();
    }
    drop_empty_steps();
    shape_.struct_size = sizeof(shape_);
    shape_.lanes = static_cast<uint32_t>(lanes_.size());
    if (tutti_status s = b.begin(b.impl, &shape_); s != TUTTI_OK) return s;
    for (LaneData &lane : lanes_)
      if (tutti_status s = emit_lane(b, lane); s != TUTTI_OK) return s;
    return TUTTI_OK;
  }

private:
  static tutti_status emit_lane(const tutti_plan_builder &b, LaneData &lane) {
    const auto nrecv = static_cast<uint32_t>(lane.recv.size()), nsend = static_cast<uint32_t>(lane.send.size());
    if (tutti_status s = b.lane(b.impl, lane.group, lane.recv.data(), nrecv, lane.send.data(), nsend); s != TUTTI_OK) return s;
    for (StepData &d : lane.steps) {
      d.step.dep_count = field16("dep_count", static_cast<int64_t>(d.deps.size()));
      if (tutti_status s = b.step(b.impl, &d.step, d.deps.data()); s != TUTTI_OK) return s;
    }
    return TUTTI_OK;
  }

  // Steps written with repeat(0), as a ring of two has them; what waits for one of them waits for the step before it.
  void drop_empty_steps() {
    std::vector<std::vector<uint32_t>> kept(lanes_.size()); // number of steps kept up to and with each step
    for (size_t l = 0; l < lanes_.size(); l++) {
      uint32_t n = 0;
      for (const StepData &d : lanes_[l].steps) kept[l].push_back(n += d.step.repeat > 0);
    }
    for (LaneData &lane : lanes_) {
      std::vector<StepData> steps;
      for (StepData &d : lane.steps) {
        if (d.step.repeat == 0) continue;
        std::vector<tutti_dep> deps;
        for (const tutti_dep &dep : d.deps)
          if (kept[dep.lane][dep.step] > 0) deps.push_back({dep.lane, kept[dep.lane][dep.step] - 1});
        d.deps = std::move(deps);
        steps.push_back(std::move(d));
      }
      lane.steps = std::move(steps);
    }
  }

  tutti_plan_shape shape_ = default_shape();
  static tutti_plan_shape default_shape() {
    tutti_plan_shape s{};
    s.groups = 1;
    s.min_depth = 2;
    return s;
  }
  std::vector<tutti_chunk_id> sizes_;
  std::vector<LaneData> lanes_;
};

// The channel with number `i` of a request; elements are channel_stride bytes apart, so never index the array itself.
inline const tutti_channel &channel(const tutti_algo_request &req, uint32_t i) {
  return *reinterpret_cast<const tutti_channel *>(reinterpret_cast<const char *>(req.channel) +
                                                  static_cast<size_t>(req.channel_stride) * i);
}

// Channels that a plan with `lanes` lanes for each of them may use. The eight bytes of a barrier have no shares.
inline int channels_for(const tutti_algo_request &req, int lanes = 1) {
  if (req.coll == TUTTI_COLL_BARRIER) return 1;
  const uint32_t room = req.max_lanes == 0 ? req.channels : req.max_lanes / static_cast<uint32_t>(lanes);
  return static_cast<int>(std::clamp(room, 1u, req.channels));
}

} // namespace tutti::plugin
#endif
