// LAMB: docs/algorithms.md, equations (22) to (24).
#include <cmath>

#include "reference/kernels.hpp"
#include "reference/moment.hpp"

namespace came::reference {
namespace {

/// The update before the trust ratio, from the stored moments: (22).
class Direction {
 public:
  explicit Direction(const Subject& s)
      : s_(s),
        momentum_(Moment::first(s)),
        square_(Moment::second(s)),
        correction1_(s.o.bias_correction != 0 ? 1 - std::pow(s.o.beta1, s.count) : 1.0),
        correction2_(s.o.bias_correction != 0 ? 1 - std::pow(s.o.beta2, s.count) : 1.0) {}

  double operator()(int64_t b, int64_t i, int64_t j) const {
    const double root = std::sqrt(square_.get(b, i, j) / correction2_);
    const double adam = momentum_.get(b, i, j) / correction1_ / (root + s_.o.eps);
    const double u = adam + s_.o.weight_decay * s_.param(b, i, j);
    return s_.o.cautious != 0 ? u * agrees(u, s_.grad(b, i, j)) : u;
  }

 private:
  const Subject& s_;
  Moment momentum_;
  Moment square_;
  double correction1_;
  double correction2_;
};

void run_moments(const Subject& s, const Tile& tile, const Partials& out) {
  const Direction direction(s);
  Moment::second(s).update(
      tile,
      [&](int64_t b, int64_t i, int64_t j, double v) {
        const double g = s.grad(b, i, j);
        return ema(v, s.o.beta2, g * g);
      },
      [](int64_t, int64_t, int64_t, double) {});
  Moment::first(s).update(
      tile, [&](int64_t b, int64_t i, int64_t j, double m) { return ema(m, s.o.beta1, s.grad(b, i, j)); },
      [&](int64_t b, int64_t i, int64_t j, double) {
        const double p = s.param(b, i, j);
        const double u = direction(b, i, j);
        out.scalar(core::kLambParameterSquares) += p * p;
        out.scalar(core::kLambUpdateSquares) += u * u;
      });
}

/// The trust ratio: (23).
void finish(const Subject& s, PhaseKind done) {
  if (done != PhaseKind::moments) return;
  const double param_norm = std::sqrt(s.total(PhaseKind::moments, core::kLambParameterSquares));
  const double update_norm = std::sqrt(s.total(PhaseKind::moments, core::kLambUpdateSquares));
  const double ratio = param_norm > 0 && update_norm > 0 ? param_norm / update_norm : 1.0;
  for (int64_t b = 0; b < s.matrix_scalars_count(); ++b) s.matrix_scalars(b).direction = ratio;
}

/// (24)
void run_apply(const Subject& s, const Tile& tile) {
  const Direction direction(s);
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    s.move_param(b, i, j, 0, s.lr * s.matrix_scalars(b).direction * direction(b, i, j));
  });
}

void run(const Subject& s, PhaseKind phase, const Tile& tile, const Partials& out) {
  if (phase == PhaseKind::moments) run_moments(s, tile, out);
  if (phase == PhaseKind::apply) run_apply(s, tile);
}

}  // namespace

const Kernel kLamb{finish, run};

}  // namespace came::reference
