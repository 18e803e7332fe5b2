// tutti/core/tools/data.h: test data that gives the same bits in every order of reduction. Used by `tutti perf` and the tests.
// Everything is a pure function of (seed, element index, rank, op, type): any part can be made alone.
#pragma once
#include "tutti/tutti.h"
#include <cstddef>
#include <cstdint>

namespace tutti::data {

// Elements [first, first + n) of rank `rank`'s input for a reduction over nranks. op: tuttiSum..tuttiAvg, or tuttiNumOps for
// the pre-multiplied sum with premul_scalar(rank). For movement operations pass op = -1: hashed bits.
void input(void *out, size_t n, tuttiDataType_t type, int op, int nranks, int rank, uint64_t seed, uint64_t first);
// The result of reducing all ranks' input, elements [first, first + n).
void expected(void *out, size_t n, tuttiDataType_t type, int op, int nranks, uint64_t seed, uint64_t first);
// How many of n elements differ. Bit for bit, but floating average: 2 ulp.
uint64_t mismatches(const void *got, const void *want, size_t n, tuttiDataType_t type, int op, int nranks);
double premul_scalar(int rank); // 1 for even ranks, 2 for odd

} // namespace tutti::data
