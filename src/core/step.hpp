// A step over caller-owned memory: validation of everything before anything is written, then the phases.
#pragma once

#include "core/plan.hpp"

namespace came::core {

/// Whether params, grads and states are checked.  Without it the caller vouches that they fit the plan.
enum class CheckTensors { yes, no };

/// Throws, naming the tensor and the argument, unless `step` fits the plan.
void validate_step(const Plan& plan, const came_step& step, CheckTensors checked = CheckTensors::yes);

/// Validates and runs one phase.  Without the check of tensors, scalars and options are checked in the first phase
/// only.
void run_phase(const Plan& plan, int phase, const came_step& step, CheckTensors checked = CheckTensors::yes);

/// Validates and runs all phases; refused for a sharded plan.
void run_step(const Plan& plan, const came_step& step, CheckTensors checked = CheckTensors::yes);

/// Throws unless a struct has this ABI's size.
void check_struct(uint32_t given, size_t expected, const std::string& label, const char* role);

/// A tensor of a step, checked: struct, null, alignment, shape, dtype, device.
void check_tensor(const came_tensor& given, const std::string& label, const char* role, const int64_t* shape,
                  int64_t ndim, DType dtype, came_device device, int32_t device_index);

/// A counter must be below this: above, f64 cannot count, and stochastic rounding would repeat itself.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

/// The options of a tensor in this step: those that it brings, or the plan's.
inline const came_options& options_of(const Plan& plan, const came_step& step, const Tensor& tensor) {
  return step.options != nullptr ? step.options[tensor.group] : plan.options(tensor);
}

/// Does the step touch this tensor?
inline bool is_active(const came_step& step, int64_t tensor) {
  return step.active == nullptr || step.active[tensor] != 0;
}

}  // namespace came::core
