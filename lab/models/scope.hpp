// Where a layer's parameters are registered: a path of nested modules such as "bert.encoder.layer.0".  The layers keep
// handles of the parameters; the modules hold nothing but their names, which are those of transformers' files.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace lab {

/// A module within a model, made when it is first named.
class Scope {
 public:
  /// The model itself; parameters are made on `device`.
  Scope(torch::nn::Module& model, at::Device device) : module_(&model), device_(device) {}

  /// What is below `path`, one module per word between dots.
  [[nodiscard]] Scope operator/(const std::string& path) const;
  /// Registers a parameter, f32 and uninitialised.
  [[nodiscard]] at::Tensor parameter(const std::string& name, at::IntArrayRef shape) const;
  /// All parameters from here down.
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return module_->parameters(); }

 private:
  torch::nn::Module* module_;
  at::Device device_;
};

}  // namespace lab
