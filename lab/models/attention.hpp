// Attention on packed projections.  The heads are views of the product that made them and the fused kernels write
// [batch, tokens, heads, width of a head], so that nothing is copied on the way in or out.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lab {

/// How scores become weights.
struct Attention {
  int64_t heads = 0;
  int64_t head_width = 0;
  bool causal = false;          ///< A token sees those up to itself.
  double dropout = 0;           ///< Of the weights; 0 outside of training.
  std::optional<double> scale;  ///< Of the products; 1 / sqrt(head_width) if absent.
};

/// What `batch` sequences see of themselves.  qkv [batch * T, 3 * heads * head_width]: queries, keys, values side by
/// side.  `bias`, if defined, is added to the scores: [heads, T, T] in the format of qkv.  Gives
/// [batch * T, heads * head_width].
[[nodiscard]] at::Tensor attend_self(const Attention& attention, const at::Tensor& qkv, int64_t batch,
                                     const at::Tensor& bias = {});

/// What q [batch * S, heads * head_width] sees of keys and values side by side, kv [batch * T, 2 * heads * head_width].
[[nodiscard]] at::Tensor attend_across(const Attention& attention, const at::Tensor& q, const at::Tensor& kv,
                                       int64_t batch);

}  // namespace lab
