#include "plans.h"
#include "base/types.h"
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <set>

namespace plans {
namespace {

// The built plugins, loaded once; composing algorithms find the others there.
Registry &registry() {
  static Registry *loaded = [] {
    setenv("TUTTI_PLUGIN_PATH", TUTTI_PLUGIN_DIR, 1);
    provide_host_service(TUTTI_HOST_PLAN, host_plan_service());
    auto r = Registry::process();
    REQUIRE_MESSAGE(r.ok(), (r.ok() ? "" : r.status().error().message));
    return *r;
  }();
  return *loaded;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
  return x ^ (x >> 33);
}

// Memory of one job, and what must be in it afterwards.
class Job {
public:
  Job(const PlanSet &plans, const RunOptions &o) : plans_(plans), o_(o), q_(plans[0]->request), n_(q_.nranks) {
    in_bytes_.resize(plans.size());
    in_at_ = out_bytes_ = out_at_ = in_bytes_;
    for (int r = 0; r < n_; r++) lay_out(r);
  }

  std::string run(bool order_matters) {
    std::vector<RankBuffers> buffers;
    for (int r = 0; r < n_; r++) buffers.push_back(rank_buffers(r));
    Arithmetic a;
    a.reduce = [order_matters](uint8_t *acc, const uint8_t *x, uint64_t bytes) {
      for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t u, v;
        std::memcpy(&u, acc + i, 8);
        std::memcpy(&v, x + i, 8);
        u = order_matters ? u * 31 + v : u + v;
        std::memcpy(acc + i, &u, 8);
      }
    };
    a.preop = [](int rank, uint8_t *data, uint64_t bytes) { each(data, bytes, [rank](uint64_t v) { return pre(v, rank); }); };
    a.postop = [](uint8_t *data, uint64_t bytes) { each(data, bytes, post); };
    const Status s = interpret(plans_, buffers, a, o_.run);
    if (!s.ok()) return s.error().message;
    return order_matters ? ranks_differ() : verify();
  }

private:
  static uint64_t pre(uint64_t v, int rank) { return v * (2 * static_cast<uint64_t>(rank) + 3); }
  static uint64_t post(uint64_t v) { return v * 5 + 1; }
  template <class Fn> static void each(uint8_t *data, uint64_t bytes, Fn fn) {
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
      uint64_t v;
      std::memcpy(&v, data + i, 8);
      v = fn(v);
      std::memcpy(data + i, &v, 8);
    }
  }

  bool unequal() const { return o_.unequal || (q_.flags & TUTTI_REQ_NONUNIFORM); }
  // Bytes that go from s to d, as blocks.
  uint64_t size(int s, int d) const {
    if (!unequal()) return o_.block;
    const bool reduce = coll_reduces(q_.coll);
    const uint64_t h = mix(static_cast<uint64_t>(q_.coll == TUTTI_COLL_ALL_TO_ALL          ? s * 64 + d
                                                 : reduce || q_.coll == TUTTI_COLL_SCATTER ? d
                                                                                           : s) +
                           77);
    return h % 4 == 0 ? 0 : h % (2 * o_.block + 1) / 8 * 8;
  }
  bool in_exists(int r) const { return has_in(q_.coll, r, q_.root); }
  bool out_exists(int r) const { return has_out(q_.coll, r, q_.root); }

  void lay_out(int r) {
    const auto at = static_cast<size_t>(r);
    const int ins = static_cast<int>(coll_in_blocks(q_.coll, static_cast<uint32_t>(n_)));
    const int outs = static_cast<int>(coll_out_blocks(q_.coll, static_cast<uint32_t>(n_)));
    for (int b = 0; b < ins; b++) in_bytes_[at].push_back(ins > 1 ? size(r, b) : size(r, r));
    for (int b = 0; b < outs; b++) out_bytes_[at].push_back(outs > 1 ? size(b, r) : size(r, r));
    const auto offsets = [](const std::vector<uint64_t> &bytes, std::vector<uint64_t> *to) {
      uint64_t sum = 0;
      for (uint64_t b : bytes) to->push_back(sum), sum += b;
      return sum;
    };
    const uint64_t in_total = offsets(in_bytes_[at], &in_at_[at]), out_total = offsets(out_bytes_[at], &out_at_[at]);
    in_.emplace_back(in_exists(r) ? in_total : 0);
    out_.emplace_back(out_exists(r) ? out_total : 0, 0xee);
    for (uint64_t i = 0; i < in_[at].size(); i++) in_[at][i] = static_cast<uint8_t>(mix(at * 1000003 + i) >> 17);
    want_in_.push_back(in_[at]);
    if (o_.in_place && in_exists(r) && out_exists(r)) share(r);
  }
  void share(int r) { // in place: OUT begins as a copy of IN, or IN lies inside OUT
    const auto at = static_cast<size_t>(r);
    if (in_bytes_[at].size() < out_bytes_[at].size())
      std::copy(in_[at].begin(), in_[at].end(), out_[at].begin() + static_cast<std::ptrdiff_t>(out_at_[at][at]));
  }

  RankBuffers rank_buffers(int r) {
    const auto at = static_cast<size_t>(r);
    RankBuffers b;
    b.in = in_[at].data();
    b.out = out_[at].data();
    if (o_.in_place && in_exists(r) && out_exists(r)) {
      const bool in_inside = in_bytes_[at].size() < out_bytes_[at].size();
      if (in_inside)
        b.in = out_[at].data() + out_at_[at][at];
      else
        b.out = in_[at].data() + (in_bytes_[at].size() > out_bytes_[at].size() ? in_at_[at][at] : 0);
    }
    out_ptr_.push_back(b.out);
    const auto shape = [this](const std::vector<uint64_t> &bytes, const std::vector<uint64_t> &offsets) {
      if (unequal()) return BufferShape{static_cast<uint32_t>(bytes.size()), 0, bytes.data(), offsets.data()};
      return BufferShape{static_cast<uint32_t>(bytes.size()), bytes[0], nullptr, nullptr};
    };
    b.in_shape = shape(in_bytes_[at], in_at_[at]);
    b.out_shape = shape(out_bytes_[at], out_at_[at]);
    return b;
  }

  const uint8_t *block(int r, int b) const {
    return want_in_[static_cast<size_t>(r)].data() + in_at_[static_cast<size_t>(r)][static_cast<size_t>(b)];
  }

  std::vector<uint8_t> expected(int r, int b, uint64_t bytes) const {
    std::vector<uint8_t> v(bytes);
    const auto from = [&](int rank, int in_block) {
      if (bytes) std::memcpy(v.data(), block(rank, in_block), bytes);
    };
    switch (q_.coll) {
    case TUTTI_COLL_BROADCAST:
      from(q_.root, 0);
      return v;
    case TUTTI_COLL_SCATTER:
      from(q_.root, r);
      return v;
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_GATHER:
      from(b, 0);
      return v;
    case TUTTI_COLL_ALL_TO_ALL:
      from(b, r);
      return v;
    default:
      break;
    }
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
      uint64_t sum = 0;
      for (int s = 0; s < n_; s++) {
        uint64_t x;
        std::memcpy(&x, block(s, q_.coll == TUTTI_COLL_REDUCE_SCATTER ? r : 0) + i, 8);
        sum += pre(x, s);
      }
      sum = post(sum);
      std::memcpy(v.data() + i, &sum, 8);
    }
    return v;
  }

  std::string verify() const {
    for (int r = 0; r < n_; r++) {
      const auto at = static_cast<size_t>(r);
      for (size_t b = 0; out_exists(r) && b < out_bytes_[at].size(); b++) {
        const auto want = expected(r, static_cast<int>(b), out_bytes_[at][b]);
        const uint8_t *got = out_ptr_[at] + out_at_[at][b];
        for (uint64_t i = 0; i < want.size(); i++)
          if (got[i] != want[i]) return fmt::format("rank {} block {} byte {} of {} is wrong", r, b, i, want.size());
      }
      if (!o_.in_place && in_[at] != want_in_[at]) return fmt::format("rank {}: IN has changed", r);
    }
    return "";
  }
  std::string ranks_differ() const {
    if (q_.coll != TUTTI_COLL_ALL_REDUCE && q_.coll != TUTTI_COLL_BARRIER) return "";
    for (size_t r = 1; r < out_ptr_.size(); r++)
      if (out_bytes_[r][0] && std::memcmp(out_ptr_[r], out_ptr_[0], out_bytes_[r][0]) != 0)
        return fmt::format("rank {} has other bits than rank 0", r);
    return "";
  }

  const PlanSet &plans_;
  const RunOptions &o_;
  const PlanRequest &q_;
  const int n_;
  std::vector<std::vector<uint64_t>> in_bytes_, in_at_, out_bytes_, out_at_;
  std::vector<std::vector<uint8_t>> in_, out_, want_in_;
  std::vector<uint8_t *> out_ptr_;
};

} // namespace

Iface<tutti_algo_v1> algo(std::string_view name) {
  const auto found = registry().named<tutti_algo_v1>(TUTTI_ALGO, name);
  REQUIRE_MESSAGE(found.ok(), (found.ok() ? "" : found.status().error().message));
  return *found;
}

std::vector<std::string> algorithms() {
  std::vector<std::string> names;
  for (const auto &a : registry().all<tutti_algo_v1>(TUTTI_ALGO)) names.emplace_back(a.table->name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string Case::name() const {
  return fmt::format("{} n={} root={} channels={} flags={:#x} order={} hosts={}", coll_name(coll), n, root, channels, flags,
                     odd_order, hosts);
}

namespace {

void place_on_hosts(const Case &c, PlanRequest *q) {
  std::vector<int> here;
  for (int r = 0; r < c.n; r++) {
    q->node_of_rank[static_cast<size_t>(r)] = r % c.hosts;
    if (r % c.hosts == q->rank % c.hosts) here.push_back(r);
  }
  for (size_t i = 0; i < q->channel.size(); i++) q->channel[i].head = here[(i + here.size() - 1) % here.size()];
}

} // namespace

PlanRequest request(const Case &c, int rank) {
  PlanRequest q = PlanRequest::simple(c.coll, rank, c.n, c.root, c.channels, c.flags);
  for (size_t i = 0; c.odd_order && i < q.channel.size(); i++) {
    auto &order = q.channel[i].order;
    if (i == 1)
      std::reverse(order.begin(), order.end());
    else
      std::sort(order.begin(), order.end(),
                [i](int a, int b) { return mix(static_cast<uint64_t>(a) + 9 * i) < mix(static_cast<uint64_t>(b) + 9 * i); });
  }
  if (c.hosts) place_on_hosts(c, &q);
  return q;
}

PlanSet build(std::string_view algorithm, const Case &c) {
  PlanSet out;
  for (int r = 0; r < c.n; r++) {
    const PlanRequest q = request(c, r);
    const RequestView ask(q);
    if (algo(algorithm).table->supports(algo(algorithm).plugin->state, ask.c()) != TUTTI_OK) return {};
    auto plan = build_plan(algo(algorithm), q);
    REQUIRE_MESSAGE(plan.ok(), algorithm << " " << c.name() << ": " << (plan.ok() ? "" : plan.status().error().message));
    out.push_back(std::move(*plan));
  }
  return out;
}

void for_cases(std::span<const int> sizes, const std::function<void(const Case &)> &fn) {
  for (tutti_coll coll = 0; coll <= TUTTI_COLL_BARRIER; coll++)
    for (int n : sizes) {
      std::set<int> roots{-1};
      if (coll_has_root(coll)) roots = {0, n / 2, n - 1};
      for (int r = 0; coll_has_root(coll) && n <= 5 && r < n; r++) roots.insert(r);
      for (int root : roots)
        for (uint32_t channels = 1; channels <= 3; channels++)
          for (uint32_t flags = 0; flags <= (TUTTI_REQ_NONUNIFORM | TUTTI_REQ_MANY_SLICES | TUTTI_REQ_IN_PLACE); flags++) {
            const bool equal_blocks = coll == TUTTI_COLL_ALL_REDUCE || coll == TUTTI_COLL_REDUCE ||
                                      coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_BARRIER;
            if ((flags & TUTTI_REQ_NONUNIFORM) && equal_blocks) continue;
            if ((flags & TUTTI_REQ_IN_PLACE) && !has_in_place_form(coll)) continue;
            fn({coll, n, root, channels, flags, n % 2 == 1, 0});
            if (n > 2 && channels == 2) fn({coll, n, root, channels, flags | TUTTI_REQ_MULTICAST, false, 0});
            if (!(flags & TUTTI_REQ_NONUNIFORM) && equal_blocks)
              fn({coll, n, root, channels, flags | TUTTI_REQ_COLLNET, false, channels == 1 ? n : (n + 2) / 3});
          }
    }
}

Result<std::shared_ptr<const Plan>> rebuild(const Plan &p) {
  PlanBuilder b(p.request);
  const tutti_plan_builder *t = b.builder();
  tutti_plan_shape shape{};
  shape.struct_size = sizeof shape;
  shape.in_chunks = p.in_chunks;
  shape.out_chunks = p.out_chunks;
  shape.scratch_chunks = p.scratch_chunks;
  shape.groups = p.groups;
  shape.lanes = static_cast<uint32_t>(p.lanes.size());
  shape.min_depth = p.min_depth;
  shape.window = p.window;
  shape.resident_lanes = p.resident_lanes;
  shape.scratch_size = p.scratch_size.empty() ? nullptr : p.scratch_size.data();
  t->begin(t->impl, &shape);
  for (const PlanLane &lane : p.lanes) {
    t->lane(t->impl, lane.group, lane.recv.data(), static_cast<uint32_t>(lane.recv.size()), lane.send.data(),
            static_cast<uint32_t>(lane.send.size()));
    for (tutti_step s : lane.steps) {
      const tutti_dep *deps = p.deps.data() + s.dep_first;
      s.dep_first = 0;
      t->step(t->impl, &s, deps);
    }
  }
  return b.finish(p.algo);
}

std::string run_and_verify(const PlanSet &plans, const RunOptions &options) {
  if (std::string wrong = Job(plans, options).run(false); !wrong.empty()) return wrong;
  if (!coll_reduces(plans[0]->request.coll)) return "";
  return Job(plans, options).run(true);
}

} // namespace plans
