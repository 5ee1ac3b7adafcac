// Distances to buckets to a matrix of biases.
#include "models/relative_bias.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace lab {

// In f32 and in the order of operations of transformers: at powers of two the logarithm meets the edge of a bucket.
at::Tensor distance_buckets(int64_t reach, bool causal) {
  const at::Tensor distance = at::arange(-(reach - 1), reach, at::kLong);
  const int64_t buckets = causal ? kBuckets : kBuckets / 2, exact = buckets / 2;
  const at::Tensor away = causal ? -at::clamp_max(distance, 0) : distance.abs();
  const double range = std::log(static_cast<double>(kFarthest) / static_cast<double>(exact));
  const at::Tensor scaled = at::log(away.to(at::kFloat) / exact) / range * (buckets - exact);
  // Near distances are taken from the other branch; clamped, since the logarithm of 0 is no integer.
  const at::Tensor far = at::clamp_max(exact + at::clamp_min(scaled, 0).to(at::kLong), buckets - 1);
  const at::Tensor bucket = at::where(away < exact, away, far);
  return causal ? bucket : bucket + (distance > 0).to(at::kLong) * buckets;
}

at::Tensor relative_bias(const at::Tensor& table, const at::Tensor& buckets, int64_t length, bool causal) {
  const int64_t reach = (buckets.size(0) + 1) / 2;
  const at::Tensor near = buckets.narrow(0, reach - length, 2 * length - 1);
  // [heads, 2 * length - 1]; row i of a head's matrix is the window that begins length - 1 - i into its values.
  at::Tensor values = table.index_select(0, near).t();
  if (causal) {
    const at::Tensor ahead = at::arange(2 * length - 1, near.options()) >= length;
    values = values.masked_fill(ahead, -std::numeric_limits<double>::infinity());
  }
  return values.unfold(1, length, 1).flip(1);
}

}  // namespace lab
