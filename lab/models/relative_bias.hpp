// T5's relative positions: a learned bias per head and bucket of distances, fine near by and logarithmic far away.
#pragma once

#include <ATen/core/Tensor.h>

namespace lab {

inline constexpr int64_t kBuckets = 32, kFarthest = 128;

/// Buckets of the distances key - query from -(reach - 1) to reach - 1: int64 [2 * reach - 1] on the CPU.  Causal: keys
/// lie behind, and all buckets serve those.
[[nodiscard]] at::Tensor distance_buckets(int64_t reach, bool causal);

/// The bias of `length` tokens towards each other, [heads, length, length]: from the table [kBuckets, heads] and
/// buckets as above, on its device, of a reach of at least `length`.  Causal: -inf ahead.  Differentiable.
[[nodiscard]] at::Tensor relative_bias(const at::Tensor& table, const at::Tensor& buckets, int64_t length, bool causal);

}  // namespace lab
