// Activation checkpoints: a layer keeps its inputs alone and runs again in backward.  Random numbers are drawn again
// from the state they were drawn from, so that values and gradients are those of a run that keeps everything.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "models/model.hpp"

namespace lab {

/// A function of `inputs`, and of parameters that it knows by itself.
using Layer = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// layer(inputs); keeps nothing else for backward.  `parameters` are all those that the layer uses: their gradients are
/// handed on as those of the inputs are.
[[nodiscard]] at::Tensor checkpointed(const Layer& layer, const std::vector<at::Tensor>& inputs,
                                      const std::vector<at::Tensor>& parameters);

/// The same where the config wants checkpoints and gradients are wanted, else the layer as it is.
[[nodiscard]] at::Tensor run_layer(const ModelConfig& config, const Layer& layer, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters);

}  // namespace lab
