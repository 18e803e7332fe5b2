// tutti/core/comm/select/model.h: predicts how long a way to run a collective takes, and proposes channels, slots and depth for
// it. docs/cost-model.md has the formulas.
#pragma once
#include "comm/select/plan_cost.h"
#include "tutti/plugin/proto.h"
#include "tutti/plugin/tuner.h"
#include <memory>
#include <optional>
#include <string>

namespace tutti {

// What a machine takes for things. Calibrated (calibrate.h) or built in. One line of text, the same on all ranks.
struct CostConstants {
  // Of a link: a message's way when both ends poll, each end's work for it, and each end's work for a byte of it in a slot.
  struct Link {
    double latency_us, message_us, byte_ns;
  };
  // Work for a byte depends on how much memory takes turns in it: these many bytes, interpolated between.
  static constexpr std::array<double, 4> kFootprints{256e3, 2e6, 16e6, 64e6};
  using Curve = std::array<double, 4>;

  std::array<Link, kLinkClasses> link{{{0.15, 0.03, 0.08}, {0.2, 0.03, 0.1}, {8, 1.0, 0.2}}};
  Curve slot_factor{1, 1, 1.6, 1.8};        // on byte_ns of memory links, by bytes of slots that a core goes round in
  Curve memory_ns{0, 0.005, 0.03, 0.05};    // a byte read or written, beyond one in the cache; by bytes of a host's buffers
  Curve past_cache_ns{1, 0.1, 0.02, 0.015}; // the same where results are stored past the caches
  double step_us = 0.015;                   // of the executor, beside its messages
  double copy_ns = 0.03;                    // memory to memory, in the cache
  double reduce_ns = 0.03;                  // an operand beside the first, in the cache
  double piece_ns = 1.5;                    // a look at a word of a protocol that has words in the data, either end
  double pull_us = 1.4, pull_ns = 0.15;     // reading another process's private memory: a message, a byte of it
  double turn_us = 1.6;                     // a core goes from one rank to the next
  double net_gbs = 6;                       // GB/s of one stream on a net link

  static constexpr double kMost = 1e15; // of any number here, wherever it is read
  std::string encode() const;
  static std::optional<CostConstants> decode(std::string_view text);
  // fn(name, number) for every number, in one order.
  template <class Constants, class Fn> static void each(Constants &c, Fn fn) {
    for (size_t i = 0; i < kLinkClasses; i++) {
      const std::string name(class_name(static_cast<LinkClass>(i)));
      fn(name + "_latency_us", c.link[i].latency_us);
      fn(name + "_message_us", c.link[i].message_us);
      fn(name + "_byte_ns", c.link[i].byte_ns);
    }
    for (size_t i = 0; i < kFootprints.size(); i++) {
      fn(fmt::format("slot_factor_{}", i), c.slot_factor[i]);
      fn(fmt::format("memory_ns_{}", i), c.memory_ns[i]);
      fn(fmt::format("past_cache_ns_{}", i), c.past_cache_ns[i]);
    }
    fn("step_us", c.step_us), fn("copy_ns", c.copy_ns), fn("reduce_ns", c.reduce_ns), fn("piece_ns", c.piece_ns);
    fn("pull_us", c.pull_us), fn("pull_ns", c.pull_ns), fn("turn_us", c.turn_us), fn("net_gbs", c.net_gbs);
  }
};

// A prediction and its terms. us is no sum where terms overlap.
struct Estimate {
  double us = 0;
  double latency_us = 0;   // ways of messages that follow one another
  double cpu_us = 0;       // steps and messages
  double bandwidth_us = 0; // bytes: copying, reducing, links
  double turns_us = 0;     // cores going from rank to rank
  double rounds = 0;       // messages that follow one another for one slice
  double slices = 1;
  bool all_ranks = true; // see PlanCost
  // The proposal.
  uint32_t channels = 1, slot_bytes = 0, depth = 0, flags = 0; // flags: TUTTI_CAND_*
  // "12.3 us = 0.4 way + 1.2 messages + 10.7 bytes; 6 rounds, 4 slices"
  std::string text() const;
};

class CostModel {
public:
  struct Device {
    double bytes_per_us = 0, latency_us = 0; // 0 = unknown

    std::string encode() const; // one line, exact
    static std::optional<Device> decode(std::string_view text);
  };
  struct Input {
    std::shared_ptr<const Topology> topology;
    std::vector<int32_t> process_of_rank; // see PlanSource
    bool shm = true, shared = false;      // shared: plans may use links with several readers
    CostConstants constants;
    Device net; // those in use on a host, as one
    // Of collnet groups: how much longer a byte takes than out of a host, and levels of aggregators.
    double group_crowding = 1;
    uint32_t group_depth = 1;
  };
  // What is decided elsewhere: channels by the search of the topology and by settings.
  struct Fixed {
    uint32_t channels = 1, slot_bytes = 0, depth = 0; // slots and depth: 0 = free
  };
  explicit CostModel(Input input) : in_(std::move(input)) {}

  // The best of a few slots and depths. An error is the algorithm's.
  Result<Estimate> propose(const Iface<tutti_algo_v1> &algo, const Iface<tutti_proto_v1> &proto, tutti_coll coll,
                           uint32_t req_flags, uint64_t bytes, const Fixed &fixed) const;
  // The same job as if no rank shared a core and all of a host shared memory: depends on ranks and hosts alone.
  CostModel unloaded() const;

private:
  Input in_;
};

// The formulas, on features at hand. `shorter` is of the plan for one slice, `longer` of the one for many.
class CostFormula {
public:
  // past_cache: the protocol can store results past the caches.
  CostFormula(const CostModel::Input &in, const PlanCost &shorter, const PlanCost &longer, const tutti_proto_v1 &proto,
              bool past_cache)
      : in_(in), k_(in.constants), shorter_(shorter), longer_(longer), proto_(proto), past_cache_(past_cache) {}
  Estimate estimate(uint64_t bytes, uint32_t channels, uint32_t slot, uint32_t depth) const;
  uint64_t chunk_bytes(uint64_t bytes, uint32_t channels) const; // of the plan for one slice

private:
  struct Scale; // of one evaluation: slices, channels, costs of bytes at its footprints
  double cpu_us(const Work &w, const Scale &s) const;
  double bytes_us(const Work &w, const Scale &s) const;
  double way_us(const CriticalPath &p) const;
  double wire_us(const PlanCost &c, const Scale &s) const;
  Scale scale_of(const PlanCost &c, uint64_t bytes, uint32_t channels, uint32_t slot, uint32_t depth) const;

  const CostModel::Input &in_;
  const CostConstants &k_;
  const PlanCost &shorter_, &longer_;
  const tutti_proto_v1 &proto_;
  const bool past_cache_;
};

} // namespace tutti
