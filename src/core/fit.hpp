// Whether options, tensors and a plan go together: when a plan is made, and when a step brings options of its own.
#pragma once

#include "core/plan.hpp"

namespace came::core {

/// Throws if a statistic of nothing but zeros would itself be rounded to zero: it is divided by.
void check_epsilons(const came_options& options, const Tensor& tensor);

/// Throws if tensors that are rounded stochastically share an id: they would round alike wherever their elements have
/// the same number.  Returns whether all tensors have an id of their own.
bool check_ids(const Plan& plan);

/// Throws unless a step may bring these options, one per group, in place of the plan's: came_plan_check_options.
void check_step_options(const Plan& plan, const came_options* options);

}  // namespace came::core
