// tutti/plugin/cxx/simd/targets.h: SIMD targets that are compiled. Included before any Highway header.
#pragma once
// x86: the baseline, AVX2 and AVX-512 (AVX3). Between them SSSE3 and SSE4 serve old and small processors only, which take
// the baseline; nothing here gains from AVX3_DL. Scalable vectors: types without a size. Each target is a quarter of the build.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSE4 | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
