// The scalars of a step where they lie in host memory: learning rates, counters, found_inf, what gradients are
// multiplied with.
#pragma once

#include "core/plan.hpp"

namespace came::core {

/// A scalar's value; `fallback` if the step does not bring it.
double scalar_or(const came_tensor* scalar, int64_t index, double fallback);
bool found_inf(const came_step& step);

/// Norm of the unscaled gradient of the whole plan, once the norm phase is reduced; 0 before, or where no group clips.
double gradient_norm(const Plan& plan, int64_t phase, const came_step& step);
/// What a gradient is multiplied with: docs/algorithms.md, equation (2).
double gradient_multiplier(const came_options& options, const came_step& step, double norm);

/// The number of this step for a tensor, from 1.
double step_number(const came_step& step, int64_t tensor);
/// Counts a step that is done: for all tensors, or for those it touched.
void raise_counters(const Plan& plan, const came_step& step);

}  // namespace came::core
