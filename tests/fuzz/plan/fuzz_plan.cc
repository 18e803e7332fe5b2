// Arbitrary calls of the plan builder, for two to five ranks, and the checker and dumps on what it accepts: never a crash,
// never a hang, errors of one line.
#include "plan/check.h"
#include <cstring>

namespace {

using namespace tutti;

class Bytes {
public:
  Bytes(const uint8_t *data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint32_t byte() { return empty() ? 0 : data_[at_++]; }
  uint32_t small(uint32_t limit) { return byte() % limit; }
  int32_t wild() { // mostly small, at times anything
    const uint32_t b = byte();
    if (b < 240) return static_cast<int32_t>(b % 8) - 1;
    return static_cast<int32_t>((byte() << 24) | (byte() << 16) | (byte() << 8) | byte());
  }
  tutti_ref ref() {
    return {static_cast<uint16_t>(small(4)), static_cast<uint16_t>(small(4)), wild(), wild(), static_cast<uint32_t>(wild())};
  }

private:
  const uint8_t *data_;
  size_t size_, at_ = 0;
};

void one_line(const Status &s) {
  if (s.error().line().find('\n') != std::string::npos) __builtin_trap();
}

std::shared_ptr<const Plan> one_plan(Bytes &in, const PlanRequest &q) {
  PlanBuilder builder(q);
  const tutti_plan_builder *b = builder.builder();
  tutti_plan_shape shape{};
  shape.struct_size = sizeof shape;
  shape.in_chunks = in.small(17);
  shape.out_chunks = in.small(17);
  shape.scratch_chunks = in.small(4);
  shape.groups = in.small(4);
  shape.lanes = in.small(5);
  shape.min_depth = 2 + in.small(3);
  shape.window = in.small(3);
  b->begin(b->impl, &shape);
  for (uint32_t lane = 0; lane < shape.lanes; lane++) {
    tutti_link links[8];
    for (tutti_link &l : links)
      l = {static_cast<int32_t>(in.small(static_cast<uint32_t>(q.nranks) + 1)), static_cast<uint16_t>(in.small(3)),
           static_cast<uint16_t>(in.byte() == 255 ? in.small(4) : 0)};
    b->lane(b->impl, in.small(3), links, in.small(5), links + 4, in.small(5));
    for (uint32_t n = in.small(6); n > 0; n--) {
      tutti_step s{};
      s.ops = in.small(128);
      s.repeat = in.byte() == 255 ? static_cast<uint32_t>(in.wild()) : 1 + in.small(4);
      if (s.ops & TUTTI_STEP_SRC) s.src = in.ref();
      if ((s.ops & TUTTI_STEP_STORE) || !(s.ops & TUTTI_STEP_SRC)) s.dst = in.ref();
      if (s.ops & TUTTI_STEP_RECV)
        s.recv_count = static_cast<uint16_t>(in.small(4)), s.recv_first = static_cast<uint16_t>(in.small(4));
      if (s.ops & TUTTI_STEP_SEND)
        s.send_count = static_cast<uint16_t>(in.small(4)), s.send_first = static_cast<uint16_t>(in.small(4));
      s.link_stride = static_cast<int16_t>(in.wild());
      s.src_pos = static_cast<uint16_t>(in.small(3));
      s.dep_count = static_cast<uint16_t>(in.small(8) == 7 ? 1 : 0);
      const tutti_dep dep{in.small(4), in.small(4)};
      b->step(b->impl, &s, &dep);
    }
  }
  auto plan = builder.finish("fuzz");
  if (!plan.ok()) return one_line(plan.status()), nullptr;
  return *plan;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Bytes in(data, size);
  const int n = 2 + static_cast<int>(in.small(4));
  const tutti_coll coll = in.small(TUTTI_COLL_BARRIER + 1);
  const bool rooted =
      coll == TUTTI_COLL_REDUCE || coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_GATHER || coll == TUTTI_COLL_SCATTER;
  const int root = rooted ? static_cast<int>(in.small(static_cast<uint32_t>(n))) : -1;
  const uint32_t flags = in.small(16);
  std::vector<std::shared_ptr<const Plan>> plans;
  for (int r = 0; r < n; r++) plans.push_back(one_plan(in, PlanRequest::simple(coll, r, n, root, 2, flags)));
  CheckOptions o;
  o.depth = in.small(4);
  o.in_place = in.small(2);
  for (const PlanFinding &f : check_plans(plans, o))
    if (f.text.find('\n') != std::string::npos) __builtin_trap();
  for (const auto &p : plans)
    if (p) (void)dump_text(*p);
  return 0;
}
