// What an optimizer keeps for one parameter: plain tensors, named as in the authors' package, and the steps done.
#pragma once

#include <torch/optim/optimizer.h>
#include <string>
#include <vector>

namespace came::torch {

/// State of one parameter; what an optimizer's state() holds.
class ParamState : public ::torch::optim::OptimizerCloneableParamState<ParamState> {
 public:
  /// A tensor of the state.
  struct Entry {
    std::string name;   ///< Such as "exp_avg_sq_row".
    at::Tensor tensor;  ///< On the parameter's device.
  };

  /// Steps that the parameter has taken: those for which it had a gradient.
  int64_t step = 0;
  /// Its tensors, in the order of the plan.
  std::vector<Entry> tensors;

  /// The tensor with this name; throws came::Error if there is none.
  [[nodiscard]] const at::Tensor& at(const std::string& name) const;

  /// Reads the counter and every tensor there is; dtypes stay as they were saved.
  void serialize(::torch::serialize::InputArchive& archive) override;
  /// Writes the counter and every tensor under its name.
  void serialize(::torch::serialize::OutputArchive& archive) const override;
};

}  // namespace came::torch
