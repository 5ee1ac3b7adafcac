// What single instructions of the device do, on the host.
#pragma once

#include "algorithms/rounding.hpp"
#include "emulation/emulator.hpp"

namespace came::cuda {

inline float larger(float a, float b) { return a > b || a != a ? a : b; }

/// Not exact, as there.
inline float nearly_root(float x) { return sqrtf(x) * (1 + 0x1p-23F); }

inline float nearly_over_root(float x, float v) { return x * ((1 + 0x1p-23F) / sqrtf(v)); }

inline uint32_t bf16_pair(float low, float high) {
  return algorithms::bf16_from_f32(low) | static_cast<uint32_t>(algorithms::bf16_from_f32(high)) << 16;
}

}  // namespace came::cuda
