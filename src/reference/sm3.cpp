// SM3-II over the rows and columns of a matrix: docs/algorithms.md, equations (25) to (27).
#include <algorithm>
#include <cmath>

#include "reference/kernel.hpp"

namespace came::reference {
namespace {

/// The larger; NaN if either is.
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }

void apply_element(const Subject& s, int64_t b, int64_t i, int64_t j, double direction) {
  s.move_param(b, i, j, s.lr * s.o.weight_decay, s.lr * direction);
}

/// (25), (26) and, unless the direction waits to be rescaled, (27).
void run_cover(const Subject& s, const Tile& tile, const Block& out) {
  const Cells row = s.state("accumulator_row");
  const Cells col = s.state("accumulator_col");
  const Cells full = s.state("accumulator");
  const Cells momentum = s.state("exp_avg");
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const int64_t k = s.at(b, i, j);
    const double g = s.grad(b, i, j);
    double cover = 0;
    if (s.t.factored) {
      cover = std::min(row.get(s.row_at(b, i)), col.get(s.col_at(b, j))) + g * g;
      out.row(0, i) = larger(out.row(0, i), cover);
      out.col(0, j) = larger(out.col(0, j), cover);
    } else {
      cover = full.get(k) + g * g;
      full.set(k, cover);
    }
    double direction = g / std::sqrt(cover + s.o.eps);
    if (momentum) direction = s.store_momentum(momentum, b, i, j, ema(momentum.get(k), s.o.beta1, direction));
    if (s.o.cautious == 0) apply_element(s, b, i, j, direction);
  });
}

void run(const Subject& s, PhaseKind phase, const Tile& tile, const Block& out) {
  if (phase == PhaseKind::cover) run_cover(s, tile, out);
  if (s.o.cautious == 0) return;
  const Cells momentum = s.state("exp_avg");
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const double m = momentum.get(s.at(b, i, j));
    const double agreeing = agrees(m, s.grad(b, i, j));
    if (phase == PhaseKind::agreement) out.last_scalar() += agreeing;
    if (phase == PhaseKind::apply) apply_element(s, b, i, j, m * agreeing * s.derived(b).direction);
  });
}

/// The covers of the next step are the reduced maxima of this one.
void finish_cover(const Subject& s) {
  if (!s.t.factored) return;
  const Cells row = s.state("accumulator_row");
  const Cells col = s.state("accumulator_col");
  for (int64_t b = 0; b < s.t.local.batch.count; ++b) {
    const double* rows = s.rows(PhaseKind::cover, 0, b) + s.t.local.rows.begin;
    const double* cols = s.cols(PhaseKind::cover, 0, b) + s.t.local.cols.begin;
    for (int64_t i = 0; i < s.t.local.rows.count; ++i) row.set(s.row_at(b, i), rows[i]);
    for (int64_t j = 0; j < s.t.local.cols.count; ++j) col.set(s.col_at(b, j), cols[j]);
  }
}

void finish(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::cover) finish_cover(s);
  if (done == PhaseKind::agreement) finish_agreement(s, PhaseKind::agreement);
}

}  // namespace

const Kernel kSm3{finish, run};

}  // namespace came::reference
