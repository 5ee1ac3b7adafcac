// Scalars may be f32, f64 or whole numbers, one for all or one each.
#include "core/scalars.hpp"

#include <cmath>

#include "algorithms/scalars.hpp"
#include "core/dtype.hpp"
#include "core/step.hpp"

namespace came::core {

double scalar_or(const came_tensor* scalar, int64_t index, double fallback) {
  return scalar == nullptr ? fallback : Cells(scalar->data, static_cast<DType>(scalar->dtype)).get(index);
}

bool found_inf(const came_step& step) { return scalar_or(step.found_inf, 0, 0) != 0; }

double gradient_norm(const Plan& plan, int64_t phase, const came_step& step) {
  const int norm = plan.find(PhaseKind::norm);
  if (norm < 0 || phase <= norm) return 0;
  const Phase& p = plan.phases[static_cast<size_t>(norm)];
  const auto* squares = static_cast<const double*>(step.reductions);
  double sum = 0;
  for (const Range& slots : p.slots) {
    for (int64_t k = slots.begin; k < slots.begin + slots.count; ++k) sum += squares[k];
  }
  return std::sqrt(sum);
}

double gradient_multiplier(const came_options& o, const came_step& step, double norm) {
  return algorithms::gradient_multiplier(scalar_or(step.grad_scale, 0, 1), o.max_grad_norm, norm);
}

double step_number(const came_step& step, int64_t tensor) {
  const bool one_for_all = step.step->ndim == 0 || step.step->shape[0] == 1;
  return scalar_or(step.step, one_for_all ? 0 : tensor, 0) + 1;
}

void raise_counters(const Plan& plan, const came_step& step) {
  const int64_t count = step.step->ndim == 0 ? 1 : step.step->shape[0];
  const bool one_each = count == static_cast<int64_t>(plan.tensors.size());
  const Cells counters(step.step->data, static_cast<DType>(step.step->dtype));
  for (int64_t k = 0; k < count; ++k) {
    if (!one_each || is_active(step, k)) counters.set(k, counters.get(k) + 1);
  }
}

}  // namespace came::core
