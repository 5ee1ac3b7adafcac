// Equations (5) to (8): where the averages are finished depends on who owns rows, columns, or the matrix.
#include "reference/update.hpp"

namespace came::reference {

double Averages::mean_row(const Subject& s, int64_t b) const {
  if (mean_of != b) {
    mean = 0;
    for (int64_t i = 0; i < s.t.view.rows; ++i) mean += row.get(s.row_at(b, i));
    mean /= static_cast<double>(s.t.view.rows);
    mean_of = b;
  }
  return mean;
}

double Averages::finish(const Subject& s, int64_t b) const {
  if (s.t.owner == Owner::matrix) return 1;  // nothing was left to finish; see own_root
  const core::Local& local = s.t.local;
  const auto n = static_cast<double>(s.t.view.rows);
  const auto m = static_cast<double>(s.t.view.cols);
  if (s.t.owner != Owner::columns) {
    const double* sums = s.cols(phase, core::kSums, b) + local.cols.begin;
    for (int64_t j = 0; j < local.cols.count; ++j) {
      const int64_t k = s.col_at(b, j);
      col.set(k, ema(col.get(k), beta, sums[j] / n + eps));
    }
  }
  if (s.t.owner == Owner::rows) return s.scalar(phase, core::kRowAverages, b) / n;

  const double* sums = s.rows(phase, core::kSums, b);
  double total = 0;
  for (int64_t i = 0; i < local.rows.count; ++i) {
    const int64_t k = s.row_at(b, i);
    row.set(k, ema(row.get(k), beta, sums[local.rows.begin + i] / m + eps));
  }
  if (s.t.owner == Owner::columns) return mean_row(s, b);  // all rows are here
  for (int64_t i = 0; i < s.t.view.rows; ++i) total += sums[i];
  return ema(s.scalar(phase, core::kRowAverages, b) / n, beta, total / (n * m) + eps);
}

void Update::run_statistics(const Tile& tile, const Partials& out) const {
  const auto square = [&](int64_t b, int64_t i, int64_t j) {
    const double g = s_.grad(b, i, j);
    return g * g;
  };
  if (!s_.t.factored) {
    for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
      const int64_t k = s_.at(b, i, j);
      full_.set(k, ema(full_.get(k), averages_.beta, square(b, i, j) + averages_.eps));
      out.scalar(core::kUpdateSquares) += square(b, i, j) / full_.get(k);
    });
    return;
  }
  averages_.accumulate(s_, tile, out, square);
  if (s_.t.owner == Owner::matrix) {
    for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
      const double root = averages_.inverse_root(s_, b, i, j);
      out.scalar(core::kUpdateSquares) += square(b, i, j) * root * root * averages_.mean_row(s_, b);
    });
  }
  // The second vector: squares over the average that is already finished.
  if (s_.t.owner == Owner::rows) {
    for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
      out.col(core::kWeightedSquares, j) += square(b, i, j) / averages_.row.get(s_.row_at(b, i));
    });
  } else if (s_.t.owner == Owner::columns) {
    for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
      out.row(core::kWeightedSquares, i) += square(b, i, j) / averages_.col.get(s_.col_at(b, j));
    });
  }
}

void Update::finish_statistics() const {
  const core::Local& local = s_.t.local;
  for (int64_t b = 0; b < s_.matrix_scalars_count(); ++b) {
    s_.matrix_scalars(b).mean_row = s_.t.factored ? averages_.finish(s_, b) : 1.0;
  }
  if (needs_rms_phase()) return;
  if (!s_.t.set_per_matrix()) {
    clip(s_.total(PhaseKind::statistics, core::kUpdateSquares));
    return;
  }
  // Sum of u^2 = mean(row) * sum over j of (sum over i of g^2 / row_i) / col_j, or with rows and columns swapped.
  const bool by_rows = s_.t.owner == Owner::rows;
  const int64_t length = by_rows ? local.cols.count : local.rows.count;
  double sum_of_squares = 0;
  for (int64_t b = 0; b < local.batch.count; ++b) {
    const double* weighted = by_rows ? s_.cols(PhaseKind::statistics, core::kWeightedSquares, b)
                                     : s_.rows(PhaseKind::statistics, core::kWeightedSquares, b);
    double sum = 0;
    for (int64_t k = 0; k < length; ++k) {
      sum += weighted[k] / (by_rows ? averages_.col.get(s_.col_at(b, k)) : averages_.row.get(s_.row_at(b, k)));
    }
    sum_of_squares += sum * s_.matrix_scalars(b).mean_row;
  }
  clip(sum_of_squares);
}

void Update::run_rms(const Tile& tile, const Partials& out) const {
  if (!needs_rms_phase()) return;
  for_each(tile, [&](int64_t b, int64_t i, int64_t j) {
    const double u = s_.grad(b, i, j) * averages_.inverse_root(s_, b, i, j);
    out.scalar(core::kUpdateSquares) += u * u * s_.matrix_scalars(b).mean_row;
  });
}

void Update::finish_rms() const {
  if (needs_rms_phase()) clip(s_.total(PhaseKind::rms, core::kUpdateSquares));
}

void Update::clip(double sum_of_squares) const {
  const double rms = std::sqrt(sum_of_squares / s_.elements());
  const double ratio = rms > s_.o.clip_threshold ? rms / s_.o.clip_threshold : 1.0;  // a NaN does not clip
  for (int64_t b = 0; b < s_.matrix_scalars_count(); ++b) {
    s_.matrix_scalars(b).update = std::sqrt(s_.matrix_scalars(b).mean_row) / ratio;
  }
}

}  // namespace came::reference
