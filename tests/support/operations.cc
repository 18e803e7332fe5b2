#include "operations.h"
#include "tools/data.h"
#include <algorithm>
#include <cstring>

namespace support {
namespace {

constexpr size_t kGuard = 64;
constexpr unsigned char kGuardByte = 0xa7;
constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; // by tuttiDataType_t

// Memory with guards on both sides, off by `misalign` from a cache line.
class Buffer {
public:
  Buffer(size_t bytes, size_t misalign) : bytes_(bytes), memory_(bytes + 3 * kGuard + misalign, kGuardByte) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = kGuard + (kGuard - at % kGuard) % kGuard + misalign;
  }
  unsigned char *data() { return memory_.data() + start_; }
  bool guards_hold() const {
    const auto is_guard = [](unsigned char b) { return b == kGuardByte; };
    const auto begin = memory_.begin(), first = begin + static_cast<long>(start_);
    return std::all_of(begin, first, is_guard) && std::all_of(first + static_cast<long>(bytes_), memory_.end(), is_guard);
  }

private:
  size_t bytes_, start_;
  std::vector<unsigned char> memory_;
};

size_t in_blocks(Coll c, int n) {
  const bool many = c == Coll::reduce_scatter || c == Coll::alltoall || c == Coll::scatter || c == Coll::alltoallv ||
                    c == Coll::reduce_scatter_v;
  return many ? static_cast<size_t>(n) : 1;
}
size_t out_blocks(Coll c, int n) {
  const bool many =
      c == Coll::all_gather || c == Coll::alltoall || c == Coll::gather || c == Coll::alltoallv || c == Coll::all_gather_v;
  return many ? static_cast<size_t>(n) : 1;
}

// Elements that rank `from` sends to rank `to`: some none, some all.
size_t v_count(size_t largest, int from, int to) {
  return largest * static_cast<size_t>((from * 7 + to * 3) % 4) / 3;
}

class Run {
public:
  Run(Rank &r, const Case &c)
      : r_(r), c_(c), n_(r.n), size_(kBytes[c.type]), block_(c.count * size_), in_(in_blocks(c.coll, n_) * block_, c.misalign),
        out_(out_blocks(c.coll, n_) * block_, c.misalign) {}

  bool all() {
    prepare();
    tuttiRedOp_t op = static_cast<tuttiRedOp_t>(c_.op);
    if (reduces(c_.coll) && c_.op == kPreMul && !make_premul(&op)) return false;
    if (!EXPECT_OK(r_, call(op)) || !EXPECT_OK(r_, tuttiCommSynchronize(r_.comm))) return complain("could not run");
    if (c_.op == kPreMul && reduces(c_.coll)) EXPECT_OK(r_, tuttiRedOpDestroy(op, r_.comm));
    if (!in_.guards_hold() || !out_.guards_hold()) return complain("wrote outside");
    return verify() || complain("gave a wrong result");
  }

private:
  bool complain(const char *what) { return r_.expect(false, (text_of(c_, n_) + " " + what).c_str(), __FILE__, __LINE__); }
  int data_op() const { return reduces(c_.coll) ? c_.op : -1; }
  bool is_root() const { return r_.rank == c_.root; }

  // Where IN lies: a buffer of its own, or inside OUT (or OUT inside IN) for the in-place forms.
  unsigned char *in() {
    const auto rank = static_cast<size_t>(r_.rank), root = static_cast<size_t>(c_.root);
    if (!c_.in_place) return in_.data();
    if (c_.coll == Coll::all_gather || c_.coll == Coll::all_gather_v) return out_.data() + rank * block_;
    if (c_.coll == Coll::gather) return is_root() ? out_.data() + root * block_ : in_.data();
    if (c_.coll == Coll::reduce_scatter || c_.coll == Coll::reduce_scatter_v || c_.coll == Coll::scatter) return in_.data();
    return out_.data();
  }
  unsigned char *out() {
    const auto rank = static_cast<size_t>(r_.rank), root = static_cast<size_t>(c_.root);
    if (c_.in_place && (c_.coll == Coll::reduce_scatter || c_.coll == Coll::reduce_scatter_v))
      return in_.data() + rank * block_;
    if (c_.in_place && c_.coll == Coll::scatter && is_root()) return in_.data() + root * block_;
    return out_.data();
  }

  void prepare() {
    if (c_.coll == Coll::alltoallv) return prepare_v();
    for (int p = 0; p < n_; p++) { // blocks lie in the order of the ranks, with room between them
      block_counts_.push_back(v_count(c_.count, p, 2 * p + 1));
      displs_.push_back(static_cast<size_t>(p) * c_.count);
    }
    if (c_.coll == Coll::all_gather_v) {
      tutti::data::input(in(), own_count(), c_.type, -1, n_, r_.rank, kSeed, 0);
      return;
    }
    tutti::data::input(in(), in_blocks(c_.coll, n_) * c_.count, c_.type, data_op(), n_, r_.rank, kSeed, 0);
  }

  size_t own_count() const { return block_counts_[static_cast<size_t>(r_.rank)]; }

  void prepare_v() {
    for (int p = 0; p < n_; p++) {
      const auto i = static_cast<size_t>(p);
      send_counts_.push_back(v_count(c_.count, r_.rank, p));
      recv_counts_.push_back(v_count(c_.count, p, r_.rank));
      displs_.push_back(i * c_.count);
      tutti::data::input(in_.data() + i * block_, send_counts_.back(), c_.type, -1, n_, r_.rank, kSeed, i * c_.count);
    }
  }

  bool make_premul(tuttiRedOp_t *op) {
    // One element with the value premul_scalar(rank), in each type's own bits; 1 and 2 are exact everywhere.
    const bool two = tutti::data::premul_scalar(r_.rank) == 2;
    unsigned char scalar[8] = {};
    const auto put = [&](auto v) { std::memcpy(scalar, &v, sizeof v); };
    switch (c_.type) {
    case tuttiFloat16:
      put(static_cast<uint16_t>(two ? 0x4000 : 0x3c00));
      break;
    case tuttiBfloat16:
      put(static_cast<uint16_t>(two ? 0x4000 : 0x3f80));
      break;
    case tuttiFloat8e4m3:
      put(static_cast<uint8_t>(two ? 0x40 : 0x38));
      break;
    case tuttiFloat8e5m2:
      put(static_cast<uint8_t>(two ? 0x40 : 0x3c));
      break;
    case tuttiFloat32:
      put(two ? 2.0f : 1.0f);
      break;
    case tuttiFloat64:
      put(two ? 2.0 : 1.0);
      break;
    default:
      scalar[0] = two ? 2 : 1;
    }
    return EXPECT_OK(r_, tuttiRedOpCreatePreMulSum(op, scalar, c_.type, r_.comm));
  }

  tuttiResult_t call(tuttiRedOp_t op) {
    const auto comm = r_.comm;
    switch (c_.coll) {
    case Coll::all_reduce:
      return tuttiAllReduce(in(), out(), c_.count, c_.type, op, comm, nullptr);
    case Coll::reduce:
      return tuttiReduce(in(), out(), c_.count, c_.type, op, c_.root, comm, nullptr);
    case Coll::broadcast:
      return tuttiBroadcast(in(), out(), c_.count, c_.type, c_.root, comm, nullptr);
    case Coll::all_gather:
      return tuttiAllGather(in(), out(), c_.count, c_.type, comm, nullptr);
    case Coll::reduce_scatter:
      return tuttiReduceScatter(in(), out(), c_.count, c_.type, op, comm, nullptr);
    case Coll::alltoall:
      return tuttiAlltoAll(in(), out(), c_.count, c_.type, comm, nullptr);
    case Coll::gather:
      return tuttiGather(in(), out(), c_.count, c_.type, c_.root, comm, nullptr);
    case Coll::scatter:
      return tuttiScatter(in(), out(), c_.count, c_.type, c_.root, comm, nullptr);
    case Coll::alltoallv:
      return tuttiAlltoAllV(in_.data(), send_counts_.data(), displs_.data(), out_.data(), recv_counts_.data(), displs_.data(),
                            c_.type, comm, nullptr);
    case Coll::all_gather_v:
      return tuttiAllGatherV(in(), out(), block_counts_.data(), displs_.data(), c_.type, comm, nullptr);
    case Coll::reduce_scatter_v:
      return tuttiReduceScatterV(in(), out(), block_counts_.data(), displs_.data(), c_.type, op, comm, nullptr);
    case Coll::send_recv: {
      tuttiGroupStart();
      tuttiSend(in(), c_.count, c_.type, (r_.rank + 1) % n_, comm, nullptr);
      tuttiRecv(out(), c_.count, c_.type, (r_.rank + n_ - 1) % n_, comm, nullptr);
      return tuttiGroupEnd();
    }
    }
    return tuttiInternalError;
  }

  // `count` elements at `got` equal rank `from`'s input from element `first` on.
  bool is_input(const unsigned char *got, size_t count, int from, size_t first) {
    std::vector<unsigned char> want(count * size_);
    tutti::data::input(want.data(), count, c_.type, -1, n_, from, kSeed, first);
    return std::equal(want.begin(), want.end(), got);
  }
  bool is_reduction(const unsigned char *got, size_t count, size_t first) {
    std::vector<unsigned char> want(count * size_);
    tutti::data::expected(want.data(), count, c_.type, c_.op, n_, kSeed, first);
    return tutti::data::mismatches(got, want.data(), count, c_.type, c_.op, n_) == 0;
  }
  // What lies behind `used` bytes, up to the whole of the largest block, is as it was.
  bool is_untouched(const unsigned char *at, size_t used) const {
    return c_.in_place || std::all_of(at + used, at + block_, [](unsigned char b) { return b == kGuardByte; });
  }

  bool verify() {
    const auto rank = static_cast<size_t>(r_.rank);
    switch (c_.coll) {
    case Coll::all_reduce:
      return is_reduction(out(), c_.count, 0);
    case Coll::reduce:
      return !is_root() || is_reduction(out(), c_.count, 0);
    case Coll::reduce_scatter:
      return is_reduction(out(), c_.count, rank * c_.count);
    case Coll::reduce_scatter_v:
      return is_reduction(out(), own_count(), displs_[rank]) && is_untouched(out(), own_count() * size_);
    case Coll::broadcast:
      return is_input(out(), c_.count, c_.root, 0);
    case Coll::scatter:
      return is_input(out(), c_.count, c_.root, rank * c_.count);
    case Coll::send_recv:
      return is_input(out(), c_.count, (r_.rank + n_ - 1) % n_, 0);
    default:
      break;
    }
    if (c_.coll == Coll::gather && !is_root()) return true;
    for (int p = 0; p < n_; p++) {
      const unsigned char *got = out_.data() + static_cast<size_t>(p) * block_;
      const bool whole = c_.coll == Coll::all_gather || c_.coll == Coll::gather || c_.coll == Coll::all_gather_v;
      const auto &counts = c_.coll == Coll::alltoallv ? recv_counts_ : block_counts_;
      const bool differ = c_.coll == Coll::alltoallv || c_.coll == Coll::all_gather_v;
      const size_t count = differ ? counts[static_cast<size_t>(p)] : c_.count;
      if (!is_input(got, count, p, whole ? 0 : rank * c_.count) || (differ && !is_untouched(got, count * size_))) return false;
    }
    return true;
  }

  static constexpr uint64_t kSeed = 42;
  Rank &r_;
  const Case &c_;
  const int n_;
  const size_t size_, block_;
  Buffer in_, out_;
  std::vector<size_t> send_counts_, recv_counts_, block_counts_, displs_;
};

} // namespace

const char *name_of(Coll coll) {
  static constexpr const char *kNames[] = {"all_reduce",     "reduce",    "broadcast",    "all_gather",
                                           "reduce_scatter", "alltoall",  "alltoallv",    "gather",
                                           "scatter",        "send_recv", "all_gather_v", "reduce_scatter_v"};
  return kNames[static_cast<size_t>(coll)];
}

std::string text_of(const Case &c, int nranks) {
  return std::string(name_of(c.coll)) + " count " + std::to_string(c.count) + " type " + std::to_string(c.type) + " op " +
         std::to_string(c.op) + " root " + std::to_string(c.root) + (c.in_place ? " in place" : "") + " misalign " +
         std::to_string(c.misalign) + " on " + std::to_string(nranks) + " ranks";
}

bool run_case(Rank &r, const Case &c) {
  return Run(r, c).all();
}

void run_all(Rank &r, const std::vector<size_t> &counts, bool every_type) {
  unsigned turn = 0; // the same on all ranks: varies what is not enumerated
  for (Coll coll : kAllColls)
    for (size_t count : counts)
      for (int type = 0; type < tuttiNumTypes; type++) {
        if (!every_type && type != tuttiFloat32 && type != static_cast<int>(turn % tuttiNumTypes)) continue;
        for (int op = tuttiSum; op <= kPreMul; op++) {
          if (!reduces(coll) && op != tuttiSum) break;
          if (!every_type && op != tuttiSum && op != static_cast<int>(turn % (kPreMul + 1))) continue;
          turn++;
          Case c{coll, static_cast<tuttiDataType_t>(type), op, count};
          c.root = static_cast<int>(turn) % r.n;
          c.misalign = turn % 3 == 0 ? 1 + turn % 7 : 0;
          c.in_place = has_in_place(coll) && turn % 2 == 0;
          if (!run_case(r, c)) return;
        }
      }
}

} // namespace support
