// Adafactor: Algorithm 1 of the CAME paper and the options of the original.  docs/algorithms.md, (14) to (17).
#include <algorithm>

#include "reference/kernels.hpp"
#include "reference/moment.hpp"
#include "reference/update.hpp"

namespace came::reference {
namespace {

/// (14)
double beta2(const Subject& s) { return s.o.beta2_decay < 0 ? 1 - std::pow(s.count, s.o.beta2_decay) : s.o.beta2; }

/// (15): the learning rate, relative to the step and to the size of the parameter if so asked.
double rate(const Subject& s) {
  double rate = s.lr;
  if (s.o.relative_step != 0) {
    rate = std::min(s.o.warmup_init != 0 ? 1e-6 * s.count : 1e-2, 1 / std::sqrt(s.count));
  }
  if (s.o.scale_parameter != 0) {
    const int scalar = core::parameter_squares_scalar(s.shape(PhaseKind::statistics));
    rate *= std::max(s.o.eps2, std::sqrt(s.total(PhaseKind::statistics, scalar) / s.elements()));
  }
  return rate;
}

void run_statistics(const Subject& s, const Tile& tile, const Partials& out) {
  Update(s, beta2(s)).run_statistics(tile, out);
  if (s.o.scale_parameter == 0) return;
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const double p = s.param(b, i, j);
    out.parameter_squares() += p * p;
  });
}

/// (16); without momentum the direction is the update itself.
void run_momentum(const Subject& s, const Tile& tile, const Partials* out) {
  const Moment momentum = Moment::first(s);
  if (!momentum) return;
  const Update update(s, beta2(s));
  const double multiplier = s.o.lr_in_momentum != 0 ? rate(s) : 1.0;
  momentum.update(
      tile, [&](int64_t b, int64_t i, int64_t j, double m) { return ema(m, s.o.beta1, multiplier * update(b, i, j)); },
      [&](int64_t b, int64_t i, int64_t j, double m) {
        if (out != nullptr && s.o.cautious != 0) out->agreements() += agrees(m, s.grad(b, i, j));
      });
}

/// (17)
void run_apply(const Subject& s, const Tile& tile) {
  if (s.plan.find(PhaseKind::momentum) < 0) run_momentum(s, tile, nullptr);
  const Update update(s, beta2(s));
  const Moment momentum = Moment::first(s);
  const double alpha = rate(s);
  const double multiplier = momentum && s.o.lr_in_momentum != 0 ? 1.0 : alpha;
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    double direction = momentum ? momentum.get(b, i, j) : update(b, i, j);
    if (s.o.cautious != 0) direction *= agrees(direction, s.grad(b, i, j)) * s.matrix_scalars(b).direction;
    s.move_param(b, i, j, alpha * s.o.weight_decay, multiplier * direction);
  });
}

void run(const Subject& s, PhaseKind phase, const Tile& tile, const Partials& out) {
  if (phase == PhaseKind::statistics) run_statistics(s, tile, out);
  if (phase == PhaseKind::rms) Update(s, beta2(s)).run_rms(tile, out);
  if (phase == PhaseKind::momentum) run_momentum(s, tile, &out);
  if (phase == PhaseKind::apply) run_apply(s, tile);
}

void finish(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::statistics) Update(s, beta2(s)).finish_statistics();
  if (done == PhaseKind::rms) Update(s, beta2(s)).finish_rms();
  if (done == PhaseKind::momentum) finish_agreement(s, PhaseKind::momentum);
}

}  // namespace

const Kernel kAdafactor{finish, run};

}  // namespace came::reference
