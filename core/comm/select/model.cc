// Time of an operation = the way of its first slice through the critical path + the work of the busiest rank for the slices
// that follow. Where ranks share cores: the work of all ranks of the fullest host / its cores + the turns. Where a network is
// between: at least what its devices take for a host's bytes. Whichever is more.
#include "comm/select/model.h"
#include "plan/chunks.h"
#include <algorithm>
#include <charconv>
#include <cmath>

namespace tutti {
namespace {

constexpr size_t kNet = index_of(LinkClass::net);
// Of slots where ranks share a core: long FIFOs gain nothing by having left the other end's cache, as ranks push each other's
// slots out of it anyway, and lose when all together no longer fit.
constexpr CostConstants::Curve kSharedSlotFactor{1, 1, 1.6, 1.8};

double at(const CostConstants::Curve &curve, double bytes) {
  const auto &x = CostConstants::kFootprints;
  if (bytes <= x[0]) return curve[0];
  for (size_t i = 1; i < x.size(); i++)
    if (bytes <= x[i]) return curve[i - 1] + (curve[i] - curve[i - 1]) * std::log(bytes / x[i - 1]) / std::log(x[i] / x[i - 1]);
  return curve.back();
}

// fill(take) calls take(number) for each number of the text, which has no others.
template <class Fill> bool read_numbers(std::string_view text, Fill fill) {
  bool good = true;
  fill([&](double &v) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    good &= error == std::errc() && std::isfinite(v) && v >= 0 && v < CostConstants::kMost;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  });
  return good && text.find_first_not_of(' ') == text.npos;
}

} // namespace

std::string CostConstants::encode() const {
  std::string out;
  each(*this, [&](const std::string &, double v) { out += fmt::format("{}{:.6g}", out.empty() ? "" : " ", v); });
  return out;
}

std::string CostModel::Device::encode() const {
  return fmt::format("{} {}", bytes_per_us, latency_us);
}

std::optional<CostModel::Device> CostModel::Device::decode(std::string_view text) {
  Device d;
  return read_numbers(text, [&](const auto &take) { take(d.bytes_per_us), take(d.latency_us); }) ? std::optional(d)
                                                                                                 : std::nullopt;
}

std::optional<CostConstants> CostConstants::decode(std::string_view text) {
  CostConstants c;
  const bool good = read_numbers(text, [&](const auto &take) { each(c, [&](const std::string &, double &v) { take(v); }); });
  return good ? std::optional(c) : std::nullopt;
}

std::string Estimate::text() const {
  std::string out = fmt::format("{:.4g} us: {:.3g} way + {:.3g} messages + {:.3g} bytes", us, latency_us, cpu_us, bandwidth_us);
  if (turns_us > 0) out += fmt::format(" + {:.3g} turns of cores", turns_us);
  return out + fmt::format("; {:.3g} rounds{}, {:.0f} slice{}", rounds, all_ranks ? "" : " by formula", slices,
                           slices == 1 ? "" : "s");
}

struct CostFormula::Scale {
  double bytes = 0;    // of the operation
  double slices = 1;   // of the longest chunk
  double first = 1;    // share of the bytes that the first of them moves
  double channels = 1; // counts of messages are those of one
  double wire = 1;     // bytes in a slot per byte
  double pieces = 0;   // words in the data per byte
  double memory_ns = 0, same_core = 0;
  uint32_t flags = 0; // TUTTI_CAND_*
  std::array<double, kLinkClasses> slot_ns{};
};

uint64_t CostFormula::chunk_bytes(uint64_t bytes, uint32_t channels) const {
  return align_up(static_cast<uint64_t>(std::ceil(double(bytes) * shorter_.chunk / channels)), kChunkAlign);
}

CostFormula::Scale CostFormula::scale_of(const PlanCost &c, uint64_t bytes, uint32_t channels, uint32_t slot,
                                         uint32_t depth) const {
  Scale s;
  s.bytes = static_cast<double>(bytes);
  s.channels = channels;
  const double chunk = std::max(1.0, s.bytes * c.chunk / channels);
  s.slices = std::ceil(chunk / slot);
  s.first = std::min(1.0, slot / chunk);
  if (proto_.signal == TUTTI_SIGNAL_IN_DATA) {
    s.wire = double(proto_.line_bytes) / proto_.payload_bytes;
    s.pieces = double(proto_.line_bytes) / std::max(8u, proto_.atomic_store_bytes) / proto_.payload_bytes;
  }
  // A core goes round in the slots of its ranks, all of each as one operation follows another, and in their buffers.
  const double ranks_here = std::max(1.0, double(c.host.ranks) / c.host.cores);
  const double in_play = c.rings * channels * ranks_here * depth * std::min<double>(slot, chunk) * s.wire;
  double factor = at(k_.slot_factor, in_play);
  if (c.host.oversubscribed()) factor = std::max(factor, at(kSharedSlotFactor, in_play));
  const double buffers = 2 * s.bytes * c.host.ranks;
  s.memory_ns = at(k_.memory_ns, buffers);
  if (const double past = at(k_.past_cache_ns, buffers); past_cache_ && past < s.memory_ns)
    s.memory_ns = past, s.flags = TUTTI_CAND_NONTEMPORAL;
  // Of ranks that share a core the slots are in one cache.
  s.same_core = c.host.ranks > 1 ? (ranks_here - 1) / (c.host.ranks - 1) : 0;
  for (size_t i = 0; i < kLinkClasses; i++) {
    const double far = k_.link[i].byte_ns;
    s.slot_ns[i] = i == kNet ? far : factor * (far + (std::min(far, k_.copy_ns) - far) * s.same_core);
  }
  return s;
}

// Of messages and steps, for one slice.
double CostFormula::cpu_us(const Work &w, const Scale &s) const {
  double us = w.steps * k_.step_us;
  for (size_t c = 0; c < kLinkClasses; c++) us += (w.sent[c] + w.received[c]) * k_.link[c].message_us;
  if (proto_.signal == TUTTI_SIGNAL_DESCRIPTOR && s.bytes > 56) {
    const double out = w.out[0] + w.out[1] + w.out[2], lent = out > 0 ? w.lent / out : 1;
    us += w.received[index_of(LinkClass::shm)] * k_.pull_us * lent;
  }
  return us * s.channels;
}

// Of all bytes of the operation.
double CostFormula::bytes_us(const Work &w, const Scale &s) const {
  double ns = w.reduced * k_.reduce_ns + w.copied * k_.copy_ns + w.touched * s.memory_ns;
  const double sent = w.out[0] + w.out[1] + w.out[2];
  // Of what is lent the sender copies nothing; the receiver reads it where it is.
  const double lent = proto_.signal == TUTTI_SIGNAL_DESCRIPTOR && sent > 0 ? w.lent / sent : 0;
  for (size_t c = 0; c < kLinkClasses; c++) {
    ns += (w.out[c] * (c == kNet ? 1 : 1 - lent) + w.in[c]) * s.slot_ns[c] * s.wire;
    ns += (w.out[c] + w.in[c]) * s.pieces * k_.piece_ns;
  }
  ns += w.in[index_of(LinkClass::shm)] * lent * k_.pull_ns;
  return ns * s.bytes * 1e-3;
}

double CostFormula::way_us(const CriticalPath &p) const {
  double us = 0;
  for (size_t c = 0; c < kLinkClasses; c++)
    us += p.hops[c] * (c == kNet ? std::max(k_.link[c].latency_us, in_.net.latency_us) : k_.link[c].latency_us);
  if (p.work.grouped > 0) // to the root of the aggregators and back
    us += 2 * (in_.group_depth - 1) * std::max(k_.link[kNet].latency_us, in_.net.latency_us);
  // Who lends waits until it was read.
  if (proto_.signal == TUTTI_SIGNAL_DESCRIPTOR) us *= 1 + 1 / std::max(1.0f, p.rounds());
  return us;
}

// What devices take for the bytes of the fullest host.
double CostFormula::wire_us(const PlanCost &c, const Scale &s) const {
  const double crowded = c.host.work.grouped * (in_.group_crowding - 1); // by the aggregators' other members
  const double bytes = (std::max(c.host.work.out[kNet], c.host.work.in[kNet]) + crowded) * s.bytes * s.wire;
  if (bytes <= 0) return 0;
  double rate = k_.net_gbs * 1e3 * s.channels * std::max(1.0f, c.host.work.sent[kNet]); // streams: one per link
  if (in_.net.bytes_per_us > 0) rate = std::min(rate, in_.net.bytes_per_us);
  return bytes / rate;
}

Estimate CostFormula::estimate(uint64_t bytes, uint32_t channels, uint32_t slot, uint32_t depth) const {
  const PlanCost &c = chunk_bytes(bytes, channels) > slot ? longer_ : shorter_;
  const Scale s = scale_of(c, bytes, channels, slot, depth);
  Estimate e;
  e.channels = channels, e.slot_bytes = slot, e.depth = depth;
  e.slices = s.slices, e.all_ranks = c.all_ranks, e.flags = s.flags;
  for (const CriticalPath *path : {&c.quick, &c.broad}) {
    const double way = way_us(*path), cpu = cpu_us(path->work, s), moved = bytes_us(path->work, s) * s.first;
    if (way + cpu + moved <= e.us) continue;
    e.us = way + cpu + moved;
    e.latency_us = way, e.cpu_us = cpu, e.bandwidth_us = moved;
    e.rounds = path->rounds();
  }
  // The slices behind the first; a link that is full waits for its reader.
  const auto load = [&](const Work &w) { return cpu_us(w, s) * (s.slices - 1) + bytes_us(w, s) * (1 - s.first); };
  const Work &busiest = load(c.reader) > load(c.busiest) ? c.reader : c.busiest; // who lends has little to do
  const double cpu = cpu_us(busiest, s) * (s.slices - 1), moved = bytes_us(busiest, s) * (1 - s.first);
  double stall = 0;
  if (s.slices > 1) {
    const double turn = 2 * way_us(c.quick) / std::max(1.0f, c.quick.rounds()); // there and back
    stall = std::max(0.0, turn * c.queued / depth * (s.slices - 1) - cpu - moved);
  }
  e.latency_us += stall, e.cpu_us += cpu, e.bandwidth_us += moved;
  e.us += stall + cpu + moved;
  if (c.host.oversubscribed()) {
    const double all_cpu = cpu_us(c.host.work, s) * s.slices / c.host.cores,
                 all_moved = bytes_us(c.host.work, s) / c.host.cores;
    const double turns = c.turns * k_.turn_us * (1 + (s.slices - 1) * c.queued / depth);
    const double us = all_cpu + all_moved + turns;
    if (us > e.us) e.us = us, e.latency_us = 0, e.cpu_us = all_cpu, e.bandwidth_us = all_moved, e.turns_us = turns;
  }
  if (const double wire = wire_us(c, s) + way_us(c.quick); wire_us(c, s) > 0 && wire > e.us)
    e.us = wire, e.latency_us = way_us(c.quick), e.bandwidth_us = wire_us(c, s), e.cpu_us = 0;
  return e;
}

CostModel CostModel::unloaded() const {
  Input in = in_;
  auto alone = std::make_shared<Topology>(*in.topology);
  alone->cores_on_node = alone->ranks_on_node;
  in.topology = std::move(alone);
  in.process_of_rank.clear();
  in.shm = true;
  in.shared = in.topology->node_count == 1;
  in.constants = {};
  in.net = {};
  return CostModel(std::move(in));
}

Result<Estimate> CostModel::propose(const Iface<tutti_algo_v1> &algo, const Iface<tutti_proto_v1> &proto, tutti_coll coll,
                                    uint32_t req_flags, uint64_t bytes, const Fixed &fixed) const {
  const uint32_t channels = std::max(1u, fixed.channels);
  PlanSource source;
  source.algo = algo;
  source.coll = coll;
  source.topology = in_.topology.get();
  source.process_of_rank = in_.process_of_rank;
  source.shm = in_.shm;
  source.flags = req_flags;
  if (in_.shared && proto.table->signal != TUTTI_SIGNAL_DESCRIPTOR) source.flags |= TUTTI_REQ_MULTICAST;
  TUTTI_ASSIGN(shorter, plan_cost(source));
  source.flags |= TUTTI_REQ_MANY_SLICES;
  TUTTI_ASSIGN(longer, plan_cost(source));
  const auto kernel = proto.table->kernel; // what is asked for is as good as any
  const bool past_cache =
      kernel && kernel(proto.plugin->state, TUTTI_FORM_DECODE, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, TUTTI_KERNEL_NONTEMPORAL);
  const CostFormula formula(in_, *shorter, *longer, *proto.table, past_cache);
  // Few: links of a communicator are made for each pair of slot and depth that is in use.
  static constexpr std::array<std::pair<uint32_t, uint32_t>, 6> kSlots{
      {{1 << 10, 16}, {8 << 10, 8}, {16 << 10, 8}, {32 << 10, 8}, {64 << 10, 4}, {128 << 10, 4}}};
  std::optional<Estimate> best;
  for (const auto &[slot, depth] : kSlots) {
    const uint32_t s = fixed.slot_bytes ? fixed.slot_bytes : slot, d = fixed.depth ? fixed.depth : depth;
    const Estimate e = formula.estimate(bytes, channels, s, d);
    // What takes more memory has to gain something.
    if (!best || e.us < best->us * 0.98) best = e;
    if (fixed.slot_bytes || formula.chunk_bytes(bytes, channels) <= slot) break; // longer slots would stay empty
  }
  return *best; // there is a first pair
}

} // namespace tutti
