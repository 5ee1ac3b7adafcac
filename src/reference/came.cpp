// CAME, Algorithm 2 of the paper: docs/algorithms.md, equations (5) to (13).
#include "reference/kernels.hpp"
#include "reference/moment.hpp"
#include "reference/update.hpp"

namespace came::reference {
namespace {

Averages instability(const Subject& s) {
  return {s.state("exp_avg_res_row"), s.state("exp_avg_res_col"), s.o.beta3, s.o.eps2, PhaseKind::momentum};
}

/// What divides the column averages of the instability, or the unfactored instability: (12).
double correction(const Subject& s) { return s.o.bias_correction != 0 ? 1 - std::pow(s.o.beta3, s.count) : 1.0; }

/// m <- beta1 m + (1 - beta1) u : (9).  Then the averages of U = (u - m)^2 with the stored m : (10), (11).
void run_momentum(const Subject& s, const Tile& tile, const Partials& out) {
  const Update update(s, s.o.beta2);
  const Moment momentum = Moment::first(s);
  momentum.update(
      tile, [&](int64_t b, int64_t i, int64_t j, double m) { return ema(m, s.o.beta1, update(b, i, j)); },
      [&](int64_t b, int64_t i, int64_t j, double m) {
        if (s.o.cautious != 0) out.agreements() += agrees(m, s.grad(b, i, j));
      });
  const auto residual = [&](int64_t b, int64_t i, int64_t j) {
    const double difference = update(b, i, j) - momentum.get(b, i, j);
    return difference * difference;
  };
  if (s.t.factored) {
    instability(s).accumulate(s, tile, out, residual);
  } else if (const Cells full = s.state("exp_avg_res")) {
    for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
      const int64_t k = s.at(b, i, j);
      full.set(k, ema(full.get(k), s.o.beta3, residual(b, i, j) + s.o.eps2));
    });
  }
}

void finish_momentum(const Subject& s) {
  for (int64_t b = 0; b < s.matrix_scalars_count(); ++b) {
    const double mean = s.t.factored ? instability(s).finish(s, b) : 1.0;
    s.matrix_scalars(b).confidence = std::sqrt(mean * correction(s));
  }
  finish_agreement(s, PhaseKind::momentum);
}

/// theta <- theta - lr wd theta - lr m / sqrt(S) : (11), (13).
void run_apply(const Subject& s, const Tile& tile) {
  const Averages averages = instability(s);
  const Moment momentum = Moment::first(s);
  const Cells full = s.state("exp_avg_res");
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const core::Tensor& t = s.t;
    const double m = momentum.get(b, i, j);
    double direction = m;
    if (t.factored)
      direction *= averages.inverse_root(s, b, i, j) * averages.own_root(s, b) * s.matrix_scalars(b).confidence;
    if (full) direction *= s.matrix_scalars(b).confidence / std::sqrt(full.get(s.at(b, i, j)));
    if (s.o.cautious != 0) direction *= agrees(m, s.grad(b, i, j)) * s.matrix_scalars(b).direction;
    s.move_param(b, i, j, s.lr * s.o.weight_decay, s.lr * direction);
  });
}

void run(const Subject& s, PhaseKind phase, const Tile& tile, const Partials& out) {
  if (phase == PhaseKind::statistics) Update(s, s.o.beta2).run_statistics(tile, out);
  if (phase == PhaseKind::rms) Update(s, s.o.beta2).run_rms(tile, out);
  if (phase == PhaseKind::momentum) run_momentum(s, tile, out);
  if (phase == PhaseKind::apply) run_apply(s, tile);
}

void finish(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::statistics) Update(s, s.o.beta2).finish_statistics();
  if (done == PhaseKind::rms) Update(s, s.o.beta2).finish_rms();
  if (done == PhaseKind::momentum) finish_momentum(s);
}

}  // namespace

const Kernel kCame{finish, run};

}  // namespace came::reference
