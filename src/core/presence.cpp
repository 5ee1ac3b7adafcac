// The host's side of it; on a device: src/cuda/presence.cu.
#include "core/presence.hpp"

#include "core/message.hpp"
#include "core/step.hpp"

namespace came::core {

void write_presence(const Plan& plan, const came_step& step) {
  auto* reductions = static_cast<double*>(step.reductions);
  for (size_t k = 0; k < plan.tensors.size(); ++k) {
    const Tensor& t = plan.tensors[k];
    if (!t.sharded) continue;
    const bool active = is_active(step, static_cast<int64_t>(k));
    reductions[t.presence] = active ? 1 : 0;
    reductions[absence_of(plan, t)] = active ? 0 : 1;
  }
}

void check_presence(const Plan& plan, const came_step& step) {
  const auto* reductions = static_cast<const double*>(step.reductions);
  for (const Tensor& t : plan.tensors) {
    if (t.sharded && reductions[t.presence] > 0 && reductions[absence_of(plan, t)] > 0) {
      invalid(t.label, ": has a gradient on some ranks and none on others, expected it on all of them or none");
    }
  }
}

}  // namespace came::core
