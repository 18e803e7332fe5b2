// What members get is the reduction, with the same bits for every chunk size, window, number of daemons and shape they should
// not depend on.
#include "base/types.h"
#include "tools/data.h"
#include "work.h"
#include <cstring>
#include <doctest/doctest.h>
#include <tuple>

using namespace collnet;
using tutti::dtype_bytes;

namespace {

void all_right(Run &run) {
  for (const End &e : run.wait()) {
    INFO(e.said);
    CHECK(e.status == 0);
  }
}
void open(Member &m, const Member::Options &options) {
  check(m.open(options), m.text);
  check(m.join() == TUTTI_OK, m.text);
}

// An all_reduce of `n` elements whose result every order of reduction agrees on.
void exact(Member &m, tutti_dtype type, tutti_redop op, size_t n, uint64_t seed, bool in_place) {
  const auto t = static_cast<tuttiDataType_t>(type);
  const int data_op = op == TUTTI_RED_SUM    ? tuttiSum
                      : op == TUTTI_RED_PROD ? tuttiProd
                      : op == TUTTI_RED_MAX  ? tuttiMax
                                             : tuttiMin;
  const size_t bytes = n * dtype_bytes(type);
  std::vector<unsigned char> in(bytes + 8), out(bytes + 8, 0xa5), want(bytes + 8);
  tutti::data::input(in.data(), n, t, data_op, m.n, m.rank, seed, 0);
  tutti::data::expected(want.data(), n, t, data_op, m.n, seed, 0);
  const tutti_status s = m.run(Member::all_reduce(type, op, in.data(), in_place ? in.data() : out.data(), bytes));
  check(s == TUTTI_OK, m.text);
  const auto &got = in_place ? in : out;
  const uint64_t wrong = tutti::data::mismatches(got.data(), want.data(), n, t, data_op, m.n);
  check(wrong == 0, std::string(tutti::dtype_name(type)) + " " + std::string(tutti::redop_name(op)) + " of " +
                        std::to_string(n) + ": " + std::to_string(wrong) + " elements differ");
  for (size_t i = bytes; i < out.size() && !in_place; i++) check(out[i] == 0xa5, "bytes behind the result were written");
}

void all_types(Member &m) {
  uint64_t seed = 1;
  for (tutti_dtype type = 0; type < TUTTI_DT_COUNT; type++)
    for (tutti_redop op = 0; op < TUTTI_RED_COUNT; op++)
      for (const size_t n : {size_t{1}, size_t{7}, size_t{1000}, size_t{100'003}})
        exact(m, type, op, n, seed, (seed & 1) != 0), seed++;
}

// Floats whose sum depends on the order: the bits tell in which one it was made.
std::vector<float> rough(int rank, size_t n) {
  std::vector<float> out(n);
  uint32_t x = 12345u + static_cast<uint32_t>(rank) * 7919u;
  for (float &f : out) {
    x = x * 1664525u + 1013904223u;
    f = static_cast<float>(static_cast<int32_t>(x)) * (x % 7 ? 1.0f : 1e-6f);
  }
  return out;
}

} // namespace

TEST_CASE("every type and reduction is exact with 2, 4 and 8 members") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  for (const int n : full() ? std::vector<int>{2, 3, 4, 8} : std::vector<int>{4}) {
    Run run(n, [&](Member &m) {
      open(m, options_for(folder, {daemon.address()}));
      all_types(m);
    });
    all_right(run);
  }
  CHECK(daemon.becomes([](const auto &s) { return s["groups"].empty() && s["memory"]["reserved"] == 0; }));
}

TEST_CASE("a tree of two daemons under a root serves every type, and says how deep it is") {
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "", &root), right(folder, "right", "", &root);
  Run run(4, [&](Member &m) {
    open(m, options_for(folder, {(m.rank < 2 ? left : right).address()}));
    check(m.caps.tree_depth == 2 && m.caps.aggregators == 3, "depth " + std::to_string(m.caps.tree_depth));
    all_types(m);
  });
  all_right(run);
  CHECK(root.becomes([](const auto &s) { return s["groups"].empty(); }));
  CHECK(root.status()["totals"]["ended_groups"].empty());
}

TEST_CASE("a daemon of a tree that grants a smaller window than the others grants it for all") {
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "[limits]\nwindow = \"128KiB\"\n", &root),
      right(folder, "right", "", &root);
  Run run(4, [&](Member &m) {
    open(m, options_for(folder, {(m.rank < 2 ? left : right).address()}));
    check(m.caps.window_bytes == 128 << 10, "window " + std::to_string(m.caps.window_bytes));
    exact(m, TUTTI_DT_INT32, TUTTI_RED_SUM, 300'000, 1, false);
  });
  all_right(run);
}

TEST_CASE("the bits are those of the members' order for every chunk size, window and number of daemons") {
  Folder folder;
  Daemon a(folder, "a"), b(folder, "b"), c(folder, "c");
  const size_t n = 300'001;
  std::vector<float> want = rough(0, n);
  for (int r = 1; r < 4; r++) {
    const std::vector<float> next = rough(r, n);
    for (size_t i = 0; i < n; i++) want[i] += next[i];
  }
  const std::vector<std::vector<std::string>> shards{
      {a.address()}, {a.address(), b.address()}, {a.address(), b.address(), c.address()}};
  uint64_t order[2] = {0, 0};
  for (const auto &servers : shards)
    for (const char *chunk : {"\"64KiB\"", "\"4KiB\"", "64"})
      for (const char *window : {"\"64KiB\"", "\"1MiB\""}) {
        if (std::string(chunk) == "64" && !full() && servers.size() != 2) continue;
        Run run(4, [&](Member &m) {
          auto options = options_for(folder, servers);
          options["chunk"] = options["chunk_min"] = chunk;
          options["window"] = window;
          open(m, options);
          const std::vector<float> in = rough(m.rank, n);
          std::vector<float> out(n);
          for (int i = 0; i < 2; i++) {
            check(m.run(Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), n * 4)) == TUTTI_OK, m.text);
            check(std::memcmp(out.data(), want.data(), n * 4) == 0, "other bits with chunk " + options["chunk"]);
          }
          check(m.caps.repeat == TUTTI_COLLNET_REPEAT_SIZE && m.caps.accumulate == TUTTI_COLLNET_ACC_FLOAT32, "caps");
          m.note(std::to_string(m.caps.order_id));
        });
        for (const End &e : run.wait()) {
          INFO(e.said);
          REQUIRE(e.status == 0);
          if (order[0] == 0) order[0] = std::stoull(e.said);
          CHECK(std::stoull(e.said) == order[0]);
        }
      }
}

TEST_CASE("members that want chunks of other sizes agree on the largest of the smallest and the smallest of the largest") {
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "", &root);
  const auto chunks_of = [&](const std::vector<std::pair<const char *, const char *>> &wishes) {
    const uint64_t before = root.status()["totals"]["chunks"];
    Run run(3, [&](Member &m) {
      auto options = options_for(folder, {(m.rank < 2 ? root : left).address()});
      std::tie(options["chunk_min"], options["chunk"]) = wishes[static_cast<size_t>(m.rank)];
      open(m, options);
      exact(m, TUTTI_DT_INT32, TUTTI_RED_SUM, 65'536, 1, false);
    });
    all_right(run);
    return root.status()["totals"]["chunks"].get<uint64_t>() - before;
  };
  CHECK(chunks_of({{"64", "\"128KiB\""}, {"64", "\"128KiB\""}, {"64", "\"128KiB\""}}) == 16); // 256 KiB in sixteen
  CHECK(chunks_of({{"64", "\"128KiB\""}, {"\"32KiB\"", "\"128KiB\""}, {"4096", "\"128KiB\""}}) == 8);
  CHECK(chunks_of({{"64", "\"128KiB\""}, {"64", "\"4KiB\""}, {"64", "\"8KiB\""}}) == 64);
}

TEST_CASE("half precision is added in float32 and rounded once, through trees, too") {
  // 2048 + 1 + 1 is 2050, but 2048 where each sum is rounded to a half.
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "", &root), right(folder, "right", "", &root);
  for (const bool tree : {false, true}) {
    Run run(4, [&](Member &m) {
      open(m, options_for(folder, {tree ? (m.rank < 2 ? left : right).address() : root.address()}));
      const uint16_t values[4] = {0x6800 /* 2048 */, 0x3c00 /* 1 */, 0x0000, 0x3c00};
      std::vector<uint16_t> in(1000, values[m.rank]), out(1000);
      check(m.run(Member::all_reduce(TUTTI_DT_FLOAT16, TUTTI_RED_SUM, in.data(), out.data(), 2000)) == TUTTI_OK, m.text);
      for (const uint16_t h : out) check(h == 0x6801, "rounded to " + std::to_string(h));
    });
    all_right(run);
  }
}

TEST_CASE("reduce, broadcast, barrier and average give what they should, flat and in a tree") {
  Folder folder;
  Daemon root(folder, "root"), left(folder, "left", "", &root), right(folder, "right", "", &root);
  for (const bool tree : {false, true}) {
    Run run(4, [&](Member &m) {
      open(m, options_for(folder, {tree ? (m.rank < 2 ? left : right).address() : root.address()}));
      const size_t n = 70'001;
      for (int r = 0; r < 4; r++) {
        std::vector<int32_t> in(n), out(n, -1);
        for (size_t i = 0; i < n; i++) in[i] = static_cast<int32_t>(i) * (m.rank + 1);
        tutti_collnet_op op =
            Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, in.data(), m.rank == r ? out.data() : nullptr, n * 4);
        op.coll = TUTTI_COLL_REDUCE;
        op.root = r;
        check(m.run(op) == TUTTI_OK, m.text);
        for (size_t i = 0; i < n && m.rank == r; i++) check(out[i] == static_cast<int32_t>(i) * 10, "reduce");
        op = Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, m.rank == r ? in.data() : nullptr, out.data(), n * 4);
        op.coll = TUTTI_COLL_BROADCAST;
        op.root = r;
        check(m.run(op) == TUTTI_OK, m.text);
        for (size_t i = 0; i < n; i++) check(out[i] == static_cast<int32_t>(i) * (r + 1), "broadcast");
        op = Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, nullptr, nullptr, 0);
        op.coll = TUTTI_COLL_BARRIER;
        check(m.run(op) == TUTTI_OK, m.text);
      }
      std::vector<float> in(100, static_cast<float>(m.rank)), out(100);
      tutti_collnet_op op = Member::all_reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, in.data(), out.data(), 400);
      op.flags = TUTTI_COLLNET_AVERAGE;
      check(m.run(op) == TUTTI_OK, m.text);
      for (const float f : out) check(f == 1.5f, "average");
    });
    all_right(run);
  }
}

TEST_CASE("posts beyond what was granted are told to come again, and complete in their order") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\noutstanding = 8\n");
  Run run(2, [&](Member &m) {
    open(m, options_for(folder, {daemon.address()}));
    check(m.caps.max_outstanding == 8, "granted " + std::to_string(m.caps.max_outstanding));
    std::vector<std::vector<int32_t>> data(100, std::vector<int32_t>(16));
    uint32_t taken = 0;
    for (int i = 0; i < 100; i++) data[static_cast<size_t>(i)].assign(16, i + m.rank);
    check(m.meet(), "meet");
    if (m.rank == 0) { // nobody else posts yet: the ninth must be refused
      for (; taken < 100; taken++) {
        const tutti_collnet_op op =
            Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, data[taken].data(), data[taken].data(), 64);
        const tutti_status s = m.api().post(m.group(), &op, taken);
        if (s == TUTTI_AGAIN) break;
        check(s == TUTTI_OK, "post");
      }
      check(taken == 8, std::to_string(taken) + " were taken");
    }
    check(m.meet(), "meet");
    for (; taken < 100; taken++)
      check(m.post(Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, data[taken].data(), data[taken].data(), 64), taken) ==
                TUTTI_OK,
            m.text);
    for (uint32_t i = 0; i < 100; i++) {
      check(m.wait(i) == TUTTI_OK, m.text);
      for (const int32_t v : data[i]) check(v == 2 * static_cast<int32_t>(i) + 1, "value");
    }
  });
  all_right(run);
}

TEST_CASE("small posts go round between several daemons, and large ones between them") {
  Folder folder;
  Daemon a(folder, "a"), b(folder, "b"), c(folder, "c");
  Run run(3, [&](Member &m) {
    open(m, options_for(folder, {a.address(), b.address(), c.address()}));
    for (uint64_t i = 0; i < 60; i++) exact(m, TUTTI_DT_INT64, TUTTI_RED_SUM, i % 7 == 0 ? 50'000 : 1 + i % 3, i, false);
    std::vector<std::vector<int32_t>> data(40, std::vector<int32_t>(8));
    for (uint64_t i = 0; i < 40; i++) {
      data[i].assign(8, static_cast<int32_t>(i) + m.rank);
      check(m.post(Member::all_reduce(TUTTI_DT_INT32, TUTTI_RED_SUM, data[i].data(), data[i].data(), 32), i) == TUTTI_OK,
            m.text);
    }
    for (uint64_t i = 0; i < 40; i++) {
      check(m.wait(i) == TUTTI_OK, m.text);
      check(data[i][7] == 3 * static_cast<int32_t>(i) + 3, "value");
    }
  });
  all_right(run);
}

TEST_CASE("several jobs and several groups of a member run at once") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  std::vector<std::unique_ptr<Run>> jobs;
  for (int job = 0; job < 4; job++)
    jobs.push_back(std::make_unique<Run>(2, [&, job](Member &m) {
      check(m.open(options_for(folder, {daemon.address()})), m.text);
      for (int i = 0; i < 3; i++) {
        check(m.join(static_cast<uint64_t>(job)) == TUTTI_OK, m.text);
        for (uint64_t k = 0; k < 20; k++) exact(m, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 5000, k, false);
        m.leave();
      }
    }));
  for (auto &job : jobs) all_right(*job);
  CHECK(daemon.becomes([](const auto &s) { return s["groups"].empty() && s["memory"]["reserved"] == 0; }));
  CHECK(daemon.status()["totals"]["groups"] == 12);
  CHECK(daemon.status()["totals"]["ended_groups"].empty());
}
