// Single instructions of the device that C++ has no word for.  tests/emulation/ has the same for the host.
#pragma once

#include <cstdint>

namespace came::cuda {

/// The larger one, or the one that is no number.
__device__ inline float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

/// A root, but for a rounding or two.
__device__ inline float nearly_root(float x) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

/// x over the root of v, but for a rounding or two.
__device__ inline float nearly_over_root(float x, float v) {
  float inverse;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(inverse) : "f"(v));
  return x * inverse;
}

/// Both in bf16, to nearest even as algorithms::bf16_from_f32; a NaN has other bits.
__device__ inline uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace came::cuda
