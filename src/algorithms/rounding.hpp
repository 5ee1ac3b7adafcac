// Conversions between f32 and the 16-bit types, to nearest even and stochastically, and the counter-based random
// bits behind the latter.  One definition for host and device, so that both round the same element the same way.
// docs/numerics.md, "Rounding".
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define CAME_HOST_DEVICE __host__ __device__
#else
#define CAME_HOST_DEVICE
#endif

namespace came::algorithms {

CAME_HOST_DEVICE inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

CAME_HOST_DEVICE inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Scrambles 64 bits (the finaliser of SplitMix64: every input bit reaches every output bit).
CAME_HOST_DEVICE inline uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// What is drawn for: parameters and moments of one tensor must not share their random bits.
enum class Stream : uint64_t { parameter = 1, momentum = 2, second_moment = 3 };

/// Key of all draws for one tensor at one step.  Computed once per tensor and step.
CAME_HOST_DEVICE inline uint64_t rounding_key(uint64_t seed, uint64_t step, uint64_t tensor, Stream stream) {
  uint64_t key = mix64(seed + 0x9e3779b97f4a7c15ULL);
  key = mix64(key ^ (step + 0x9e3779b97f4a7c15ULL));
  key = mix64(key ^ (tensor + 0x9e3779b97f4a7c15ULL));
  return mix64(key ^ static_cast<uint64_t>(stream));
}

/// 32 random bits for one element, by its index in the whole (unsharded) tensor.  32-bit arithmetic only: the
/// multiply-xorshift rounds vectorise on every SIMD target.
CAME_HOST_DEVICE inline uint32_t random_bits(uint64_t key, uint64_t element) {
  uint32_t x = static_cast<uint32_t>(element) ^ static_cast<uint32_t>(key);
  x = (x ^ (x >> 17)) * 0xed5ad4bbU;
  x ^= static_cast<uint32_t>(element >> 32) * 0x9e3779b9U + static_cast<uint32_t>(key >> 32);
  x = (x ^ (x >> 11)) * 0xac4c1b51U;
  x = (x ^ (x >> 15)) * 0x31848babU;
  return x ^ (x >> 14);
}

CAME_HOST_DEVICE inline float f32_from_bf16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

CAME_HOST_DEVICE inline bool is_finite(uint32_t bits) { return (bits & 0x7f800000U) != 0x7f800000U; }

/// Infinities stay; a NaN keeps a bit set so that it stays one.
CAME_HOST_DEVICE inline uint16_t bf16_from_nonfinite(uint32_t bits) {
  const bool nan = (bits & 0x007fffffU) != 0;
  return static_cast<uint16_t>((bits >> 16) | (nan ? 0x40U : 0U));
}

/// To nearest, ties to even.
CAME_HOST_DEVICE inline uint16_t bf16_from_f32(float x) {
  const uint32_t bits = bits_of(x);
  if (!is_finite(bits)) return bf16_from_nonfinite(bits);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// Away from zero with probability (distance to the lower neighbour) / (distance between neighbours).
CAME_HOST_DEVICE inline uint16_t bf16_from_f32_stochastic(float x, uint32_t random) {
  const uint32_t bits = bits_of(x);
  if (!is_finite(bits)) return bf16_from_nonfinite(bits);
  return static_cast<uint16_t>((bits + (random >> 16)) >> 16);
}

CAME_HOST_DEVICE inline float f32_from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
  const uint32_t magnitude = h & 0x7fffU;
  if (magnitude >= 0x7c00U) return float_of(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  // Subnormals count steps of 2^-24; no f32 subnormal takes part, so a CPU that flushes those does no harm.
  const float value =
      magnitude < 0x400U ? static_cast<float>(magnitude) * 0x1p-24F : float_of((magnitude << 13) + 0x38000000U);
  return float_of(sign | bits_of(value));
}

/// Finishes a conversion to f16 whose magnitude bits, in f32 format, already have 13 zero bits at the end.
CAME_HOST_DEVICE inline uint16_t f16_from_exact(uint32_t sign, uint32_t magnitude) {
  if (magnitude >= 0x47800000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 2^16 and above: infinity
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U) >> 13));
}

CAME_HOST_DEVICE inline uint16_t f16_from_nonfinite(uint32_t sign, uint32_t magnitude) {
  return static_cast<uint16_t>(sign | (magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U));
}

/// To nearest, ties to even.
CAME_HOST_DEVICE inline uint16_t f16_from_f32(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (!is_finite(bits)) return f16_from_nonfinite(sign, magnitude);
  if (magnitude < 0x38800000U) {
    // Adding 0.5 puts the last f16 bit at the last f32 bit: the hardware rounds to nearest even.
    const float shifted = float_of(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - 0x3f000000U));
  }
  return f16_from_exact(sign, (magnitude + 0xfffU + ((magnitude >> 13) & 1U)) & ~0x1fffU);
}

/// Away from zero with probability (distance to the lower neighbour) / (distance between neighbours).
CAME_HOST_DEVICE inline uint16_t f16_from_f32_stochastic(float x, uint32_t random) {
  const uint32_t bits = bits_of(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (!is_finite(bits)) return f16_from_nonfinite(sign, magnitude);
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the spacing is 2^-24 throughout.  Whole and fraction are exact; 24 random bits decide.
    const float steps = float_of(magnitude) * 0x1p24F;
    const auto whole = static_cast<uint32_t>(steps);
    const float fraction = steps - static_cast<float>(whole);
    const bool up = static_cast<float>(random >> 8) * 0x1p-24F < fraction;
    return static_cast<uint16_t>(sign | (whole + (up ? 1U : 0U)));
  }
  return f16_from_exact(sign, (magnitude + (random >> 19)) & ~0x1fffU);
}

}  // namespace came::algorithms
