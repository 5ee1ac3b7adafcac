// The optimizers for libtorch, in the shape of its own:
//
//   came::torch::CAME optimizer(model->parameters(), came::torch::CAMEOptions(1e-3).weight_decay(0.01));
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
//
// In CMake: find_package(came REQUIRED COMPONENTS torch), target came::torch.
#pragma once

#include "came/torch/optimizer.hpp"
#include "came/torch/optimizers.hpp"
#include "came/torch/options.hpp"
#include "came/torch/state.hpp"
