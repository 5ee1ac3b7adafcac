// Codes of quantised moments: 8 or 4 bits per element of a momentum, 8 of a second moment, and one f32 scale, the
// largest magnitude, per block of a row.  docs/algorithms.md, equations (30) and (31).  CUDA kernels take fewer
// instructions: values but for a rounding, and the same codes but for magnitudes within some roundings of a middle.
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

/// A scale so small that levels^2 / scale is no number is none; such a block is zero.
CAME_HOST_DEVICE inline float usable_scale(float largest) { return largest < 0x1p-110F ? 0.0F : largest; }

/// What magnitudes are multiplied with to be compared with squares of codes.
CAME_HOST_DEVICE inline float code_multiplier(float scale, int levels) {
  return static_cast<float>(levels * levels) / scale;
}

/// The code of a magnitude times code_multiplier, given its root.  Any root that is right to a few units in the last
/// place gives the same code: the comparison decides.
CAME_HOST_DEVICE inline int code_of(float squares, float root, int levels) {
  const auto most = static_cast<float>(levels);
  const int code = static_cast<int>(root < most ? root : most);
  // Between k^2 and (k+1)^2 the middle is k^2 + k + 1/2.
  const auto k = static_cast<float>(code);
  return code < levels && squares > k * k + k + 0.5F ? code + 1 : code;
}

/// The code whose value is nearest to m; scale is the largest magnitude of the block, 0 for a block of zeros.
CAME_HOST_DEVICE inline int encode(float m, float scale, int levels) {
  if (!(scale > 0.0F)) return 0;
  const float squares = fabsf(m) * code_multiplier(scale, levels);
  const int code = code_of(squares, sqrtf(squares), levels);
  return m < 0.0F ? -code : code;
}

/// scale * sign(code) * (code / levels)^2.  A NaN scale gives NaN.
CAME_HOST_DEVICE inline float decode(int code, float scale, int levels) {
  const int squares = code * (code < 0 ? -code : code);
  return scale * (static_cast<float>(squares) * (1.0F / static_cast<float>(levels * levels)));
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

/// Largest code of a second moment, which has no sign; its blocks are those of a momentum.
inline constexpr int kLevelsSecondMoment = 255;
inline constexpr float kSecondMomentStep = 1.0F / kLevelsSecondMoment;
static_assert(kLevelsSecondMoment * kSecondMomentStep == 1.0F, "the largest code must stand for the scale itself");

/// Scale of a block of second moments, from the largest of them.  At least 2^-94 unless all are zero: then the value
/// of code 1, scale / 255^4, is a normal number, and what is positive stays positive.
CAME_HOST_DEVICE inline float second_moment_scale(float largest) {
  return largest > 0.0F && largest < 0x1p-94F ? 0x1p-94F : largest;
}

/// scale * (code / 255)^4.  A NaN scale gives NaN; an infinite one infinity, or NaN for code 0.
CAME_HOST_DEVICE inline float decode_second_moment(int code, float scale) {
  const float t = static_cast<float>(code) * kSecondMomentStep;
  const float square = t * t;
  return scale * (square * square);
}

/// One of the two codes around v >= 0: the upper one with probability (v - lower value) / (upper - lower value), so
/// that the value is v on average; for v between 0 and the value of code 1, always 1.  `scale` is second_moment_scale
/// of the block.
CAME_HOST_DEVICE inline int encode_second_moment(float v, float scale, uint32_t random) {
  if (!(scale > 0.0F)) return 0;
  const float t = static_cast<float>(kLevelsSecondMoment) * sqrtf(sqrtf(v / scale));
  constexpr auto kLast = static_cast<float>(kLevelsSecondMoment - 1);
  // Where the roots' rounding misses the code below v by one, the draw is certain and mends it.
  const int below = static_cast<int>(t < kLast ? t : kLast);
  const float low = decode_second_moment(below, scale);
  const float high = decode_second_moment(below + 1, scale);
  const float draw = static_cast<float>(random >> 8) * 0x1p-24F;
  const int code = below + (draw * (high - low) < v - low ? 1 : 0);
  return code == 0 && v > 0.0F ? 1 : code;
}

}  // namespace came::algorithms
