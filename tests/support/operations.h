// tests/support/operations.h: one operation with crafted data, checked.
#pragma once
#include "ranks.h"

namespace support {

enum class Coll {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  alltoall,
  alltoallv,
  gather,
  scatter,
  send_recv,
  all_gather_v,
  reduce_scatter_v
};
constexpr Coll kAllColls[] = {Coll::all_reduce,     Coll::reduce,    Coll::broadcast,    Coll::all_gather,
                              Coll::reduce_scatter, Coll::alltoall,  Coll::alltoallv,    Coll::gather,
                              Coll::scatter,        Coll::send_recv, Coll::all_gather_v, Coll::reduce_scatter_v};
const char *name_of(Coll coll);
constexpr bool reduces(Coll c) {
  return c == Coll::all_reduce || c == Coll::reduce || c == Coll::reduce_scatter || c == Coll::reduce_scatter_v;
}
constexpr bool has_in_place(Coll c) {
  return c != Coll::alltoall && c != Coll::alltoallv && c != Coll::send_recv;
}

constexpr int kPreMul = tuttiNumOps; // stands for a sum made by tuttiRedOpCreatePreMulSum

struct Case {
  Coll coll = Coll::all_reduce;
  tuttiDataType_t type = tuttiFloat32;
  int op = tuttiSum; // or kPreMul
  size_t count = 0;  // as the call takes it; where blocks differ the largest one
  bool in_place = false;
  size_t misalign = 0; // bytes added to buffers, a multiple of nothing
  int root = 0;
};
std::string text_of(const Case &c, int nranks);

// Runs and verifies it; also that nothing around the output was written.
bool run_case(Rank &r, const Case &c);

// Every operation, with a choice of types, ops, roots and forms for each count.
void run_all(Rank &r, const std::vector<size_t> &counts, bool every_type);

} // namespace support
