// The formulas of `tutti plan volume` against what ranks count when they really run: collectives by ring, tree and direct, and
// small programs that communicate as training does.
#include "tools/plan_volume.h"
#include "traffic.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>

using namespace support;
using namespace tutti::tools;

namespace {

double value(const VolumeArgs &args, std::string_view what) {
  const auto all = volumes(args);
  if (all.ok())
    for (const Volume &v : *all)
      if (v.what.find(what) == 0) return v.value;
  return -1;
}
VolumeArgs about(const char *topic, int n, uint64_t bytes = 0) {
  VolumeArgs a;
  a.topic = topic;
  a.ranks = n;
  a.bytes = bytes;
  return a;
}

// What all ranks have sent in `work`, by rank.
template <class Work> std::vector<int64_t> sent_by_all(Rank &r, Work &&work) {
  const int64_t mine = traffic_of(r, work).sent().bytes;
  std::vector<int64_t> all(static_cast<size_t>(r.n));
  EXPECT_OK(r, tuttiAllGather(&mine, all.data(), 1, tuttiInt64, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  return all;
}
int64_t sum(const std::vector<int64_t> &v) {
  int64_t s = 0;
  for (const int64_t b : v) s += b;
  return s;
}
int64_t busiest(const std::vector<int64_t> &v) {
  return *std::max_element(v.begin(), v.end());
}
bool alike(const std::vector<int64_t> &v) {
  return busiest(v) == *std::min_element(v.begin(), v.end());
}
bool equal(double formula, int64_t counted) {
  return std::abs(formula - static_cast<double>(counted)) < 1e-6 * std::max(1.0, formula);
}

// Operations on `bytes` of the larger buffer, which the number of ranks divides.
struct Ops {
  Rank &r;
  std::vector<float> a, b;
  Ops(Rank &rank, uint64_t bytes) : r(rank), a(bytes / sizeof(float), 1), b(a) {}
  void done() { EXPECT_OK(r, tuttiCommSynchronize(r.comm)); }
  void all_reduce() {
    EXPECT_OK(r, tuttiAllReduce(a.data(), b.data(), a.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
    done();
  }
  void reduce_scatter() {
    EXPECT_OK(r, tuttiReduceScatter(a.data(), b.data(), a.size() / static_cast<size_t>(r.n), tuttiFloat32, tuttiSum, r.comm,
                                    nullptr));
    done();
  }
  void all_gather() {
    EXPECT_OK(r, tuttiAllGather(a.data(), b.data(), a.size() / static_cast<size_t>(r.n), tuttiFloat32, r.comm, nullptr));
    done();
  }
  void broadcast(int root) {
    EXPECT_OK(r, tuttiBcast(a.data(), a.size(), tuttiFloat32, root, r.comm, nullptr));
    done();
  }
  void reduce(int root) {
    EXPECT_OK(r, tuttiReduce(a.data(), b.data(), a.size(), tuttiFloat32, tuttiSum, root, r.comm, nullptr));
    done();
  }
};
uint64_t for_ranks(int n) { // bytes that cut into equal chunks
  return static_cast<uint64_t>(n) * 8192;
}
std::vector<std::string> by(const char *algo) {
  return {std::string("TUTTI_ALGO=") + algo, "TUTTI_MAX_CHANNELS=1"};
}

void rooted(Rank &r, const VolumeArgs &args) {
  Ops ops(r, args.bytes);
  for (const auto &all : {sent_by_all(r, [&] { ops.broadcast(0); }), sent_by_all(r, [&] { ops.reduce(0); })}) {
    EXPECT(r, equal(value(args, "broadcast or reduce, sent by the busiest rank"), busiest(all)));
    EXPECT(r, equal(value(args, "broadcast or reduce, all ranks together"), sum(all)));
  }
}

} // namespace

TEST_CASE("a ring moves what the formulas say") {
  const auto body = [](Rank &r) {
    const VolumeArgs args = about("ring", r.n, for_ranks(r.n));
    Ops ops(r, args.bytes);
    const auto all = sent_by_all(r, [&] { ops.all_reduce(); });
    EXPECT(r, alike(all));
    EXPECT(r, equal(value(args, "all_reduce, sent per rank"), all[0]));
    EXPECT(r, equal(value(args, "all_reduce, all ranks together"), sum(all)));
    for (const auto &half : {sent_by_all(r, [&] { ops.reduce_scatter(); }), sent_by_all(r, [&] { ops.all_gather(); })}) {
      EXPECT(r, alike(half));
      EXPECT(r, equal(value(args, "reduce_scatter or all_gather, sent per rank"), half[0]));
      EXPECT(r, equal(value(args, "reduce_scatter or all_gather, all ranks together"), sum(half)));
    }
    rooted(r, args);
  };
  for (const int n : {2, 3, 4, 8}) CHECK(run_processes(n, body, {.env = by("ring")}) == 0);
}
TEST_CASE("a double binary tree moves what the formulas say") {
  const auto body = [](Rank &r) {
    const VolumeArgs args = about("tree", r.n, for_ranks(r.n));
    Ops ops(r, args.bytes);
    const auto all = sent_by_all(r, [&] { ops.all_reduce(); });
    EXPECT(r, equal(value(args, "all_reduce, sent by the busiest rank"), busiest(all)));
    EXPECT(r, equal(value(args, "all_reduce, all ranks together"), sum(all)));
    rooted(r, args);
  };
  for (const int n : {2, 3, 4, 7, 8}) CHECK(run_processes(n, body, {.env = by("tree")}) == 0);
}
// No switch here adds up; a rank that all others send to, and that sends the sum to all, stands in for it.
TEST_CASE("a switch that adds up leaves each rank its buffer to send and to receive") {
  const auto body = [](Rank &r) {
    const VolumeArgs args = about("collnet", r.n - 1, for_ranks(r.n));
    Ops ops(r, args.bytes);
    const int middle = r.n - 1;
    const Traffic t = traffic_of(r, [&] { ops.reduce(middle), ops.broadcast(middle); });
    if (r.rank == middle) return;
    EXPECT(r, equal(value(args, "all_reduce in the switches, sent"), t.sent().bytes));
    EXPECT(r, equal(value(args, "all_reduce in the switches, received"), t.received().bytes));
  };
  for (const int n : {3, 5}) CHECK(run_processes(n, body, {.env = by("direct")}) == 0);
}

// ---- programs

TEST_CASE("a step of data parallel training, replicated or sharded, moves what the formulas say") {
  const auto body = [](Rank &r) {
    VolumeArgs args = about("ddp", r.n);
    args.element = 4;
    args.parameters = static_cast<double>(for_ranks(r.n)) / 4;
    Ops model(r, for_ranks(r.n)); // gradients or parameters
    const auto ddp = sent_by_all(r, [&] { model.all_reduce(); });
    EXPECT(r, equal(value(args, "all_reduce of gradients"), ddp[0]));
    EXPECT(r, equal(value(args, "all ranks together"), sum(ddp)));
    const auto sharded = sent_by_all(r, [&] { model.reduce_scatter(), model.all_gather(); });
    EXPECT(r, alike(sharded));
    for (const char *topic : {"zero1", "zero2"}) {
      args.topic = topic;
      EXPECT(r, equal(value(args, "reduce_scatter of gradients, all_gather"), sharded[0]));
    }
    const auto all_sharded = sent_by_all(r, [&] {
      model.all_gather();     // forward
      model.all_gather();     // backward
      model.reduce_scatter(); // gradients
    });
    args.topic = "zero3";
    EXPECT(r, equal(value(args, "all_gather of parameters twice, reduce_scatter"), all_sharded[0]));
  };
  for (const int n : {2, 4}) CHECK(run_processes(n, body, {.env = by("ring")}) == 0);
}
TEST_CASE("layers shared by ranks move what the formulas say") {
  const auto body = [](Rank &r) {
    VolumeArgs args = about("tensor", 2);
    args.tensor = r.n;
    args.batch = 2, args.seq = 16, args.hidden = 64, args.layers = 3, args.element = 4;
    Ops activations(r, args.batch * args.seq * args.hidden * 4);
    EXPECT(r,
           equal(value(args, "one all_reduce of activations"), static_cast<int64_t>(args.batch * args.seq * args.hidden * 4)));
    const auto layer = [&] {
      for (int i = 0; i < 4; i++) activations.all_reduce(); // attention and MLP, forward and backward
    };
    EXPECT(r, equal(value(args, "per layer"), sent_by_all(r, layer)[0]));
    const auto step = [&] {
      for (uint64_t l = 0; l < args.layers; l++) layer();
    };
    EXPECT(r, equal(value(args, "per step"), sent_by_all(r, step)[0]));
  };
  for (const int n : {2, 4}) CHECK(run_processes(n, body, {.env = by("ring")}) == 0);
}
TEST_CASE("a pipeline moves what the formulas say") {
  const auto body = [](Rank &r) {
    VolumeArgs args = about("pipeline", 2);
    args.stages = r.n;
    args.batch = 8, args.seq = 16, args.hidden = 64, args.element = 4;
    for (const int m : {2, 8}) {
      args.micro_batches = m;
      const size_t count = args.batch / static_cast<size_t>(m) * args.seq * args.hidden;
      std::vector<float> activations(count), gradients(count);
      const auto send = [&](std::vector<float> &x, int to) {
        if (to >= 0 && to < r.n) EXPECT_OK(r, tuttiSend(x.data(), count, tuttiFloat32, to, r.comm, nullptr));
      };
      const auto recv = [&](std::vector<float> &x, int from) {
        if (from >= 0 && from < r.n) EXPECT_OK(r, tuttiRecv(x.data(), count, tuttiFloat32, from, r.comm, nullptr));
      };
      const auto all = sent_by_all(r, [&] {
        for (int i = 0; i < m; i++) recv(activations, r.rank - 1), send(activations, r.rank + 1);
        for (int i = 0; i < m; i++) recv(gradients, r.rank + 1), send(gradients, r.rank - 1);
        EXPECT_OK(r, tuttiCommSynchronize(r.comm));
      });
      EXPECT(r, equal(value(args, "one message"), static_cast<int64_t>(count * sizeof(float))));
      EXPECT(r, equal(value(args, "all stages together"), sum(all)));
      if (r.n > 2) EXPECT(r, equal(value(args, "sent by an inner stage"), all[1]));
    }
  };
  for (const int n : {2, 4}) CHECK(run_processes(n, body) == 0);
}
