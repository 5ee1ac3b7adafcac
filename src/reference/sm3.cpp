// SM3-II over the rows and columns of a matrix: docs/algorithms.md, equations (25) to (27).
#include <algorithm>
#include <array>
#include <cmath>

#include "reference/kernels.hpp"
#include "reference/moment.hpp"

namespace came::reference {
namespace {

/// The smaller; NaN if either is.
double smaller(double a, double b) { return a < b || std::isnan(a) ? a : b; }

/// The larger; NaN if either is.
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }

void apply_element(const Subject& s, int64_t b, int64_t i, int64_t j, double direction) {
  s.move_param(b, i, j, s.lr * s.o.weight_decay, s.lr * direction);
}

/// (25) and, unless the direction waits to be rescaled, (27).  Hands every cover to keep(i, j, cover).
template <class Keep>
void run_elements(const Subject& s, const Tile& tile, Keep keep) {
  const Cells row = s.state("accumulator_row");
  const Cells col = s.state("accumulator_col");
  const Cells full = s.state("accumulator");
  const auto direction = [&](int64_t b, int64_t i, int64_t j) {
    const int64_t k = s.at(b, i, j);
    const double g = s.grad(b, i, j);
    const double least = s.t.factored ? smaller(row.get(s.row_at(b, i)), col.get(s.col_at(b, j))) : full.get(k);
    const double cover = least + g * g;
    if (full) full.set(k, cover);
    keep(i, j, cover);
    return g / std::sqrt(cover + s.o.eps);
  };
  if (const Moment momentum = Moment::first(s); momentum) {
    momentum.update(
        tile, [&](int64_t b, int64_t i, int64_t j, double m) { return ema(m, s.o.beta1, direction(b, i, j)); },
        [&](int64_t b, int64_t i, int64_t j, double m) {
          if (s.o.cautious == 0) apply_element(s, b, i, j, m);
        });
  } else {
    for_each(tile, [&](int64_t b, int64_t i, int64_t j) { apply_element(s, b, i, j, direction(b, i, j)); });
  }
}

/// The covers of the next step are the maxima of this one: (26).
void store_covers(const Subject& s, int64_t b, const double* rows, const double* cols) {
  const Cells row = s.state("accumulator_row");
  const Cells col = s.state("accumulator_col");
  for (int64_t i = 0; i < s.t.local.rows.count; ++i) row.set(s.row_at(b, i), rows[i]);
  for (int64_t j = 0; j < s.t.local.cols.count; ++j) col.set(s.col_at(b, j), cols[j]);
}

void run_cover(const Subject& s, const Tile& tile, const Partials& out) {
  if (!s.t.factored) {
    run_elements(s, tile, [](int64_t, int64_t, double) {});
  } else if (s.t.owner != Owner::matrix) {
    run_elements(s, tile, [&](int64_t i, int64_t j, double cover) {
      out.row(core::kCovers, i) = larger(out.row(core::kCovers, i), cover);
      out.col(core::kCovers, j) = larger(out.col(core::kCovers, j), cover);
    });
  } else {
    for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
      std::array<double, core::kSmallMatrix + 1> maxima;  // rows, then columns
      std::fill_n(maxima.begin(), s.t.view.rows + s.t.view.cols, 0.0);
      double* rows = maxima.data();
      double* cols = rows + s.t.view.rows;
      Tile matrix = tile;
      matrix.batch = {b, 1};
      run_elements(s, matrix, [&](int64_t i, int64_t j, double cover) {
        rows[i] = larger(rows[i], cover);
        cols[j] = larger(cols[j], cover);
      });
      store_covers(s, b, rows, cols);
    }
  }
}

void run(const Subject& s, PhaseKind phase, const Tile& tile, const Partials& out) {
  if (phase == PhaseKind::cover) run_cover(s, tile, out);
  if (phase == PhaseKind::cover || s.o.cautious == 0) return;
  const Moment momentum = Moment::first(s);
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const double m = momentum.get(b, i, j);
    const double agreeing = agrees(m, s.grad(b, i, j));
    if (phase == PhaseKind::agreement) out.agreements() += agreeing;
    if (phase == PhaseKind::apply) apply_element(s, b, i, j, m * agreeing * s.matrix_scalars(b).direction);
  });
}

void finish_cover(const Subject& s) {
  if (!s.t.set_per_matrix()) return;  // stored already
  for (int64_t b = 0; b < s.t.local.batch.count; ++b) {
    store_covers(s, b, s.rows(PhaseKind::cover, core::kCovers, b) + s.t.local.rows.begin,
                 s.cols(PhaseKind::cover, core::kCovers, b) + s.t.local.cols.begin);
  }
}

void finish(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::cover) finish_cover(s);
  if (done == PhaseKind::agreement) finish_agreement(s, PhaseKind::agreement);
}

}  // namespace

const Kernel kSm3{finish, run};

}  // namespace came::reference
