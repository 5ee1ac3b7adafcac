// came::Optimizer: parameters in, steps out, state owned.  For C++ programs without a framework.
//
//   came::Optimizer optimizer(came::Options::came(), {{"w", {w.data(), shape}, {dw.data(), shape}}});
//   for (...) { compute dw; optimizer.step(); }
//
// Gradients are read and never written: overwrite or clear them as your program likes, there is no zero_grad().
// A checkpoint is state() plus your parameters and learning rates: examples/cpp/checkpoint.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "came/plan.hpp"

namespace came {

/// One parameter and where its gradient is found at each step.
struct Parameter {
  std::string name;  ///< Unique; prefix of its exported state and key of its stochastic rounding.
  TensorView param;  ///< Host memory that outlives the optimizer; the shape is copied.
  TensorView grad;   ///< Same shape; read at each step.
  int group = 0;     ///< Index of its options.
};

/// A state tensor by name: "<parameter>.exp_avg", "<parameter>.step", ...
struct NamedTensor {
  std::string name;   ///< The name.
  TensorView tensor;  ///< The data.
  int64_t bytes = 0;  ///< Its size; not needed to load.
};

/// An optimizer that owns its state.
class Optimizer {
 public:
  /// Builds an optimizer over parameter groups; its state starts at zero.
  Optimizer(const std::vector<Options>& groups, const std::vector<Parameter>& parameters,
            Backend backend = Backend::automatic) {
    std::vector<came_parameter> list;
    list.reserve(parameters.size());
    for (const Parameter& p : parameters) {
      list.push_back({sizeof(came_parameter), p.group, p.name.c_str(), p.param, p.grad});
    }
    came_optimizer* optimizer = nullptr;
    check(came_optimizer_create(groups.data(), static_cast<int32_t>(groups.size()), list.data(),
                                static_cast<int64_t>(list.size()), static_cast<came_backend>(backend), &optimizer));
    optimizer_.reset(optimizer);
    group_count_ = static_cast<int>(groups.size());
  }
  /// Builds an optimizer with one group.
  Optimizer(const Options& options, const std::vector<Parameter>& parameters, Backend backend = Backend::automatic)
      : Optimizer(std::vector<Options>{options}, parameters, backend) {}

  /// One step.
  void step() { check(came_optimizer_step(optimizer_.get(), nullptr, nullptr)); }
  /// One step of mixed precision: gradients are divided by grad_scale; found_inf skips the step.
  void step(double grad_scale, bool found_inf) {
    const double skip = found_inf ? 1.0 : 0.0;
    check(came_optimizer_step(optimizer_.get(), &grad_scale, &skip));
  }
  /// Points a parameter to another gradient of the same shape and dtype.
  void set_grad(int64_t parameter, const TensorView& grad) {
    check(came_optimizer_set_grad(optimizer_.get(), parameter, &grad));
  }
  /// Sets the options of a group, lr included, from the next step on; what decides its state must stay as it is.
  void set_options(int group, const Options& options) {
    check(came_optimizer_set_options(optimizer_.get(), group, &options));
  }
  /// Sets the learning rate of a group.
  void set_lr(int group, double lr) { check(came_optimizer_set_lr(optimizer_.get(), group, lr)); }
  /// Sets the learning rate of an optimizer with one group; with several, name the group.
  void set_lr(double lr) {
    if (group_count_ != 1) {
      throw Error(Status::invalid_argument,
                  "set_lr: no group given, expected one of 0 to " + std::to_string(group_count_ - 1));
    }
    set_lr(0, lr);
  }

  /// Bytes of state, workspace and reductions.
  [[nodiscard]] came_memory memory() const {
    came_memory memory = CAME_MEMORY_INIT;
    check(came_optimizer_memory(optimizer_.get(), &memory));
    return memory;
  }
  /// The state by name, as views of the optimizer's own memory.
  [[nodiscard]] std::vector<NamedTensor> state() const {
    int64_t count = 0;
    check(came_optimizer_state_count(optimizer_.get(), &count));
    std::vector<NamedTensor> list;
    for (int64_t k = 0; k < count; ++k) {
      came_named_tensor named = CAME_NAMED_TENSOR_INIT;
      check(came_optimizer_state(optimizer_.get(), k, &named));
      NamedTensor& entry = list.emplace_back();
      entry.name = named.name;
      static_cast<came_tensor&>(entry.tensor) = named.tensor;
      entry.bytes = named.bytes;
    }
    return list;
  }
  /// Imports the whole state by name; unless every name, shape and dtype fits, nothing changes.
  void load_state(const std::vector<NamedTensor>& states) {
    std::vector<came_named_tensor> list;
    list.reserve(states.size());
    for (const NamedTensor& s : states) {
      list.push_back({sizeof(came_named_tensor), 0, s.name.c_str(), s.tensor, s.bytes});
    }
    check(came_optimizer_load_state(optimizer_.get(), list.data(), static_cast<int64_t>(list.size())));
  }

 private:
  struct Destroy {
    void operator()(came_optimizer* optimizer) const { came_optimizer_destroy(optimizer); }
  };
  std::unique_ptr<came_optimizer, Destroy> optimizer_;
  int group_count_ = 0;
};

}  // namespace came
