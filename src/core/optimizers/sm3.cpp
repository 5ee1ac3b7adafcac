// SM3-II: docs/algorithms.md, equations (25) to (27).  4 B/param of state in f32 with momentum, almost none without.
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

void set_defaults(came_options& o) {
  o.lr = 0.1;
  o.beta1 = 0.9;
  o.eps = 1e-30;
}

std::vector<State> states(const came_options& o, const Tensor& t) {
  std::vector<State> list;
  if (o.beta1 > 0) add_momentum(list, o, t);
  if (t.factored) {
    list.push_back(row_state("accumulator_row", t));
    list.push_back(col_state("accumulator_col", t));
  } else {
    list.push_back(full_state("accumulator", t, statistics_dtype(t)));
  }
  return list;
}

// The parameters are written in `cover`, or in `apply` with `cautious`; either way `apply` stores the covers.
std::vector<PhaseKind> phases(const std::vector<came_options>& groups, bool) {
  if (any_group(groups, &came_options::cautious)) {
    return {PhaseKind::cover, PhaseKind::agreement, PhaseKind::apply};
  }
  return {PhaseKind::cover, PhaseKind::apply};
}

ReductionShape reduction(const came_options& o, const Tensor& t, PhaseKind phase) {
  if (phase == PhaseKind::cover && t.set_per_matrix()) return {.rows = 1, .cols = 1};
  if (phase == PhaseKind::agreement) return {.totals = o.cautious};
  return {};
}

}  // namespace

const Descriptor kSm3Descriptor{
    .word = "sm3",
    .factored = true,
    .set_defaults = set_defaults,
    .states = states,
    .phases = phases,
    .reduction = reduction,
};

}  // namespace came::core
