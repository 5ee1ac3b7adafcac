// The small layers that all families share.  Each keeps handles of its parameters; activations are [tokens, width], and
// a product is computed in the format of its input, whatever that of the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>

#include "models/scope.hpp"

namespace lab {

/// y = x W' + b with W [out, in], as in torch::nn::Linear; several may be stacked into one product.
struct Linear {
  Linear() = default;
  Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias = true);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight, bias;
};

/// The outputs of several layers with the same input, side by side: [tokens, sum of out].
[[nodiscard]] at::Tensor stacked(std::initializer_list<const Linear*> layers, const at::Tensor& x);

/// The same with W [in, out]: what transformers calls Conv1D, in GPT-2 alone.
struct Conv1D {
  Conv1D() = default;
  Conv1D(const Scope& scope, int64_t in, int64_t out);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight, bias;
};

/// Layer normalisation with a bias (BERT, GPT-2), or by the root mean square without one (T5).
struct Norm {
  enum class Kind { centred, root_mean_square };

  Norm() = default;
  Norm(const Scope& scope, int64_t width, double least, Kind kind = Kind::centred);
  /// In the format of x, then cast to `dtype`.
  at::Tensor operator()(const at::Tensor& x, at::ScalarType dtype) const;

  at::Tensor weight, bias;
  double epsilon = 0;  // `least`: what is added to the variance
};

/// Rows of `table`; row `padding`, if any, learns nothing from being looked up.
[[nodiscard]] at::Tensor embed(const at::Tensor& table, const at::Tensor& tokens, int64_t padding = -1);

/// Zeroes a share of x and scales the rest; x itself where the share is 0.
[[nodiscard]] at::Tensor drop(const at::Tensor& x, double share);

/// Draws a parameter from a normal distribution around 0.
void draw_normal(const at::Tensor& parameter, double deviation);
/// Sets a parameter to one value.
void set_all(const at::Tensor& parameter, double value);
/// Zero biases and normal weights of this deviation.
void draw(const Linear& layer, double deviation);
void draw(const Conv1D& layer, double deviation);
/// Weight 1, bias 0.
void reset(const Norm& norm);

}  // namespace lab
