// Adafactor: docs/algorithms.md, equations (14) to (17).  4 B/param of state in f32 with momentum, almost none without.
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

void set_defaults(came_options& o) {
  o.lr = 1e-3;
  o.beta1 = 0.9;
  o.beta2 = 0.999;
  o.eps1 = 1e-30;
  o.eps2 = 1e-3;
  o.clip_threshold = 1.0;
}

std::vector<State> states(const came_options& o, const Tensor& t) {
  std::vector<State> list;
  if (o.beta1 > 0) add_momentum(list, o, t);
  if (t.factored) {
    list.push_back(row_state("exp_avg_sq_row", t));
    list.push_back(col_state("exp_avg_sq_col", t));
  } else {
    list.push_back(full_state("exp_avg_sq", t, statistics_dtype(t)));
  }
  return list;
}

// Without `cautious` the momentum is taken in the apply phase: one pass less.
std::vector<PhaseKind> phases(const std::vector<came_options>& groups, bool split) {
  std::vector<PhaseKind> list;
  list.push_back(PhaseKind::statistics);
  if (split) list.push_back(PhaseKind::rms);
  if (any_group(groups, &came_options::cautious)) list.push_back(PhaseKind::momentum);
  list.push_back(PhaseKind::apply);
  return list;
}

ReductionShape reduction(const came_options& o, const Tensor& t, PhaseKind phase) {
  const bool split = t.factored && t.owner == Owner::none;
  switch (phase) {
    case PhaseKind::statistics: {
      ReductionShape shape = t.factored ? factor_reduction(t, true) : ReductionShape{.totals = 1};
      shape.totals += o.scale_parameter;
      return shape;
    }
    case PhaseKind::rms:
      return {.totals = split ? 1 : 0};
    case PhaseKind::momentum:
      return {.totals = o.cautious};
    default:
      return {};
  }
}

}  // namespace

const Descriptor kAdafactorDescriptor{
    .word = "adafactor",
    .factored = true,
    .column_multipliers = true,
    .set_defaults = set_defaults,
    .states = states,
    .phases = phases,
    .reduction = reduction,
};

}  // namespace came::core
