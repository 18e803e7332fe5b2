// Runs a test body once for every SIMD target that this CPU has, the scalar one included.
#pragma once
#include "exec/kernels.h"
#include "hwy/targets.h"
#include <doctest/doctest.h>
#include <string>

template <class Body> void for_each_target(Body body) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t bit = 1; bit > 0; bit <<= 1) {
    if (!(all & bit)) continue;
    hwy::SetSupportedTargetsForTest(bit);
    hwy::GetChosenTarget().Update(bit);
    const std::string target = tutti::simd_target();
    INFO("target " << target);
    body();
    if (bit == int64_t{1} << 62) break;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}
