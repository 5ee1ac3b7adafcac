// Moving averages for every decay, and sums of squares over f32's whole range, on host and device.
// docs/numerics.md, "Moving averages" and "Ranges".
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "algorithms/rounding.hpp"

namespace came::algorithms {

/// The rate of a moving average with decay beta: 1 - beta or, where beta is below one half, -beta.
///
/// With it, beta * old + (1 - beta) * value is anchor + rate * (value - old), where the anchor is what has the larger
/// weight: `old`, or `value` if the rate has a minus sign, that of -0 included.  The two weights add up to 1 whatever
/// the rounding of the rate, and what has the larger weight is not lost beside a larger number.
CAME_HOST_DEVICE constexpr double rate_of(double beta) { return beta < 0.5 ? -beta : 1 - beta; }

CAME_HOST_DEVICE inline bool anchors_value(float rate) { return (bits_of(rate) >> 31) != 0; }
CAME_HOST_DEVICE inline bool anchors_value(double rate) {
  uint64_t bits;
  std::memcpy(&bits, &rate, sizeof bits);
  return (bits >> 63) != 0;
}

/// Squares of gradients over row averages are added up times this multiplier squared: a quotient that a step must not
/// miss is then a normal number of f32, and sums stay below its largest one.  docs/numerics.md, "Ranges".
inline constexpr double kWeightScale = 0x1p32;
inline constexpr double kWeightUnscale = 1 / (kWeightScale * kWeightScale);

/// The multiplier of a row in the type it is used in.  A finite one beyond f32 becomes f32's largest number: infinity
/// times a gradient of 0 would be NaN.
template <class T>
CAME_HOST_DEVICE inline T row_multiplier_as(double multiplier) {
  if constexpr (sizeof(T) == sizeof(double)) return multiplier;
  const double size = fabs(multiplier);
  return static_cast<T>(size > FLT_MAX && size <= DBL_MAX ? copysign(static_cast<double>(FLT_MAX), multiplier)
                                                          : multiplier);
}

/// The same of a multiplier that was computed in f32 and is finite in f64 if `mean`, the mean of the row averages, is.
CAME_HOST_DEVICE inline float row_multiplier_as_f32(float multiplier, double mean) {
  return fabsf(multiplier) > FLT_MAX && mean <= FLT_MAX ? copysignf(FLT_MAX, multiplier) : multiplier;
}

/// Whether a sum of at most 2^10 squares in f32 has lost none to underflow or overflow that it must not lose.  What
/// underflows is below 2^-126: a sum beyond this bound misses less than 2^-24 of itself.
CAME_HOST_DEVICE inline bool is_sound_sum_of_squares(double sum) { return sum > 0x1p-92 && sum < 0x1p127; }

}  // namespace came::algorithms
