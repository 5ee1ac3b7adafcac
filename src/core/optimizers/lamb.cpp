// LAMB: docs/algorithms.md, equations (22) to (24).  8 B/param of state in f32, 2.06 in int8.
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

void set_defaults(came_options& o) {
  o.lr = 1e-3;
  o.beta1 = 0.9;
  o.beta2 = 0.999;
  o.eps = 1e-6;
  o.weight_decay = 1e-2;
  o.bias_correction = 1;
}

std::vector<State> states(const came_options& o, const Tensor& t) {
  std::vector<State> list;
  add_momentum(list, o, t);
  add_second_moment(list, o, t);
  return list;
}

std::vector<PhaseKind> phases(const std::vector<came_options>&, bool) { return {PhaseKind::moments, PhaseKind::apply}; }

ReductionShape reduction(const came_options&, const Tensor&, PhaseKind phase) {
  return {.totals = phase == PhaseKind::moments ? 2 : 0};
}

}  // namespace

const Descriptor kLambDescriptor{
    .word = "lamb",
    .set_defaults = set_defaults,
    .states = states,
    .phases = phases,
    .reduction = reduction,
};

}  // namespace came::core
