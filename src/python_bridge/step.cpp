// The unchecked step and phase.
#include "core/step.hpp"

#include "c_api/handle.hpp"
#include "python_bridge/bridge.h"

using namespace came::c_api;
namespace core = came::core;

came_status came_plan_step_unchecked(const came_plan* plan, const came_step* step) {
  return guarded([&] {
    const core::Plan& p = required(plan, "plan").plan;
    core::run_step(p, checked_struct(step, "step"), core::CheckTensors::no);
  });
}

came_status came_plan_run_phase_unchecked(const came_plan* plan, int32_t phase, const came_step* step) {
  return guarded([&] {
    const core::Plan& p = required(plan, "plan").plan;
    core::run_phase(p, phase, checked_struct(step, "step"), core::CheckTensors::no);
  });
}
