// A multi-layer perceptron with its gradients written by hand: f32, plain loops, ReLU between layers, softmax and
// cross-entropy at the end.  It shows what the optimizer needs from a program: pointers to parameters and gradients.
#pragma once

#include <algorithm>
#include <came/came.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "task.hpp"

namespace demo {

/// What a pass over a batch says.
struct Outcome {
  double loss = 0;      ///< Mean cross-entropy.
  double accuracy = 0;  ///< Part of the pictures whose digit has the largest score.
};

class Mlp {
 public:
  /// Layers between these widths; weights from a uniform distribution of variance 2 / inputs, biases zero.
  Mlp(const std::vector<int>& widths, Random& random) {
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      Layer& layer = layers_.emplace_back(widths[l], widths[l + 1]);
      const float bound = std::sqrt(6.0F / static_cast<float>(layer.inputs));
      for (float& w : layer.weight) w = bound * (2.0F * random.uniform() - 1.0F);
    }
  }

  /// Parameters for an optimizer, as views of this object, which must neither move nor be copied over meanwhile.
  [[nodiscard]] std::vector<came::Parameter> parameters() {
    std::vector<came::Parameter> list;
    for (size_t l = 0; l < layers_.size(); ++l) {
      Layer& layer = layers_[l];
      const std::string name = "layer" + std::to_string(l);
      list.push_back({name + ".weight",
                      {layer.weight.data(), layer.weight_shape},
                      {layer.weight_grad.data(), layer.weight_shape}});
      list.push_back(
          {name + ".bias", {layer.bias.data(), layer.bias_shape}, {layer.bias_grad.data(), layer.bias_shape}});
    }
    return list;
  }
  [[nodiscard]] int64_t parameter_count() const {
    size_t count = 0;
    for (const Layer& layer : layers_) count += layer.weight.size() + layer.bias.size();
    return static_cast<int64_t>(count);
  }

  /// Forward over `batch` pictures.
  Outcome evaluate(const float* pixels, const int* digits, int batch) {
    forward(pixels, batch);
    return score(digits, batch);
  }
  /// Forward and backward: leaves the gradients of the mean loss.
  Outcome train(const float* pixels, const int* digits, int batch) {
    const Outcome outcome = evaluate(pixels, digits, batch);
    for (size_t l = layers_.size(); l-- > 0;) {
      backward(layers_[l], l == 0 ? pixels : layers_[l - 1].out.data(), l == 0 ? nullptr : &layers_[l - 1], batch);
    }
    return outcome;
  }

 private:
  /// Weights are inputs x outputs, so that the inner loop of each pass runs along memory.
  struct Layer {
    Layer(int in, int outs)
        : inputs(static_cast<size_t>(in)),
          outputs(static_cast<size_t>(outs)),
          weight(inputs * outputs),
          weight_grad(inputs * outputs),
          bias(outputs),
          bias_grad(outputs),
          weight_shape{in, outs},
          bias_shape{outs} {}

    size_t inputs, outputs;
    std::vector<float> weight, weight_grad, bias, bias_grad;
    std::vector<int64_t> weight_shape, bias_shape;
    std::vector<float> out, out_grad;  ///< batch x outputs; the loss's derivative by `out` before its ReLU.
  };

  void forward(const float* pixels, int batch) {
    const float* in = pixels;
    for (Layer& layer : layers_) {
      const bool last = &layer == &layers_.back();
      layer.out.resize(static_cast<size_t>(batch) * layer.outputs);
      for (size_t b = 0; b < static_cast<size_t>(batch); ++b) {
        float* out = &layer.out[b * layer.outputs];
        std::copy(layer.bias.begin(), layer.bias.end(), out);
        for (size_t i = 0; i < layer.inputs; ++i) {
          const float x = in[b * layer.inputs + i];
          const float* weight = &layer.weight[i * layer.outputs];
          for (size_t o = 0; o < layer.outputs; ++o) out[o] += x * weight[o];
        }
        if (!last) {
          for (size_t o = 0; o < layer.outputs; ++o) out[o] = std::max(out[o], 0.0F);
        }
      }
      in = layer.out.data();
    }
  }

  /// Softmax and cross-entropy of the last layer's scores, and their derivative.
  Outcome score(const int* digits, int batch) {
    Layer& layer = layers_.back();
    Outcome outcome;
    layer.out_grad.resize(layer.out.size());
    for (int b = 0; b < batch; ++b) {
      const float* scores = &layer.out[static_cast<size_t>(b) * layer.outputs];
      float* grad = &layer.out_grad[static_cast<size_t>(b) * layer.outputs];
      const auto best = static_cast<size_t>(std::max_element(scores, scores + layer.outputs) - scores);
      const auto digit = static_cast<size_t>(digits[b]);
      float sum = 0;
      for (size_t o = 0; o < layer.outputs; ++o) sum += std::exp(scores[o] - scores[best]);
      for (size_t o = 0; o < layer.outputs; ++o) {
        const float probability = std::exp(scores[o] - scores[best]) / sum;
        grad[o] = (probability - (o == digit ? 1.0F : 0.0F)) / static_cast<float>(batch);
      }
      outcome.loss += static_cast<double>(scores[best] - scores[digit] + std::log(sum)) / batch;
      outcome.accuracy += (best == digit ? 1.0 : 0.0) / batch;
    }
    return outcome;
  }

  /// Gradients of one layer, and the derivative by the output of the layer before it, if there is one.
  static void backward(Layer& layer, const float* in, Layer* before, int batch) {
    std::fill(layer.weight_grad.begin(), layer.weight_grad.end(), 0.0F);
    std::fill(layer.bias_grad.begin(), layer.bias_grad.end(), 0.0F);
    if (before != nullptr) before->out_grad.resize(before->out.size());
    for (size_t b = 0; b < static_cast<size_t>(batch); ++b) {
      const float* grad = &layer.out_grad[b * layer.outputs];
      for (size_t o = 0; o < layer.outputs; ++o) layer.bias_grad[o] += grad[o];
      for (size_t i = 0; i < layer.inputs; ++i) {
        const float x = in[b * layer.inputs + i];
        float* weight_grad = &layer.weight_grad[i * layer.outputs];
        for (size_t o = 0; o < layer.outputs; ++o) weight_grad[o] += x * grad[o];
        if (before == nullptr) continue;
        const float* weight = &layer.weight[i * layer.outputs];
        float sum = 0;
        for (size_t o = 0; o < layer.outputs; ++o) sum += weight[o] * grad[o];
        before->out_grad[b * layer.inputs + i] = x > 0.0F ? sum : 0.0F;
      }
    }
  }

  std::vector<Layer> layers_;
};

}  // namespace demo
