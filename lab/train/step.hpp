// One step of training: the batch in micro-batches through the model and back, clipping, the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>

#include "data/dataset.hpp"
#include "models/model.hpp"
#include "train/config.hpp"

namespace lab {

/// What a step did; the tensors are on the model's device, so that nothing waits for it.
struct StepResult {
  at::Tensor loss;               ///< Mean of the predicted tokens' losses over the whole batch, before the step.
  at::Tensor grad_norm;          ///< Before clipping.
  int64_t tokens = 0;            ///< That the model read.
  double optimizer_seconds = 0;  ///< Of the optimizer's step, if it was measured.
  double seconds = 0;            ///< Of all, if it was measured.
};

/// Takes step number `step`, counted from 1: sequences (step - 1) * batch and those that follow.  Measuring waits for
/// the device before and after.
StepResult take_step(Model& model, torch::optim::Optimizer& optimizer, const Batches& batches,
                     const TrainConfig& config, int64_t step, c10::Device device, bool measure);

}  // namespace lab
