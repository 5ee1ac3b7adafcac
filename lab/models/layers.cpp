// Linear layers, norms, embeddings and dropout on [tokens, width].
#include "models/layers.hpp"

#include <ATen/ATen.h>

#include <vector>

namespace lab {
namespace {

// One product with the bias in its epilogue; `weight` is [in, out].
at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight) : at::mm(x, weight);
}

}  // namespace

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias)
    : weight(scope.parameter("weight", {out, in})) {
  if (with_bias) bias = scope.parameter("bias", {out});
}

at::Tensor Linear::operator()(const at::Tensor& x) const { return stacked({this}, x); }

at::Tensor stacked(std::initializer_list<const Linear*> layers, const at::Tensor& x) {
  std::vector<at::Tensor> weights, biases;
  for (const Linear* layer : layers) {
    // Cast before the copy into one matrix: half the bytes.
    weights.push_back(layer->weight.to(x.scalar_type()));
    if (layer->bias.defined()) biases.push_back(layer->bias.to(x.scalar_type()));
  }
  if (weights.size() == 1) return affine(x, weights[0].t(), biases.empty() ? at::Tensor() : biases[0]);
  return affine(x, at::cat(weights).t(), biases.empty() ? at::Tensor() : at::cat(biases));
}

Conv1D::Conv1D(const Scope& scope, int64_t in, int64_t out)
    : weight(scope.parameter("weight", {in, out})), bias(scope.parameter("bias", {out})) {}

at::Tensor Conv1D::operator()(const at::Tensor& x) const {
  return affine(x, weight.to(x.scalar_type()), bias.to(x.scalar_type()));
}

Norm::Norm(const Scope& scope, int64_t width, double least, Kind kind)
    : weight(scope.parameter("weight", {width})), epsilon(least) {
  if (kind == Kind::centred) bias = scope.parameter("bias", {width});
}

at::Tensor Norm::operator()(const at::Tensor& x, at::ScalarType dtype) const {
  const at::Tensor y = bias.defined() ? at::layer_norm(x, weight.sizes(), weight, bias, epsilon)
                                      : at::rms_norm(x, weight.sizes(), weight, epsilon);
  return y.to(dtype);
}

at::Tensor embed(const at::Tensor& table, const at::Tensor& tokens, int64_t padding) {
  return at::embedding(table, tokens, padding);
}

at::Tensor drop(const at::Tensor& x, double share) { return share > 0 ? at::dropout(x, share, true) : x; }

void draw_normal(const at::Tensor& parameter, double deviation) {
  const at::NoGradGuard no_grad;
  parameter.normal_(0, deviation);
}

void set_all(const at::Tensor& parameter, double value) {
  const at::NoGradGuard no_grad;
  parameter.fill_(value);
}

void draw(const Linear& layer, double deviation) {
  draw_normal(layer.weight, deviation);
  if (layer.bias.defined()) set_all(layer.bias, 0);
}

void draw(const Conv1D& layer, double deviation) {
  draw_normal(layer.weight, deviation);
  set_all(layer.bias, 0);
}

void reset(const Norm& norm) {
  set_all(norm.weight, 1);
  if (norm.bias.defined()) set_all(norm.bias, 0);
}

}  // namespace lab
