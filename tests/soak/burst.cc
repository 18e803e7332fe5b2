// Operations that are under way together: on streams, in groups, awaited in all the ways there are.
#include "member.h"
#include "tools/data.h"
#include <algorithm>
#include <memory>

namespace soak {
namespace {

constexpr uint64_t kDataSeed = 7;
constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; // by tuttiDataType_t

// A buffer of the library's or of the application's, alike but for what the library makes of them.
class Memory {
public:
  Memory(support::Rank &r, size_t bytes, bool lent) : r_(r), lent_(lent) {
    if (lent)
      EXPECT_OK(r, tuttiMemAlloc(&at_, bytes + 1));
    else
      own_ = std::make_unique<char[]>(bytes + 1);
  }
  ~Memory() {
    if (lent_) EXPECT_OK(r_, tuttiMemFree(at_));
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  void *data() { return lent_ ? at_ : own_.get(); }

private:
  support::Rank &r_;
  const bool lent_;
  void *at_ = nullptr;
  std::unique_ptr<char[]> own_;
};

struct Part { // one operation
  enum Coll { all_reduce, broadcast, all_gather, send_recv } coll;
  tuttiDataType_t type;
  int op, root, rank, n;
  size_t count;
  tuttiComm_t comm;
  tuttiStream_t stream;
  std::unique_ptr<Memory> in, out;
  tuttiWork_t work = nullptr;

  int from() const { return (rank + n - 1) % n; }
  size_t bytes() const { return count * kBytes[type]; }
  void fill() const { tutti::data::input(in->data(), count, type, coll == all_reduce ? op : -1, n, rank, kDataSeed, 0); }
  tuttiResult_t call() {
    switch (coll) {
    case all_reduce:
      return tuttiAllReduce(in->data(), out->data(), count, type, static_cast<tuttiRedOp_t>(op), comm, stream);
    case broadcast:
      return tuttiBroadcast(in->data(), out->data(), count, type, root, comm, stream);
    case all_gather:
      return tuttiAllGather(in->data(), out->data(), count, type, comm, stream);
    case send_recv:
      break;
    }
    if (const tuttiResult_t e = tuttiGroupStart(); e != tuttiSuccess) return e;
    const tuttiResult_t sent = tuttiSend(in->data(), count, type, (rank + 1) % n, comm, stream);
    const tuttiResult_t received = tuttiRecv(out->data(), count, type, from(), comm, stream);
    const tuttiResult_t end = tuttiGroupEnd();
    return sent != tuttiSuccess ? sent : received != tuttiSuccess ? received : end;
  }
  bool is_input(const char *got, int of) const {
    std::vector<char> want(bytes());
    tutti::data::input(want.data(), count, type, -1, n, of, kDataSeed, 0);
    return std::equal(want.begin(), want.end(), got);
  }
  bool right() const {
    const auto *got = static_cast<const char *>(out->data());
    if (coll == broadcast) return is_input(got, root);
    if (coll == send_recv) return is_input(got, from());
    if (coll == all_gather) {
      for (int r = 0; r < n; r++)
        if (!is_input(got + static_cast<size_t>(r) * bytes(), r)) return false;
      return true;
    }
    std::vector<char> want(bytes());
    tutti::data::expected(want.data(), count, type, op, n, kDataSeed, 0);
    return tutti::data::mismatches(got, want.data(), count, type, op, n) == 0;
  }
};

} // namespace

void Member::burst(Draw &draw) {
  const size_t times = 1 + draw.below(10);
  const bool group = draw.one_in(2), lent = draw.one_in(4);
  const int wait = draw.from(0, 3);
  std::vector<Part> parts(times);
  for (Part &p : parts) {
    p.coll = static_cast<Part::Coll>(draw.below(4));
    p.type = static_cast<tuttiDataType_t>(draw.below(tuttiNumTypes));
    p.op = draw.from(tuttiSum, tuttiAvg);
    const size_t at = draw.below(sets_.size() + 1), stream = draw.below(streams_.size() + 1);
    p.count = count_of(draw, draw.one_in(10) ? size_t{4} << 20 : size_t{128} << 10, 8);
    const int root = draw.from(0, r_.n - 1);
    p.comm = at > 0 ? sets_[at - 1] : r_.comm;
    p.stream = stream > 0 ? streams_[stream - 1] : nullptr;
    EXPECT_OK(r_, tuttiCommUserRank(p.comm, &p.rank));
    EXPECT_OK(r_, tuttiCommCount(p.comm, &p.n));
    p.root = root % p.n;
    p.in = std::make_unique<Memory>(r_, p.bytes(), lent);
    p.out = std::make_unique<Memory>(r_, p.bytes() * (p.coll == Part::all_gather ? static_cast<size_t>(p.n) : 1), lent);
    p.fill();
  }
  if (group) EXPECT_OK(r_, tuttiGroupStart());
  for (Part &p : parts) {
    EXPECT_OK(r_, p.call());
    if (!group && wait == 0) EXPECT_OK(r_, tuttiCommGetLastWork(p.comm, &p.work));
  }
  if (group) EXPECT_OK(r_, tuttiGroupEnd());
  for (Part &p : parts) {
    if (p.work) {
      EXPECT_OK(r_, tuttiWorkWait(p.work));
      EXPECT_OK(r_, tuttiWorkDestroy(p.work));
    } else if (wait == 1) {
      tuttiEvent_t event = nullptr;
      EXPECT_OK(r_, tuttiEventCreate(&event));
      EXPECT_OK(r_, tuttiEventRecord(event, p.comm, p.stream));
      EXPECT_OK(r_, tuttiEventSynchronize(event));
      EXPECT_OK(r_, tuttiEventDestroy(event));
    } else if (p.stream || wait == 2)
      EXPECT_OK(r_, tuttiStreamSynchronize(p.stream));
    else
      EXPECT_OK(r_, tuttiCommSynchronize(p.comm));
  }
  for (const Part &p : parts)
    if (!EXPECT(r_, p.right()))
      std::fprintf(stderr, "coll %d count %zu type %d op %d root %d of %d ranks, group %d, lent %d, wait %d\n", p.coll, p.count,
                   p.type, p.op, p.root, p.n, group, lent, wait);
  operations_ += times;
}

} // namespace soak
