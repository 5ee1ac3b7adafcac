// The numbers that a step computes once per tensor or matrix, in f64, on host and device alike.  The reference backend
// has the same equations of docs/algorithms.md for itself: it is what these are held to.
#pragma once

#include <cfloat>
#include <cmath>

#include "algorithms/rounding.hpp"

namespace came::algorithms {

/// (2): what the gradient is multiplied with, but for its sign.  `norm` is that of the unscaled gradient; 0: unknown.
CAME_HOST_DEVICE inline double gradient_multiplier(double grad_scale, double max_grad_norm, double norm) {
  const double unscale = 1 / grad_scale;
  if (max_grad_norm == 0 || norm == 0) return unscale;
  return fabs(norm) <= DBL_MAX ? unscale * fmin(1.0, max_grad_norm / (norm + 1e-6)) : 0.0;
}

/// (3): what the agreeing elements are multiplied with, so that a step is as long as without `cautious`.
CAME_HOST_DEVICE inline double cautious_multiplier(double elements, double agreeing) {
  return elements / fmax(agreeing, 1e-3 * elements);
}

/// (8): what an update of this RMS is divided by.
template <class T>
CAME_HOST_DEVICE inline T clipping_ratio(T rms, T threshold) {
  return rms > threshold ? rms / threshold : T{1};  // a NaN does not clip
}

/// (12), (20), (22): what divides an average of `count` steps that began at zero.
CAME_HOST_DEVICE inline double bias_correction(double beta, double count) { return 1 - pow(beta, count); }

/// (14): Adafactor's beta2 where it grows with the step.
CAME_HOST_DEVICE inline double growing_beta2(double count, double beta2_decay) { return 1 - pow(count, beta2_decay); }

/// (15): Adafactor's rate where it follows from the step, `relative_step`,
CAME_HOST_DEVICE inline double relative_rate(bool warmup_init, double count) {
  return fmin(warmup_init ? 1e-6 * count : 1e-2, 1 / sqrt(count));
}
/// and what `scale_parameter` multiplies it with: the RMS of the parameter, or eps2.
CAME_HOST_DEVICE inline double parameter_scale(double eps2, double sum_of_squares, double elements) {
  return fmax(eps2, sqrt(sum_of_squares / elements));
}

/// (23): LAMB's trust ratio, from sums of squares.
CAME_HOST_DEVICE inline double trust_ratio(double parameter_squares, double update_squares) {
  const double parameter = sqrt(parameter_squares);
  const double update = sqrt(update_squares);
  return parameter > 0 && update > 0 ? parameter / update : 1.0;
}

}  // namespace came::algorithms
