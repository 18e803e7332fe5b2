// Argument checks of operations: what passes here needs no further look.
#include "base/types.h"
#include "comm/communicator.h"
#include <algorithm>
#include <cstring>
#include <optional>

namespace tutti {
namespace {

constexpr uint64_t kMaxBytes = uint64_t(1) << 62;

struct Extent {
  const std::byte *at = nullptr;
  uint64_t bytes = 0;
  bool meets(const Extent &o) const { return at && o.at && bytes && o.bytes && at < o.at + o.bytes && o.at < at + bytes; }
};
Extent extent(const void *p, uint64_t bytes) {
  return {static_cast<const std::byte *>(p), bytes};
}

// Where the in-place form expects IN, relative to OUT (or the other way round): see tutti.h.
bool is_in_place(uint32_t row, const std::byte *in, const std::byte *out, uint64_t block, int rank, int root) {
  const auto r = static_cast<uint64_t>(rank);
  switch (row) {
  case TUTTI_COLL_ALL_REDUCE:
  case TUTTI_COLL_REDUCE:
  case TUTTI_COLL_BROADCAST:
  case TUTTI_COLL_BARRIER:
    return in == out;
  case TUTTI_COLL_ALL_GATHER:
    return in == out + r * block;
  case TUTTI_COLL_REDUCE_SCATTER:
    return out == in + r * block;
  case TUTTI_COLL_GATHER:
    return in == out + static_cast<uint64_t>(root) * block;
  case TUTTI_COLL_SCATTER:
    return out == in + static_cast<uint64_t>(root) * block;
  default:
    return false;
  }
}

std::string_view in_place_rule_v(uint32_t row) {
  return row == TUTTI_COLL_ALL_GATHER ? "in place means sendbuff == recvbuff + displs[rank]"
                                      : "in place means recvbuff == sendbuff + displs[rank]";
}
std::string_view in_place_rule(uint32_t row) {
  switch (row) {
  case TUTTI_COLL_ALL_GATHER:
    return "in place means sendbuff == recvbuff + rank * sendcount";
  case TUTTI_COLL_REDUCE_SCATTER:
    return "in place means recvbuff == sendbuff + rank * recvcount";
  case TUTTI_COLL_GATHER:
    return "in place means sendbuff == recvbuff + root * count, on the root";
  case TUTTI_COLL_SCATTER:
    return "in place means recvbuff == sendbuff + root * count, on the root";
  case TUTTI_COLL_ALL_TO_ALL:
    return "it has no in-place form";
  default:
    return "in place means sendbuff == recvbuff";
  }
}

} // namespace

Status Communicator::check_type(std::string_view what, int type) const {
  if (type >= 0 && type < tuttiNumTypes) [[likely]]
    return {};
  return tutti::fail(Code::invalid_argument, "{}: type {} is not a tuttiDataType_t (0 to {})", what, type, tuttiNumTypes - 1);
}

Status Communicator::check_rank(std::string_view what, std::string_view name, int rank) const {
  if (rank >= 0 && rank < nranks_) [[likely]]
    return {};
  return tutti::fail(Code::invalid_argument, "{}: {} {} is not a rank (0 to {})", what, name, rank, nranks_ - 1);
}

Status Communicator::check_reduction(const Call &call, Op *op) const {
  if (call.op >= 0 && call.op < tuttiNumOps) [[likely]] {
    op->redop = call.op == tuttiAvg ? static_cast<tutti_redop>(TUTTI_RED_SUM) : static_cast<tutti_redop>(call.op);
    op->divisor = call.op == tuttiAvg ? static_cast<uint64_t>(nranks_) : 0;
    op->info.op = static_cast<uint32_t>(call.op);
    return {};
  }
  const auto handle = static_cast<uint32_t>(call.op - tuttiNumOps);
  const uint32_t index = handle & 0xffff;
  if (call.op < 0 || handle >> 16 != premul_salt_ || index >= premuls_.size() || !premuls_[index].used)
    return tutti::fail(
        Code::invalid_argument,
        "{}: op {} is neither a tuttiRedOp_t (0 to {}) nor made by tuttiRedOpCreatePreMulSum for this communicator",
        row_name(call.row), call.op, tuttiNumOps - 1);
  const Premul &p = premuls_[index];
  if (p.type != call.type)
    return tutti::fail(Code::invalid_argument, "{}: op {:#x} was made for {}, but the call is on {}", row_name(call.row),
                       call.op, dtype_name(static_cast<tutti_dtype>(p.type)), dtype_name(static_cast<tutti_dtype>(call.type)));
  op->redop = TUTTI_RED_SUM;
  op->factor = p.scalar;
  op->has_factor = true;
  op->info.op = tuttiNumOps;
  return {};
}

Status Communicator::check_buffers(const Call &call, Op *op) const {
  const bool is_root = call.root < 0 || call.root == rank_;
  const bool has_in = is_root || (call.row != TUTTI_COLL_BROADCAST && call.row != TUTTI_COLL_SCATTER);
  const bool has_out = is_root || (call.row != TUTTI_COLL_REDUCE && call.row != TUTTI_COLL_GATHER);
  const auto n = static_cast<uint32_t>(nranks_);
  op->in = has_in ? call.in : nullptr;
  op->out = has_out ? call.out : nullptr;
  if (call.count == 0) return {};
  if ((has_in && !call.in) || (has_out && !call.out)) [[unlikely]]
    return tutti::fail(Code::invalid_argument, "{}: {} is NULL, but count is {}", row_name(call.row),
                       has_in && !call.in ? "sendbuff" : "recvbuff", call.count);
  if (!has_in || !has_out) return {};
  const Extent in = extent(call.in, op->block * coll_in_blocks(call.row, n));
  const Extent out = extent(call.out, op->block * coll_out_blocks(call.row, n));
  if (!in.meets(out)) return {};
  op->in_place = is_in_place(call.row, in.at, out.at, op->block, rank_, call.root);
  if (op->in_place) return {};
  return tutti::fail(Code::invalid_argument, "{}: sendbuff [{}, +{}) and recvbuff [{}, +{}) overlap; {}", row_name(call.row),
                     call.in, in.bytes, static_cast<const void *>(call.out), out.bytes, in_place_rule(call.row));
}

Status Communicator::check(const Call &call, Op *op) {
  TUTTI_TRY(usable());
  TUTTI_TRY(check_type(row_name(call.row), call.type));
  if (coll_has_root(call.row)) TUTTI_TRY(check_rank(row_name(call.row), "root", call.root));
  const auto dtype = static_cast<tutti_dtype>(call.type);
  const uint64_t size = dtype_bytes(dtype), n = static_cast<uint64_t>(nranks_);
  if (call.count > kMaxBytes / size / n)
    return tutti::fail(Code::invalid_argument, "{}: count {} of {} for {} ranks is over 2^62 bytes", row_name(call.row),
                       call.count, dtype_name(dtype), nranks_);
  op->row = call.row;
  op->block = call.count * size;
  op->bytes = op->block * std::max(coll_in_blocks(call.row, nranks_), coll_out_blocks(call.row, nranks_));
  op->info.coll = coll_of_row(call.row);
  op->info.dtype = dtype;
  op->info.count = call.count;
  op->info.root = call.root;
  op->dtype = TUTTI_DT_UINT8; // moving bytes asks for no type: one bound plan serves all
  if (coll_reduces(call.row)) {
    op->dtype = dtype;
    TUTTI_TRY(check_reduction(call, op));
  }
  return check_buffers(call, op);
}

namespace {

// Blocks that share memory, if any: (lower, higher) by offset. Those without bytes share none.
std::optional<std::pair<uint32_t, uint32_t>> overlap(const std::vector<uint64_t> &bytes, const std::vector<uint64_t> &offsets,
                                                     std::vector<uint32_t> &order) {
  order.clear();
  for (uint32_t b = 0; b < bytes.size(); b++)
    if (bytes[b]) order.push_back(b);
  const auto before = [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
  for (size_t i = 1; i < order.size(); i++)
    if (offsets[order[i - 1]] + bytes[order[i - 1]] > offsets[order[i]]) return std::pair(order[i - 1], order[i]);
  return std::nullopt;
}

// Fills the table of one side: bytes and offsets of each block.
Status fill_blocks(std::string_view name, const size_t *counts, const size_t *displs, uint64_t size,
                   std::vector<uint64_t> &bytes, std::vector<uint64_t> &offsets, CallInfo *info, uint64_t *largest) {
  uint64_t digest = 0x9e37'79b9'7f4a'7c15ull, end = 0;
  for (size_t r = 0; r < bytes.size(); r++) {
    const uint64_t room = kMaxBytes / size - info->count;
    if (counts[r] > room)
      return tutti::fail(Code::invalid_argument, "{}: with counts[{}] {} the blocks are over 2^62 bytes", name, r, counts[r]);
    if (displs && counts[r] && displs[r] > kMaxBytes / size)
      return tutti::fail(Code::invalid_argument, "{}: displs[{}] {} is over 2^62 bytes", name, r, displs[r]);
    bytes[r] = counts[r] * size;
    offsets[r] = !displs ? end : counts[r] ? displs[r] * size : 0; // without elements a displacement says nothing
    end += bytes[r];
    info->count += counts[r];
    *largest = std::max(*largest, bytes[r]);
    digest = (digest ^ counts[r]) * 0xd6e8'feb8'6659'fd93ull;
    digest ^= digest >> 29;
  }
  info->table = digest | 1;
  return {};
}

// Where this rank's block `me` among `bytes` and `offsets` lies beside the buffer that has all of them.
Status check_block_buffers(std::string_view name, const Call &call, const std::vector<uint64_t> &bytes,
                           const std::vector<uint64_t> &offsets, size_t me, std::vector<uint32_t> &order, Op *op) {
  const bool gathers = call.row == TUTTI_COLL_ALL_GATHER;
  const std::string_view whole_name = gathers ? "recvbuff" : "sendbuff", own_name = gathers ? "sendbuff" : "recvbuff";
  const void *const whole = gathers ? call.out : call.in, *const own = gathers ? call.in : call.out;
  if (!whole) return tutti::fail(Code::invalid_argument, "{}: {} is NULL, but the counts are not all 0", name, whole_name);
  if (bytes[me] && !own)
    return tutti::fail(Code::invalid_argument, "{}: {} is NULL, but counts[{}] is not 0", name, own_name, me);
  if (const auto both = overlap(bytes, offsets, order))
    return tutti::fail(Code::invalid_argument, "{}: the blocks of ranks {} and {} overlap", name, both->first, both->second);
  const auto *const base = static_cast<const std::byte *>(whole);
  op->in_place = bytes[me] && own == base + offsets[me];
  for (size_t r = 0; r < bytes.size(); r++)
    if (!(op->in_place && r == me) && extent(own, bytes[me]).meets(extent(base + offsets[r], bytes[r])))
      return tutti::fail(Code::invalid_argument, "{}: {} overlaps the block of rank {} in {}; {}", name, own_name, r,
                         whole_name, in_place_rule_v(call.row));
  return {};
}

} // namespace

Status Communicator::check_blocks(const Call &call, const size_t *counts, const size_t *displs, BlockTables &t, Op *op) {
  TUTTI_TRY(usable());
  const bool gathers = call.row == TUTTI_COLL_ALL_GATHER;
  const std::string_view name = gathers ? "all_gather_v" : "reduce_scatter_v";
  TUTTI_TRY(check_type(name, call.type));
  if (!counts) return tutti::fail(Code::invalid_argument, "{}: counts is NULL", name);
  const auto n = static_cast<size_t>(nranks_);
  for (auto *table : {&t.in_bytes, &t.in_offsets, &t.out_bytes, &t.out_offsets}) table->clear();
  std::vector<uint64_t> &bytes = gathers ? t.out_bytes : t.in_bytes, &offsets = gathers ? t.out_offsets : t.in_offsets;
  bytes.resize(n);
  offsets.resize(n);
  const auto dtype = static_cast<tutti_dtype>(call.type);
  const uint64_t size = dtype_bytes(dtype);
  TUTTI_TRY(fill_blocks(name, counts, displs, size, bytes, offsets, &op->info, &op->block));
  op->row = call.row;
  op->bytes = op->info.count * size;
  op->dtype = gathers ? tutti_dtype{TUTTI_DT_UINT8} : dtype;
  op->tables = &t;
  op->info.coll = call.row;
  op->info.dtype = dtype;
  if (!gathers) TUTTI_TRY(check_reduction(call, op));
  static std::byte nothing; // where a buffer without bytes lies
  op->in = call.in ? call.in : &nothing;
  op->out = call.out ? call.out : &nothing;
  if (op->bytes == 0) return {};
  return check_block_buffers(name, call, bytes, offsets, static_cast<size_t>(rank_), t.order, op);
}

Status Communicator::check_barrier(Op *op) {
  TUTTI_TRY(check({TUTTI_COLL_BARRIER, &barrier_word_, &barrier_word_, 1, tuttiUint64, tuttiMax}, op));
  return {};
}

Status Communicator::check_v(const void *in, const size_t *in_counts, const size_t *in_displs, void *out,
                             const size_t *out_counts, const size_t *out_displs, int type, BlockTables &t, Op *op) {
  TUTTI_TRY(usable());
  const auto name = row_name(kRowV);
  TUTTI_TRY(check_type(name, type));
  if (!in_counts || !in_displs || !out_counts || !out_displs)
    return tutti::fail(Code::invalid_argument, "{}: a table of counts or displacements is NULL", name);
  const auto n = static_cast<size_t>(nranks_);
  const uint64_t size = dtype_bytes(static_cast<tutti_dtype>(type));
  uint64_t in_end = 0, out_end = 0, in_start = UINT64_MAX, out_start = UINT64_MAX;
  const auto fill = [&](std::array<std::string_view, 2> names, const size_t *counts, const size_t *displs,
                        std::vector<uint64_t> &bytes, std::vector<uint64_t> &offsets, uint64_t *start,
                        uint64_t *end) -> Status {
    bytes.assign(n, 0);
    offsets.assign(n, 0); // without elements a displacement says nothing
    for (size_t r = 0; r < n; r++) {
      if (!counts[r]) continue;
      if (counts[r] > kMaxBytes / size || displs[r] > kMaxBytes / size) {
        const bool count = counts[r] > kMaxBytes / size;
        return tutti::fail(Code::invalid_argument, "{}: {}[{}] {} of {} is over 2^62 bytes", name, names[count ? 0 : 1], r,
                           count ? counts[r] : displs[r], dtype_name(static_cast<tutti_dtype>(type)));
      }
      bytes[r] = counts[r] * size;
      offsets[r] = displs[r] * size;
      *start = std::min(*start, offsets[r]);
      *end = std::max(*end, offsets[r] + bytes[r]);
    }
    return {};
  };
  TUTTI_TRY(fill({"sendcounts", "sdispls"}, in_counts, in_displs, t.in_bytes, t.in_offsets, &in_start, &in_end));
  TUTTI_TRY(fill({"recvcounts", "rdispls"}, out_counts, out_displs, t.out_bytes, t.out_offsets, &out_start, &out_end));
  if ((in_end && !in) || (out_end && !out))
    return tutti::fail(Code::invalid_argument, "{}: {} is NULL, but its counts are not all 0", name,
                       in_end && !in ? "sendbuff" : "recvbuff");
  const auto me = static_cast<size_t>(rank_);
  if (t.in_bytes[me] != t.out_bytes[me])
    return tutti::fail(Code::invalid_argument, "{}: rank {} sends {} elements to itself, but receives {}", name, rank_,
                       in_counts[me], out_counts[me]);
  if (in_end && out_end &&
      extent(static_cast<const std::byte *>(in) + in_start, in_end - in_start)
          .meets(extent(static_cast<const std::byte *>(out) + out_start, out_end - out_start)))
    for (size_t a = 0; a < n; a++)
      for (size_t b = 0; b < n; b++)
        if (extent(static_cast<const std::byte *>(in) + t.in_offsets[a], t.in_bytes[a])
                .meets(extent(static_cast<const std::byte *>(out) + t.out_offsets[b], t.out_bytes[b])))
          return tutti::fail(Code::invalid_argument,
                             "{}: what goes to rank {} overlaps what comes from rank {}; it has no in-place form", name, a, b);
  op->row = kRowV;
  op->in = in;
  op->out = out;
  op->bytes = in_end || out_end ? kBytesV : 0;
  op->dtype = TUTTI_DT_UINT8;
  op->tables = &t;
  op->info.coll = TUTTI_COLL_ALL_TO_ALL;
  op->info.dtype = static_cast<tutti_dtype>(type);
  op->info.root = -1;
  return {};
}

Status Communicator::check_p2p(bool sending, const void *buffer, uint64_t count, int type, int peer, P2pOp *op) const {
  const std::string_view name = sending ? "send" : "recv";
  TUTTI_TRY(check_type(name, type));
  TUTTI_TRY(check_rank(name, "peer", peer));
  const auto dtype = static_cast<tutti_dtype>(type);
  if (count > kMaxBytes / dtype_bytes(dtype))
    return tutti::fail(Code::invalid_argument, "{}: count {} of {} is over 2^62 bytes", name, count, dtype_name(dtype));
  if (count && !buffer) return tutti::fail(Code::invalid_argument, "{}: the buffer is NULL, but count is {}", name, count);
  *op = {sending, const_cast<void *>(buffer), count * dtype_bytes(dtype), count, dtype, peer};
  return {};
}

Status Communicator::create_premul(const void *scalar, int type, int *op) {
  TUTTI_TRY(usable());
  TUTTI_TRY(check_type("premul sum", type));
  if (!scalar || !op) return tutti::fail(Code::invalid_argument, "premul sum: {} is NULL", scalar ? "op" : "scalar");
  size_t i = 0;
  while (i < premuls_.size() && premuls_[i].used) i++;
  if (i > 0xffff) return tutti::fail(Code::invalid_usage, "premul sum: 65536 are alive; destroy some");
  if (i == premuls_.size()) premuls_.emplace_back();
  premuls_[i] = {true, type, {}};
  std::memcpy(premuls_[i].scalar.data(), scalar, dtype_bytes(static_cast<tutti_dtype>(type)));
  *op = static_cast<int>(tuttiNumOps + (premul_salt_ << 16 | static_cast<uint32_t>(i)));
  return {};
}

Status Communicator::destroy_premul(int op) {
  const auto handle = static_cast<uint32_t>(op - tuttiNumOps);
  const uint32_t index = handle & 0xffff;
  if (op < tuttiNumOps || handle >> 16 != premul_salt_ || index >= premuls_.size() || !premuls_[index].used)
    return tutti::fail(Code::invalid_argument, "op {} was not made by tuttiRedOpCreatePreMulSum for this communicator", op);
  premuls_[index].used = false;
  return {};
}

} // namespace tutti
