#include "calls.h"
#include <algorithm>
#include <utility>

namespace faults {

Calls::Calls(int rank, int nranks, size_t count) : rank_(rank), n_(nranks), in_(count), out_(count) {}

tuttiResult_t Calls::use(tuttiComm_t comm, bool second) {
  comm_ = comm;
  return second ? tuttiCommSplit(comm, 0, rank_, &second_, nullptr) : tuttiSuccess;
}

Calls::~Calls() {
  if (second_) tuttiCommAbort(second_);
}

tuttiResult_t Calls::done() {
  return second_ ? tuttiCommDestroy(std::exchange(second_, nullptr)) : tuttiSuccess;
}

const int64_t *Calls::word(int of64) const {
  return &out_[std::min(out_.size() * static_cast<size_t>(of64) / 64, out_.size() - 1)];
}

int64_t Calls::value(int rank, size_t i, int round) const {
  return (int64_t(1) << rank) + (int64_t(round & 0xffff) << 16) + (int64_t(i) << 36);
}

tuttiResult_t Calls::finish(tuttiResult_t called, tuttiComm_t comm) {
  return called == tuttiSuccess ? tuttiCommSynchronize(comm) : called;
}

tuttiResult_t Calls::sum(int round) {
  for (size_t i = 0; i < in_.size(); i++) in_[i] = value(rank_, i, round);
  const tuttiResult_t e =
      finish(tuttiAllReduce(in_.data(), out_.data(), in_.size(), tuttiInt64, tuttiSum, comm_, nullptr), comm_);
  if (e != tuttiSuccess) return e;
  if (std::exchange(spoilt_, false)) out_[out_.size() / 2]++;
  for (size_t i = 0; i < out_.size(); i++) {
    int64_t want = 0;
    for (int r = 0; r < n_; r++) want += value(r, i, round);
    right_ &= out_[i] == want;
  }
  return e;
}

tuttiResult_t Calls::misunderstand(const std::string &what, bool odd) {
  const size_t count = odd && what == "count" ? in_.size() / 2 : in_.size();
  tuttiDataType_t type = odd && what == "type" ? tuttiFloat64 : tuttiInt64;
  if (odd && what == "argument") type = static_cast<tuttiDataType_t>(99);
  const tuttiRedOp_t op = odd && what == "op" ? tuttiMax : tuttiSum;
  const tuttiComm_t comm = odd && what == "communicator" ? second_ : comm_;
  const auto all_reduce = [&] { return finish(tuttiAllReduce(in_.data(), out_.data(), count, type, op, comm, nullptr), comm); };
  const auto broadcast = [&](int root) {
    return finish(tuttiBroadcast(in_.data(), out_.data(), count, type, root, comm, nullptr), comm);
  };
  if (what == "root") return broadcast(odd ? 1 % n_ : 0);
  if (what == "collective") return odd ? broadcast(0) : all_reduce();
  if (what != "order") return all_reduce();
  const tuttiResult_t first = odd ? broadcast(0) : all_reduce();
  if (first != tuttiSuccess) return first;
  return odd ? all_reduce() : broadcast(0);
}

} // namespace faults
