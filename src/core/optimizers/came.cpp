// CAME: docs/algorithms.md, equations (5) to (13).  4 B/param of state in f32, plus two statistics per row and column.
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

void set_defaults(came_options& o) {
  o.lr = 1e-3;
  o.beta1 = 0.9;
  o.beta2 = 0.999;
  o.beta3 = 0.9999;
  o.eps1 = 1e-30;
  o.eps2 = 1e-16;
  o.clip_threshold = 1.0;
  o.bias_correction = 1;
}

std::vector<State> states(const came_options& o, const Tensor& t) {
  std::vector<State> list;
  add_momentum(list, o, t);
  if (t.factored) {
    list.push_back(row_state("exp_avg_sq_row", t));
    list.push_back(col_state("exp_avg_sq_col", t));
    list.push_back(row_state("exp_avg_res_row", t));
    list.push_back(col_state("exp_avg_res_col", t));
  } else {
    list.push_back(full_state("exp_avg_sq", t, statistics_dtype(t)));
    if (o.confidence_1d != 0) list.push_back(full_state("exp_avg_res", t, statistics_dtype(t)));
  }
  return list;
}

std::vector<PhaseKind> phases(const std::vector<came_options>&, bool split) {
  if (split) return {PhaseKind::statistics, PhaseKind::rms, PhaseKind::momentum, PhaseKind::apply};
  return {PhaseKind::statistics, PhaseKind::momentum, PhaseKind::apply};
}

ReductionShape reduction(const came_options& o, const Tensor& t, PhaseKind phase) {
  const bool split = t.factored && t.owner == Owner::none;
  switch (phase) {
    case PhaseKind::statistics:
      return t.factored ? factor_reduction(t, true) : ReductionShape{.totals = 1};
    case PhaseKind::rms:
      return {.totals = split ? 1 : 0};
    case PhaseKind::momentum: {
      ReductionShape shape = t.factored ? factor_reduction(t, false) : ReductionShape{};
      shape.totals += o.cautious;
      return shape;
    }
    default:
      return {};
  }
}

}  // namespace

const Descriptor kCameDescriptor{
    .word = "came",
    .factored = true,
    .column_multipliers = true,
    .set_defaults = set_defaults,
    .states = states,
    .phases = phases,
    .reduction = reduction,
};

}  // namespace came::core
