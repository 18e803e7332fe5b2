// tutti/plugin/cxx/simd/targets.h: SIMD targets that are compiled. Included before any Highway header.
#pragma once
// AVX3_DL, SSSE3: nothing here gains from them over AVX3 and SSE4. Scalable vectors: types without a size.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
