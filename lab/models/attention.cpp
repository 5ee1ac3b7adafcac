// Heads as views, and the fused kernel that fits them.
#include "models/attention.hpp"

#include <ATen/ATen.h>

#include <vector>

namespace lab {
namespace {

// [batch * T, parts * heads * head_width] -> parts of [batch, heads, T, head_width].
std::vector<at::Tensor> heads_of(const Attention& attention, const at::Tensor& x, int64_t batch) {
  return x
      .view({batch, -1, x.size(1) / (attention.heads * attention.head_width), attention.heads, attention.head_width})
      .permute({2, 0, 3, 1, 4})
      .unbind(0);
}

at::Tensor attend(const Attention& attention, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& bias) {
  std::optional<at::Tensor> mask;
  if (bias.defined()) mask = bias.unsqueeze(0).expand({q.size(0), -1, -1, -1});
  const at::Tensor y =
      at::scaled_dot_product_attention(q, k, v, mask, attention.dropout, attention.causal, attention.scale);
  return y.transpose(1, 2).reshape({-1, attention.heads * attention.head_width});
}

}  // namespace

at::Tensor attend_self(const Attention& attention, const at::Tensor& qkv, int64_t batch, const at::Tensor& bias) {
  const auto parts = heads_of(attention, qkv, batch);
  return attend(attention, parts[0], parts[1], parts[2], bias);
}

at::Tensor attend_across(const Attention& attention, const at::Tensor& q, const at::Tensor& kv, int64_t batch) {
  const auto queries = heads_of(attention, q, batch), parts = heads_of(attention, kv, batch);
  return attend(attention, queries[0], parts[0], parts[1], {});
}

}  // namespace lab
