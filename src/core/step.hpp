// A step over caller-owned memory: validation of everything before anything is written, then the phases.
#pragma once

#include "core/plan.hpp"

namespace came::core {

/// Whether params, grads and states are checked.  Without it the caller vouches that they fit the plan.
enum class CheckTensors { yes, no };

/// Throws, naming the tensor and the argument, unless `step` fits the plan.
void validate_step(const Plan& plan, const came_step& step, CheckTensors checked = CheckTensors::yes);

/// Validates and runs one phase.
void run_phase(const Plan& plan, int phase, const came_step& step);

/// Validates and runs all phases; refused for a sharded plan.
void run_step(const Plan& plan, const came_step& step, CheckTensors checked = CheckTensors::yes);

/// Throws unless a struct has this ABI's size.
void check_struct(uint32_t given, size_t expected, const std::string& label, const char* role);

/// A tensor of a step, checked: struct, null, alignment, shape, dtype, device.
void check_tensor(const came_tensor& given, const std::string& label, const char* role, const int64_t* shape,
                  int64_t ndim, DType dtype, came_device device, int32_t device_index);

/// A counter must be below this: above, f64 cannot count, and stochastic rounding would repeat itself.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

/// Scalars in host memory.
double scalar_or(const came_tensor* scalar, int64_t index, double fallback);
bool found_inf(const came_step& step);

/// Norm of the unscaled gradient of the whole plan, once the norm phase is reduced; 0 before, or where no group clips.
double gradient_norm(const Plan& plan, int64_t phase, const came_step& step);
/// What a gradient is multiplied with: docs/algorithms.md, equation (2).
double gradient_factor(const came_options& options, const came_step& step, double norm);
/// Counts a step that is done: for all tensors, or for those it touched.
void raise_counters(const Plan& plan, const came_step& step);

/// The options of a tensor in this step: those that it brings, or the plan's.
inline const came_options& options_of(const Plan& plan, const came_step& step, const Tensor& tensor) {
  return step.options != nullptr ? step.options[tensor.group] : plan.options(tensor);
}

/// Does the step touch this tensor?
inline bool is_active(const came_step& step, int64_t tensor) {
  return step.active == nullptr || step.active[tensor] != 0;
}

}  // namespace came::core
