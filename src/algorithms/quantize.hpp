// Codes of a quantised momentum: 8 or 4 bits per element and one f32 scale, the largest magnitude, per block of a row.
// docs/algorithms.md, equation (30).  f32 arithmetic with exact roots: host and device give the same codes.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/rounding.hpp"

namespace came::algorithms {

/// Elements that share a scale.
inline constexpr int64_t kMomentumBlock = 128;

/// Largest code: codes run from -levels to levels.
inline constexpr int kLevelsInt8 = 127;
inline constexpr int kLevelsInt4 = 7;

/// A scale below the normal numbers has no reciprocal; such a block is zero.
CAME_HOST_DEVICE inline float usable_scale(float largest) { return largest < 0x1p-126F ? 0.0F : largest; }

/// The code whose value is nearest to m; scale is the largest magnitude of the block, 0 for a block of zeros.
CAME_HOST_DEVICE inline int encode(float m, float scale, int levels) {
  if (!(scale > 0.0F)) return 0;
  const float t = static_cast<float>(levels) * sqrtf(fabsf(m) / scale);
  int code = static_cast<int>(t < static_cast<float>(levels) ? t : static_cast<float>(levels));
  // Between k^2 and (k+1)^2 the middle is k^2 + k + 1/2.
  const auto k = static_cast<float>(code);
  if (code < levels && t * t > k * k + k + 0.5F) ++code;
  return m < 0.0F ? -code : code;
}

/// scale * sign(code) * (code / levels)^2.  A NaN scale gives NaN.
CAME_HOST_DEVICE inline float decode(int code, float scale, int levels) {
  const float t = static_cast<float>(code) / static_cast<float>(levels);
  return scale * (t * fabsf(t));
}

/// Two codes of 4 bits in a byte, the even element low, as two's complement.
CAME_HOST_DEVICE inline int unpack_int4(uint8_t byte, bool odd) {
  const int nibble = odd ? byte >> 4 : byte & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

CAME_HOST_DEVICE inline uint8_t pack_int4(uint8_t byte, bool odd, int code) {
  const int nibble = code & 15;
  return static_cast<uint8_t>(odd ? (byte & 0x0f) | nibble << 4 : (byte & 0xf0) | nibble);
}

}  // namespace came::algorithms
