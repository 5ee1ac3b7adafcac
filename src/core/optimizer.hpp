// An optimizer that owns its state: a plan, zeroed state, buffers, step counters and options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "came/optimizer.hpp"
#include "core/plan.hpp"

namespace came::core {

class Optimizer {
 public:
  Optimizer(const std::vector<came_options>& groups, const std::vector<Parameter>& parameters, const Backend& backend);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step(const double* grad_scale, const double* found_inf);
  void set_grad(int64_t parameter, const came_tensor& grad);
  void set_options(int32_t group, const came_options& options);
  void set_lr(int32_t group, double lr);
  /// Copies the whole state in; throws before it changes anything.
  void load_state(const std::vector<NamedTensor>& saved);

  [[nodiscard]] const came_memory& memory() const { return plan_.memory; }
  [[nodiscard]] const std::vector<NamedTensor>& exports() const { return exports_; }

 private:
  [[nodiscard]] came_step make_step() const;
  void check_group(int32_t group) const;
  /// Index in exports_ of every given tensor; throws unless they match one to one.
  [[nodiscard]] std::vector<size_t> match(const std::vector<NamedTensor>& states) const;

  Plan plan_;
  std::vector<came_tensor> params_;
  std::vector<came_tensor> grads_;
  std::vector<came_tensor> states_;
  std::vector<uint64_t> storage_;  ///< Of all states, each on its own cache lines.
  std::vector<double> workspace_;
  std::vector<double> reductions_;
  std::vector<int64_t> counters_;      ///< Steps done, per parameter.
  std::vector<came_options> options_;  ///< Of each group, for the next step.
  int64_t parameter_count_ = 0;
  std::vector<NamedTensor> exports_;
  TensorView counter_view_;
};

}  // namespace came::core
