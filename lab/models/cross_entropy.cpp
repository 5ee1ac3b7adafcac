// Scores in chunks of rows.  For a chunk with softmax p and targets t, the gradient of the scores is g = p - onehot(t);
// that of the hidden states is g W, and that of the weight adds g' h.
#include "models/cross_entropy.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace lab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tensor cores want rows that begin at multiples of 16 bytes; with 64 columns more tiles are whole.
constexpr int64_t kColumns = 64;

bool is_half(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

// a b with sums and result in f32 where a and b are shorter.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_half(a)) return at::mm(a, b);
  return a.is_cuda() ? at::mm(a, b, at::kFloat) : at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

// The weight in the format of products, on a GPU with rows of zeros up to a multiple of kColumns: the cast copies it
// anyway, so that a vocabulary of any size is as fast as a round one.
at::Tensor padded_weight(const at::Tensor& weight, at::ScalarType dtype) {
  const int64_t rows = weight.size(0);
  const int64_t padded = weight.is_cuda() ? (rows + kColumns - 1) / kColumns * kColumns : rows;
  if (padded == rows) return weight.to(dtype);
  at::Tensor copy = at::empty({padded, weight.size(1)}, weight.options().dtype(dtype));
  copy.narrow(0, 0, rows).copy_(weight);
  copy.narrow(0, rows, padded - rows).zero_();
  return copy;
}

struct Output : torch::autograd::Function<Output> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                               const std::optional<at::Tensor>& given_bias, const at::Tensor& targets, bool learn,
                               bool count, int64_t scores_at_a_time) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    const at::Tensor matrix = padded_weight(weight, hidden.scalar_type());
    const int64_t rows = hidden.size(0), vocabulary = weight.size(0), columns = matrix.size(0);
    const auto wide = hidden.options().dtype(is_half(hidden) ? at::kFloat : hidden.scalar_type());
    at::Tensor loss = at::zeros({}, wide), correct = count ? at::zeros({}, wide) : at::Tensor();
    at::Tensor grad_hidden, grad_weight, grad_bias;
    if (learn) {
      grad_hidden = at::empty_like(hidden);
      if (bias.defined()) grad_bias = at::zeros({columns}, wide);
    }
    const int64_t chunk = std::max<int64_t>(1, scores_at_a_time / columns);
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t size = std::min(chunk, rows - begin);
      const at::Tensor h = hidden.narrow(0, begin, size), t = targets.narrow(0, begin, size).unsqueeze(1);
      at::Tensor scores = wide_product(h, matrix.t());
      if (bias.defined()) scores.narrow(1, 0, vocabulary).add_(bias);
      if (columns > vocabulary) {
        scores.narrow(1, vocabulary, columns - vocabulary).fill_(-std::numeric_limits<double>::infinity());
      }
      if (count) correct += (scores.argmax(1, true) == t).sum();
      const at::Tensor logarithms = at::log_softmax(scores, 1);
      loss -= logarithms.gather(1, t).sum();
      if (!learn) continue;
      // The scores' memory serves their gradient where the format is the same.
      at::Tensor grad = is_half(hidden) ? at::empty(scores.sizes(), hidden.options()) : scores;
      at::exp_out(grad, logarithms);
      grad.scatter_add_(1, t, at::full_like(t, -1, grad.options()));
      at::Tensor slice = grad_hidden.narrow(0, begin, size);
      at::mm_out(slice, grad, matrix);
      const at::Tensor more = wide_product(grad.t(), h);
      grad_weight = grad_weight.defined() ? grad_weight.add_(more) : more;
      if (bias.defined()) grad_bias += grad.sum(0, false, wide.dtype().toScalarType());
    }
    if (learn) keep(ctx, weight, bias, grad_hidden, grad_weight, grad_bias);
    if (count) ctx->mark_non_differentiable({correct});
    return count ? variable_list{loss, correct} : variable_list{loss};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list result(7);
    const variable_list kept = ctx->get_saved_variables();
    for (size_t k = 0; k < kept.size(); ++k) {
      if (kept[k].defined()) result[k] = kept[k] * grads[0].to(kept[k].scalar_type());
    }
    return result;
  }

 private:
  static void keep(AutogradContext* ctx, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& grad_hidden, at::Tensor grad_weight, at::Tensor grad_bias) {
    if (!grad_weight.defined()) grad_weight = at::zeros_like(weight);  // no rows
    grad_weight = grad_weight.narrow(0, 0, weight.size(0)).to(weight.scalar_type());
    if (bias.defined()) grad_bias = grad_bias.narrow(0, 0, weight.size(0)).to(bias.scalar_type());
    ctx->save_for_backward({grad_hidden, grad_weight, grad_bias});
  }
};

}  // namespace

CrossEntropy cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& targets, bool count_correct, int64_t scores_at_a_time) {
  const bool learn = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  const std::optional<at::Tensor> given_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  const variable_list sums = Output::apply(hidden, weight, given_bias, targets, learn, count_correct, scores_at_a_time);
  return {sums[0], count_correct ? sums[1] : at::Tensor()};
}

CrossEntropy cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& targets, bool count_correct) {
  return cross_entropy(hidden, weight, bias, targets, count_correct, kScoresAtATime);
}

}  // namespace lab
