// The reference backend: f64 arithmetic, one thread, any dtype.  What every other backend is held to, and so its files
// follow docs/algorithms.md alone: of src/algorithms/ they take how numbers are stored and rounded, no formula.  Only
// the gradient's multiplier, (2), is the core's.
#include "core/backend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/optimizers/registry.hpp"
#include "core/scalars.hpp"
#include "core/step.hpp"
#include "reference/kernels.hpp"

namespace came::reference {
namespace {

const Kernel& kernel_of(Algorithm algorithm) {
  static constexpr const Kernel* table[] = {&kCame, &kAdafactor, &kAdam, &kAdam, &kLamb, &kSm3};
  return *core::entry_of(algorithm, table);
}

void run_norm(const Subject& s, const Tile& tile, const Partials& out) {
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const double g = s.grad(b, i, j);
    out.scalar(core::kGradientSquares) += g * g;
  });
}

void run_one(const core::Plan& plan, int phase, const came_step& step) {
  if (core::found_inf(step)) return;
  const Kernel& kernel = kernel_of(plan.algorithm);
  const PhaseKind kind = plan.phases[static_cast<size_t>(phase)].kind;
  const double norm = core::gradient_norm(plan, phase, step);
  const auto subject = [&](int64_t index) {
    const came_options& options = core::options_of(plan, step, plan.tensors[static_cast<size_t>(index)]);
    return Subject(plan, step, index, core::gradient_multiplier(options, step, norm));
  };

  if (phase > 0) {
    const PhaseKind done = plan.phases[static_cast<size_t>(phase) - 1].kind;
    for (int64_t k = 0; k < static_cast<int64_t>(plan.tensors.size()); ++k) {
      const bool empty = plan.tensors[static_cast<size_t>(k)].view.elements() == 0;
      if (!empty && core::is_active(step, k)) kernel.finish(subject(k), done);
    }
  }
  auto* workspace = static_cast<double*>(step.workspace);
  for (const Tile& tile : plan.tiles) {
    const Subject s = subject(tile.tensor);
    const core::ReductionShape& shape = s.t.slots[static_cast<size_t>(phase)].shape;
    std::fill_n(workspace + tile.partial, shape.size(tile.rows.count, tile.cols.count), 0.0);
    if (!core::is_active(step, tile.tensor)) continue;
    const Partials out(workspace + tile.partial, shape, tile);
    if (kind == PhaseKind::norm) {
      run_norm(s, tile, out);
    } else {
      kernel.run(s, kind, tile, out);
    }
  }
  reduce_partials(plan, phase, workspace, static_cast<double*>(step.reductions));
  if (static_cast<size_t>(phase) + 1 == plan.phases.size()) core::raise_counters(plan, step);
}

void run_phases(const core::Plan& plan, core::Range phases, const came_step& step) {
  for (int64_t k = phases.begin; k < phases.begin + phases.count; ++k) run_one(plan, static_cast<int>(k), step);
}

}  // namespace
}  // namespace came::reference

namespace came::core {

const Backend& reference_backend() {
  constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();
  static constexpr Backend backend{
      .name = "reference",
      .device = CAME_DEVICE_CPU,
      .tiling = {.elements = kWhole, .cols = kWhole},
      .run_phases = reference::run_phases,
  };
  return backend;
}

}  // namespace came::core
