// Adam and AdamW: docs/algorithms.md, equations (18) to (21).  8 B/param of state in f32, 2.06 in int8.
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

void set_adam_defaults(came_options& o) {
  o.lr = 1e-3;
  o.beta1 = 0.9;
  o.beta2 = 0.999;
  o.eps = 1e-8;
}

void set_adamw_defaults(came_options& o) {
  set_adam_defaults(o);
  o.weight_decay = 1e-2;
}

std::vector<State> states(const came_options& o, const Tensor& t) {
  std::vector<State> list;
  add_momentum(list, o, t);
  add_second_moment(list, o, t);
  return list;
}

// Without `cautious` one phase does it all.
std::vector<PhaseKind> phases(const std::vector<came_options>& groups, bool) {
  if (any_group(groups, &came_options::cautious)) return {PhaseKind::moments, PhaseKind::apply};
  return {PhaseKind::apply};
}

ReductionShape reduction(const came_options& o, const Tensor&, PhaseKind phase) {
  return {.totals = phase == PhaseKind::moments ? o.cautious : 0};
}

}  // namespace

const Descriptor kAdamDescriptor{
    .word = "adam",
    .set_defaults = set_adam_defaults,
    .states = states,
    .phases = phases,
    .reduction = reduction,
};
const Descriptor kAdamwDescriptor{
    .word = "adamw",
    .set_defaults = set_adamw_defaults,
    .states = states,
    .phases = phases,
    .reduction = reduction,
};

}  // namespace came::core
