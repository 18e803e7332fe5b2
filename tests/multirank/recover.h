// tests/multirank/recover.h: what ranks do that lose each other.
#pragma once
#include "ranks.h"
#include "text.h"
#include <string>
#include <vector>

namespace support {

inline const std::vector<std::vector<std::string>> kWays = {{}, {"TUTTI_SHM_DISABLE=1"}};

inline std::string last_error(tuttiComm_t comm = nullptr) {
  return tuttiGetLastError(comm);
}

inline int size_of(tuttiComm_t comm) {
  int n = -1;
  tuttiCommCount(comm, &n);
  return n;
}
inline int rank_in(tuttiComm_t comm) {
  int r = -1;
  tuttiCommUserRank(comm, &r);
  return r;
}

// Values that no other set of ranks adds up to, checked in every element.
inline tuttiResult_t sums_right(Rank &r, tuttiComm_t comm, size_t count = 1000) {
  const int n = size_of(comm), me = rank_in(comm);
  std::vector<int64_t> x(count);
  for (size_t i = 0; i < count; i++) x[i] = int64_t(1) << me | int64_t(i) << 40;
  const tuttiResult_t e = tuttiAllReduce(x.data(), x.data(), count, tuttiInt64, tuttiSum, comm, nullptr);
  if (e != tuttiSuccess) return e;
  if (const tuttiResult_t done = tuttiCommSynchronize(comm); done != tuttiSuccess) return done;
  for (size_t i = 0; i < count; i++)
    if (!EXPECT(r, x[i] == ((int64_t(1) << n) - 1 + n * (int64_t(i) << 40)))) break;
  return tuttiSuccess;
}

inline tuttiResult_t until_error(Rank &r, tuttiComm_t comm) {
  for (;;)
    if (const tuttiResult_t e = sums_right(r, comm); e != tuttiSuccess) return e;
}

inline void leave(Rank &r, tuttiComm_t parent) {
  EXPECT_OK(r, tuttiCommAbort(parent));
}

// Goes on in a communicator of `n` ranks in which this one is `rank`.
inline void go_on(Rank &r, tuttiComm_t comm, int n, int rank) {
  if (!EXPECT(r, comm != nullptr)) return;
  EXPECT(r, size_of(comm) == n);
  EXPECT(r, rank_in(comm) == rank);
  EXPECT_OK(r, sums_right(r, comm));
  EXPECT_OK(r, sums_right(r, comm, 300'000));
  EXPECT_OK(r, tuttiCommFinalize(comm));
  EXPECT_OK(r, tuttiCommDestroy(comm));
}

} // namespace support
