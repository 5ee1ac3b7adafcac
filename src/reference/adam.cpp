// Adam and AdamW: docs/algorithms.md, equations (18) to (21).
#include <cmath>

#include "reference/kernels.hpp"
#include "reference/moment.hpp"

namespace came::reference {
namespace {

/// The gradient, for Adam with the L2 term: (18).
double gradient(const Subject& s, int64_t b, int64_t i, int64_t j) {
  const bool l2 = s.plan.algorithm == Algorithm::adam;
  return s.grad(b, i, j) + (l2 ? s.o.weight_decay * s.param(b, i, j) : 0.0);
}

/// (19)
void run_moments(const Subject& s, const Tile& tile, const Partials* out) {
  Moment::second(s).update(
      tile,
      [&](int64_t b, int64_t i, int64_t j, double v) {
        const double g = gradient(s, b, i, j);
        return ema(v, s.o.beta2, g * g);
      },
      [](int64_t, int64_t, int64_t, double) {});
  Moment::first(s).update(
      tile, [&](int64_t b, int64_t i, int64_t j, double m) { return ema(m, s.o.beta1, gradient(s, b, i, j)); },
      [&](int64_t b, int64_t i, int64_t j, double m) {
        if (out != nullptr && s.o.cautious != 0) out->agreements() += agrees(m, gradient(s, b, i, j));
      });
}

/// (20), (21)
void run_apply(const Subject& s, const Tile& tile) {
  const Moment momentum = Moment::first(s);
  const Moment square = Moment::second(s);
  const double correction1 = 1 - std::pow(s.o.beta1, s.count);
  const double correction2 = 1 - std::pow(s.o.beta2, s.count);
  const double decay = s.plan.algorithm == Algorithm::adamw ? s.lr * s.o.weight_decay : 0.0;
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const double m = momentum.get(b, i, j);
    double direction = m / correction1 / (std::sqrt(square.get(b, i, j) / correction2) + s.o.eps);
    if (s.o.cautious != 0) direction *= agrees(m, gradient(s, b, i, j)) * s.matrix_scalars(b).direction;
    s.move_param(b, i, j, decay, s.lr * direction);
  });
}

void run(const Subject& s, PhaseKind phase, const Tile& tile, const Partials& out) {
  if (phase == PhaseKind::moments) run_moments(s, tile, &out);
  if (phase != PhaseKind::apply) return;
  if (s.plan.find(PhaseKind::moments) < 0) run_moments(s, tile, nullptr);
  run_apply(s, tile);
}

void finish(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::moments) finish_agreement(s, PhaseKind::moments);
}

}  // namespace

const Kernel kAdam{finish, run};

}  // namespace came::reference
