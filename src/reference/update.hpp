// The clipped update shared by CAME and Adafactor, and the factored averages it rests on.
// docs/algorithms.md: averages (5), (6); update (7); clipping (8).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/subject.hpp"

namespace came::reference {

/// Moving averages of the row and column means of a non-negative matrix x.
struct Averages {
  Cells row;
  Cells col;
  double beta;
  double eps;
  PhaseKind phase;               ///< The pass that reads x and leaves its sums.
  mutable int64_t mean_of = -1;  ///< The matrix whose mean_row was asked for last: every element asks.
  mutable double mean = 0;

  /// Adds the tile's x(b, i, j) to the sums; averages over what the worker owns are finished at once.
  template <class X>
  void accumulate(const Subject& s, const Tile& tile, const Partials& out, X x) const;

  /// The same for a small matrix: all its averages are finished at once.
  template <class X>
  void accumulate_matrix(const Subject& s, int64_t b, X x) const;

  /// Finishes the averages of matrix b from the reduced sums; returns the mean of the row averages.
  [[nodiscard]] double finish(const Subject& s, int64_t b) const;

  /// Mean of the row averages of matrix b, where they are all here.
  [[nodiscard]] double mean_row(const Subject& s, int64_t b) const;

  /// sqrt(mean_row), where the worker owns the matrix; elsewhere the matrix scalars have it.
  [[nodiscard]] double own_root(const Subject& s, int64_t b) const {
    return s.t.factored && s.t.owner == Owner::matrix ? std::sqrt(mean_row(s, b)) : 1.0;
  }

  /// 1 / sqrt(row_i * col_j).
  [[nodiscard]] double inverse_root(const Subject& s, int64_t b, int64_t i, int64_t j) const {
    // Two roots: the product of two tiny averages would be 0.
    return 1 / (std::sqrt(row.get(s.row_at(b, i))) * std::sqrt(col.get(s.col_at(b, j))));
  }
};

/// The update: gradient over the root of its second moment, clipped to an RMS of d.
class Update {
 public:
  Update(const Subject& s, double beta2)
      : s_(s),
        averages_{s.state("exp_avg_sq_row"), s.state("exp_avg_sq_col"), beta2, s.o.eps1, PhaseKind::statistics},
        full_(s.state("exp_avg_sq")) {}

  void run_statistics(const Tile& tile, const Partials& out) const;
  void finish_statistics() const;
  void run_rms(const Tile& tile, const Partials& out) const;
  void finish_rms() const;

  /// The clipped update of one element, once both are finished.
  [[nodiscard]] double operator()(int64_t b, int64_t i, int64_t j) const {
    const double root = s_.t.factored ? averages_.inverse_root(s_, b, i, j) : 1 / std::sqrt(full_.get(s_.at(b, i, j)));
    return s_.grad(b, i, j) * root * averages_.own_root(s_, b) * s_.matrix_scalars(b).update;
  }

 private:
  [[nodiscard]] bool needs_rms_phase() const { return s_.t.factored && s_.t.owner == Owner::none; }
  void clip(double sum_of_squares) const;

  const Subject& s_;
  Averages averages_;
  Cells full_;
};

template <class X>
void Averages::accumulate_matrix(const Subject& s, int64_t b, X x) const {
  const int64_t n = s.t.view.rows;
  const int64_t m = s.t.view.cols;
  std::array<double, core::kSmallMatrix + 1> sums;  // n + m of them: at most n * m + 1
  std::fill_n(sums.begin(), n + m, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      const double value = x(b, i, j);
      sums[static_cast<size_t>(i)] += value;
      sums[static_cast<size_t>(n + j)] += value;
    }
  }
  const auto average = [&](const Cells& cells, int64_t k, double sum, int64_t length) {
    cells.set(k, ema(cells.get(k), beta, sum / static_cast<double>(length) + eps));
  };
  for (int64_t i = 0; i < n; ++i) average(row, s.row_at(b, i), sums[static_cast<size_t>(i)], m);
  for (int64_t j = 0; j < m; ++j) average(col, s.col_at(b, j), sums[static_cast<size_t>(n + j)], n);
}

template <class X>
void Averages::accumulate(const Subject& s, const Tile& tile, const Partials& out, X x) const {
  const int64_t b = tile.batch.begin;  // the only one, unless the worker owns whole matrices
  const auto [i0, n] = tile.rows;
  const auto [j0, m] = tile.cols;
  const auto whole_rows = static_cast<double>(s.t.view.rows);
  const auto whole_cols = static_cast<double>(s.t.view.cols);
  switch (s.t.owner) {
    case Owner::rows:
      for (int64_t i = i0; i < i0 + n; ++i) {
        double sum = 0;
        for (int64_t j = j0; j < j0 + m; ++j) {
          const double value = x(b, i, j);
          sum += value;
          out.col(core::kSums, j) += value;
        }
        const int64_t k = s.row_at(b, i);
        row.set(k, ema(row.get(k), beta, sum / whole_cols + eps));
        out.scalar(core::kRowAverages) += row.get(k);
      }
      break;
    case Owner::columns:
      for (int64_t j = j0; j < j0 + m; ++j) {
        double sum = 0;
        for (int64_t i = i0; i < i0 + n; ++i) {
          const double value = x(b, i, j);
          sum += value;
          out.row(core::kSums, i) += value;
        }
        const int64_t k = s.col_at(b, j);
        col.set(k, ema(col.get(k), beta, sum / whole_rows + eps));
      }
      break;
    case Owner::matrix:
      for (int64_t whole = b; whole < b + tile.batch.count; ++whole) accumulate_matrix(s, whole, x);
      break;
    case Owner::none:
      for (int64_t i = i0; i < i0 + n; ++i) {
        for (int64_t j = j0; j < j0 + m; ++j) {
          const double value = x(b, i, j);
          out.row(core::kSums, i) += value;
          out.col(core::kSums, j) += value;
        }
        // Every holder of a part of row i adds its share of the old average: together, the whole.
        out.scalar(core::kRowAverages) += row.get(s.row_at(b, i)) * static_cast<double>(m) / whole_cols;
      }
      break;
  }
}

}  // namespace came::reference
