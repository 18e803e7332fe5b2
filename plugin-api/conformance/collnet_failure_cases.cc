// Cases of tutti.collnet/1: members that leave, differ or stay away, and posts that are not in the caps.
#include "base/types.h"
#include "collnet_bench.h"
#include "collnet_cases.h"
#include <algorithm>
#include <cstring>

namespace tutti::conformance {
namespace {

constexpr std::chrono::milliseconds kSlack{2000}; // for a busy machine
constexpr std::chrono::milliseconds kMostPatience{20'000};

void post_one(CollnetBench &b, size_t m, const Work &w, Memory &send, Memory &recv) {
  const tutti_status s = b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), w, &send, &recv, send.size()));
  require(s == TUTTI_OK, "post of member {} returned {}", m, status_name(s));
}

Memories memories(CollnetBench &b, uint64_t bytes) {
  Memories out;
  for (size_t m = 0; m < b.size(); m++) out.push_back(b.memory(bytes));
  return out;
}

// All members but those in `gone` hear it: what they have posted fails, or what they post now.
void require_failed(CollnetBench &b, std::chrono::milliseconds limit, int gone = -1) {
  Memory send = b.memory(b.piece()), recv = b.memory(b.piece());
  for (size_t m = 0; m < b.size(); m++) {
    if (static_cast<int>(m) == gone) continue;
    Seat &seat = *b.team()[m];
    b.until([&] { return seat.completed() == seat.posted() && seat.why().reason != TUTTI_COLLNET_FINE; },
            fmt::format("member {} to hear that its group has failed", m), limit);
    const tutti_status s = seat.post(b.op(seat, static_cast<int>(m), b.any(), &send, &recv, b.piece()));
    require(s < 0, "a post of a group that has failed returned {}", status_name(s));
    tutti_collnet_caps caps{};
    caps.struct_size = sizeof caps;
    require(b.net.group_ready(seat.group(), &caps) < 0, "a group that has failed is ready");
    require(seat.why().text[0] != 0, "the group failed and does not say why");
  }
}

void refuses(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  b.up();
  const tutti_collnet_caps &c = b.caps();
  Seat &seat = *b.team()[0];
  const uint64_t piece = b.piece();
  Memory send = b.memory(piece), recv = b.memory(piece);
  const tutti_collnet_op good = b.op(seat, 0, b.any(), &send, &recv, piece);
  const auto refused = [&](tutti_collnet_op op, const std::string &what) {
    const tutti_status s = seat.post(op);
    require(s == TUTTI_ERR_UNSUPPORTED || s == TUTTI_ERR_INVALID, "a post of {} returned {}, expected UNSUPPORTED or INVALID",
            what, status_name(s));
  };
  tutti_collnet_op op = good;
  op.dtype = 77;
  refused(op, "an element type that nobody has");
  op = good, op.op = 77;
  refused(op, "a reduction that nobody has");
  for (op = good, op.dtype = 0; op.dtype < TUTTI_DT_COUNT; op.dtype++)
    for (op.op = 0; op.op < TUTTI_RED_COUNT; op.op++)
      if (!b.has(op.dtype, op.op))
        refused(op, fmt::format("{} of {}, which is not in dtype_ops,", redop_name(op.op), dtype_name(op.dtype)));
  for (op = good, op.coll = 0; op.coll < TUTTI_COLL_COUNT; op.coll++) {
    op.root = op.coll == TUTTI_COLL_REDUCE || op.coll == TUTTI_COLL_BROADCAST ? 0 : -1;
    if (!b.has(op.coll)) refused(op, std::string(coll_name(op.coll)) + ", which is not in colls,");
  }
  for (const tutti_coll coll : {TUTTI_COLL_REDUCE, TUTTI_COLL_BROADCAST})
    for (const int32_t root : {-1, 2}) {
      op = good, op.coll = coll, op.root = root;
      if (b.has(coll)) refused(op, fmt::format("root {} of 2 members", root));
    }
  op = good, op.flags = 1u << 31;
  refused(op, "a flag that nobody knows");
  op = good, op.flags = TUTTI_COLLNET_AVERAGE;
  if (!(c.flags & TUTTI_COLLNET_AVERAGES) && op.op == TUTTI_RED_SUM) refused(op, "an average, which is not in flags,");
  op = good, op.bytes = c.max_bytes + piece;
  if (op.bytes > c.max_bytes) refused(op, "more than max_bytes"); // refused before anything is read
  op = good, op.bytes = piece - dtype_bytes(op.dtype);
  if (op.bytes % c.alignment) refused(op, "bytes that are not aligned");
  require(seat.completed() == 0 && seat.why().reason == TUTTI_COLLNET_FINE, "the group has failed");
  Random random(5);
  b.run(b.team(), b.any(), piece, random);
  Memories none;
  b.post(b.team(), b.any(), none, none, 0);
  b.all_done(b.team());
}

// A post without a buffer, longer than what a switch holds at once where it can be.
void leaves(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  const uint64_t bytes = b.fit(1 << 20);
  Memories send = memories(b, bytes), recv = memories(b, bytes);
  post_one(b, 0, b.any(), send[0], recv[0]);
  b.team()[0]->destroy();
  std::memset(recv[0].data(), 0x3c, bytes);
  b.sides[0]->poll();
  require(b.team()[0]->completed() == 1, "what a destroyed group had outstanding is not reported by the next progress");
  require(b.team()[0]->status(0) == TUTTI_ERR_CANCELLED, "it was reported with {}", status_name(b.team()[0]->status(0)));
  for (size_t m = 1; m < b.size(); m++) {
    const tutti_status s = b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), b.any(), &send[m], &recv[m], bytes));
    require(s != TUTTI_AGAIN, "an idle group takes no post");
  }
  require_failed(b, std::chrono::seconds(5) + kSlack, 0);
  for (size_t m = 1; m < b.size(); m++)
    for (size_t k = 0; k < b.team()[m]->completed(); k++)
      require(b.team()[m]->status(k) < 0, "a post succeeded though a member is gone");
  for (uint64_t i = 0; i < bytes; i++) require(recv[0].data()[i] == 0x3c, "a buffer of a destroyed group was written");
}

// Between operations: the others' groups work, until they post.
void leaves_between(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.config.progress_ms = 500;
  b.up();
  Random random(25);
  b.run(b.team(), b.any(), b.piece(), random);
  b.team()[0]->destroy();
  for (const Deadline a_while = Deadline::in(std::chrono::milliseconds(100)); !a_while.expired();) b.poll();
  for (size_t m = 1; m < b.size(); m++)
    require(b.team()[m]->ready() == TUTTI_OK,
            "a member left between operations, and the group fails before anybody has posted");
  Memories send = memories(b, b.piece()), recv = memories(b, b.piece());
  for (size_t m = 1; m < b.size(); m++)
    (void)b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), b.any(), &send[m], &recv[m], b.piece()));
  require_failed(b, std::chrono::milliseconds(b.caps().progress_ms) + kSlack, 0);
}

// One field of member 1's post differs.
struct Lie {
  tutti_collnet_field field;
  const char *name;
  Work work;
  uint64_t bytes;
};

// Whether the aggregators compare at all: by tags, which change nothing else.
bool compares(CollnetBench &b) {
  Memories send = memories(b, b.piece()), recv = memories(b, b.piece());
  Work w = b.any();
  for (size_t m = 0; m < b.size(); m++) {
    w.tag = m == 1;
    const tutti_status s = b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), w, &send[m], &recv[m], b.piece()));
    if (s < 0) return true;
  }
  b.until([&] { return std::all_of(b.team().begin(), b.team().end(), [](auto &s) { return s->completed() == 1; }); },
          "posts with different tags to end");
  return b.team()[0]->status(0) < 0;
}

void finds_lie(CollnetBench &b, const Lie &lie, const Work &truth, uint64_t bytes) {
  Memories send = memories(b, std::max(bytes, lie.bytes)), recv = memories(b, std::max(bytes, lie.bytes));
  for (size_t m = 0; m < b.size(); m++) {
    const bool lies = m == 1;
    const tutti_collnet_op op =
        b.op(*b.team()[m], static_cast<int>(m), lies ? lie.work : truth, &send[m], &recv[m], lies ? lie.bytes : bytes);
    const tutti_status s = b.team()[m]->post(op); // the group may have failed already
    require(s == TUTTI_OK || s < 0, "an idle group takes no post");
  }
  require_failed(b, std::chrono::seconds(5) + kSlack);
  for (auto &seat : b.team()) {
    const tutti_collnet_why why = seat->why();
    require(why.reason == TUTTI_COLLNET_MISMATCH, "members differ in {}, and the reason is {}: {}", lie.name, why.reason,
            why.text);
    require(why.field == lie.field || why.field == TUTTI_COLLNET_FIELD_NONE, "members differ in {}, and the field is {}: {}",
            lie.name, why.field, why.text);
    require(why.member >= -1 && why.member < static_cast<int>(b.size()), "the member is {}", why.member);
  }
}

void finds_differences(const Plugin &plugin, const void *table) {
  std::vector<Lie> lies;
  Work truth;
  uint64_t bytes = 0;
  {
    CollnetBench b(plugin, table);
    b.up();
    if (!compares(b)) skip("the aggregators compare nothing");
    truth = b.any();
    bytes = b.piece();
    const auto lie = [&](tutti_collnet_field field, const char *name, auto change) {
      Lie l{field, name, truth, bytes};
      change(&l);
      lies.push_back(l);
    };
    lie(TUTTI_COLLNET_FIELD_TAG, "tag", [](Lie *l) { l->work.tag = 7; });
    if (b.fit(2 * bytes) > bytes) lie(TUTTI_COLLNET_FIELD_BYTES, "bytes", [&](Lie *l) { l->bytes = 2 * bytes; });
    for (tutti_redop o = 0; o < TUTTI_RED_COUNT; o++)
      if (o != truth.op && b.has(truth.dtype, o)) {
        lie(TUTTI_COLLNET_FIELD_OP, "op", [&](Lie *l) { l->work.op = o; });
        break;
      }
    for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; t++)
      if (t != truth.dtype && b.has(t, truth.op)) {
        lie(TUTTI_COLLNET_FIELD_DTYPE, "dtype", [&](Lie *l) { l->work.dtype = t; });
        break;
      }
    if (b.has(TUTTI_COLL_REDUCE))
      lie(TUTTI_COLLNET_FIELD_COLL, "coll", [](Lie *l) { l->work.coll = TUTTI_COLL_REDUCE, l->work.root = 0; });
    if ((b.caps().flags & TUTTI_COLLNET_AVERAGES) && truth.op == TUTTI_RED_SUM)
      lie(TUTTI_COLLNET_FIELD_AVERAGE, "average", [](Lie *l) { l->work.flags = TUTTI_COLLNET_AVERAGE; });
  }
  for (const Lie &lie : lies) {
    CollnetBench b(plugin, table);
    b.up();
    finds_lie(b, lie, truth, bytes);
  }
}

void keeps_groups_apart(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up().up();
  Random random(19);
  const uint64_t bytes = b.fit(50'000);
  // Both have posts at once, the second's first, of other members first.
  Memories send = memories(b, bytes), recv = memories(b, bytes), send2 = memories(b, bytes), recv2 = memories(b, bytes);
  const Work w = b.any();
  for (size_t m = 0; m + 1 < b.size(); m++) post_one(b, m, w, send[m], recv[m]);
  b.post(b.team(1), w, send2, recv2, bytes, 1);
  b.all_done(b.team(1));
  post_one(b, b.size() - 1, w, send.back(), recv.back());
  b.all_done(b.team(0));
  // One fails.
  post_one(b, 0, w, send[0], recv[0]);
  b.team()[0]->destroy();
  for (size_t m = 1; m < b.size(); m++)
    (void)b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), w, &send[m], &recv[m], bytes));
  for (int i = 0; i < 20; i++) b.run(b.team(1), w, bytes, random);
  require_failed(b, std::chrono::seconds(5) + kSlack, 0);
  for (int i = 0; i < 20; i++) b.run(b.team(1), w, bytes, random);
  for (auto &seat : b.team(1))
    require(seat->why().reason == TUTTI_COLLNET_FINE, "a group fails with another one: {}", seat->why().text);
}

void names_the_missing(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.config.progress_ms = 500;
  b.up();
  const std::chrono::milliseconds granted(b.caps().progress_ms);
  if (granted > kMostPatience) skip(fmt::format("{} ms were granted where 500 were asked for", granted.count()));
  Random random(22);
  b.run(b.team(), b.any(), b.piece(), random);
  const auto idle = Deadline::in(std::chrono::milliseconds(800)); // with nothing posted nothing is late
  b.until([&] { return idle.expired(); }, "time to pass");
  b.run(b.team(), b.any(), b.piece(), random);
  Memories send = memories(b, b.piece()), recv = memories(b, b.piece());
  for (const size_t m : {0, 2}) post_one(b, m, b.any(), send[m], recv[m]);
  require_failed(b, granted + kSlack);
  for (auto &seat : b.team()) {
    const tutti_collnet_why why = seat->why();
    require(why.reason == TUTTI_COLLNET_TIMEOUT, "member 1 does not post, and the reason is {}: {}", why.reason, why.text);
    require(why.member == 1, "member 1 does not post, and the member named is {}: {}", why.member, why.text);
  }
}

} // namespace

std::vector<Case> collnet_failure_cases() {
  return {
      {"G-05", "a post that is not in the caps is refused, and the group works on", refuses},
      {"G-06", "a member that leaves in the middle has its posts cancelled; the others fail with a reason", leaves},
      {"G-18", "where aggregators compare, a difference is a MISMATCH with its field, whichever it is", finds_differences,
       std::chrono::seconds(60)},
      {"G-19", "groups of one context do not disturb each other, nor does the end of one", keeps_groups_apart},
      {"G-21", "a member that leaves between operations ends the group only when others post", leaves_between,
       std::chrono::seconds(30)},
      {"G-22", "a member that does not post what others wait for is named in time, and only then is anything late",
       names_the_missing, std::chrono::seconds(40)},
  };
}

} // namespace tutti::conformance
