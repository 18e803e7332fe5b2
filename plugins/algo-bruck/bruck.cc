// Bruck's all-to-all for short messages. n = nranks, L = ceil(log2 n).
//
// The block for the rank `d` places ahead has distance d. In round k (2^k = 1, 2, 4, ...) everybody sends on, 2^k places, all
// blocks whose distance has that bit: those of its own and those on their way. So a block needs a hop per bit, and all blocks
// of a round travel in one message: L rounds, L messages per rank instead of n - 1, about L/2 bytes per byte.
//
// The price is copies inside the rank: what goes in a message is gathered in SCRATCH first, and what came last stays there
// until it moves on or to OUT. SCRATCH holds about n/2 * (L + 1) blocks. Worth it where a message costs far more than copying
// the short blocks of it, as over a network; `direct` and `pairwise` are for all else. An algorithm of its own, not a form of
// pairwise: which of them wins depends on the cost of messages, not on whether a block is longer than a slice.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

class Bruck {
public:
  static constexpr Info info{"algo-bruck", "0.1.0", "tutti", "Apache-2.0",
                             "Bruck's all-to-all: log n messages for short blocks"};
  static constexpr const char *algo_name = "bruck";

  explicit Bruck(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    if (req.coll != TUTTI_COLL_ALL_TO_ALL) unsupported("bruck serves alltoall only");
    if (req.flags & TUTTI_REQ_NONUNIFORM)
      unsupported("bruck relays blocks, and with blocks of different sizes the ranks between do not know theirs; use pairwise");
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    const int channels = channels_for(req);
    w.shape(req, 1, channels).window(1); // one lane per group: no lane waits for another
    for (int ch = 0; ch < channels; ch++) write(req, w.lane(ch), ch, w);
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    supports(req);
    rounds = bytes_per_byte = 0;
    for (int hop = 1; hop < req.nranks; hop *= 2) {
      rounds++;
      bytes_per_byte += static_cast<double>(distances(req.nranks, hop).size()) / req.nranks;
    }
  }

private:
  static std::vector<int> distances(int n, int hop) {
    std::vector<int> out;
    for (int d = hop; d < n; d++)
      if (d & hop) out.push_back(d);
    return out;
  }

  static int scratch_room(PlanWriter &w, size_t blocks) {
    const int first = w.scratch_as(in(0)); // all blocks are alike
    for (size_t i = 1; i < blocks; i++) w.scratch_as(in(0));
    return first;
  }

  static void write(const tutti_algo_request &req, PlanWriter::Lane lane, int conn, PlanWriter &w) {
    const int n = req.nranks, me = req.rank;
    std::vector<Chunks> at; // by distance: where the block is that is on its way and has come to this rank
    for (int d = 0; d < n; d++) at.push_back(in((me + d) % n));
    size_t most = 0;
    for (int hop = 1; hop < n; hop *= 2) most = std::max(most, distances(n, hop).size());
    const int packed = scratch_room(w, most);
    int link = 0;
    for (int hop = 1; hop < n; hop *= 2, link++) {
      lane.from((me - hop + n) % n, conn).to((me + hop) % n, conn);
      const auto moving = distances(n, hop);
      const int came = scratch_room(w, moving.size()), count = static_cast<int>(moving.size());
      Copies pack(lane);
      for (int i = 0; i < count; i++) pack.add(at[static_cast<size_t>(moving[static_cast<size_t>(i)])], scratch(packed + i));
      pack.flush();
      lane.step().src(scratch(packed, count)).send(link);
      lane.step().recv(link).store(scratch(came, count));
      for (int i = 0; i < count; i++) at[static_cast<size_t>(moving[static_cast<size_t>(i)])] = scratch(came + i);
    }
    Copies unpack(lane);
    for (int d = n - 1; d >= 0; d--) unpack.add(at[static_cast<size_t>(d)], out((me - d + n) % n));
    unpack.flush();
  }

  // Copies inside the rank; those of rows of chunks become one step.
  class Copies {
  public:
    explicit Copies(PlanWriter::Lane lane) : lane_(lane) {}
    void add(Chunks from, Chunks to) {
      if (count_ > 0 && follows(from_, from) && follows(to_, to)) {
        count_++;
        return;
      }
      flush();
      from_ = from;
      to_ = to;
      count_ = 1;
    }
    void flush() {
      if (count_ > 0) lane_.step().src(sized(from_)).store(sized(to_));
      count_ = 0;
    }

  private:
    bool follows(const Chunks &row, const Chunks &next) const {
      return row.ref.buf == next.ref.buf && row.ref.first + count_ == next.ref.first;
    }
    Chunks sized(const Chunks &row) const { return chunks(row.ref.buf, row.ref.first, count_); }
    PlanWriter::Lane lane_;
    Chunks from_, to_;
    int count_ = 0;
  };
};

} // namespace

TUTTI_CXX_PLUGIN(Bruck)
