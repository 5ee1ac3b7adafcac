// What the reference kernels see: one tensor of one step with every element as f64, and the partials of a tile.
// Indices b, i, j count the matrices, rows and columns that this rank holds.
#pragma once

#include "core/dtype.hpp"
#include "core/plan.hpp"

namespace came::reference {

using core::Cells;
using core::Owner;
using core::PhaseKind;
using core::Tile;

/// Partials of one tile: vectors over its rows, over its columns, scalars, totals.
class Partials {
 public:
  Partials(double* data, const core::ReductionShape& shape, const Tile& tile)
      : data_(data), shape_(shape), tile_(tile) {}

  double& row(int64_t v, int64_t i) const { return data_[v * tile_.rows.count + i - tile_.rows.begin]; }
  double& col(int64_t v, int64_t j) const {
    return data_[shape_.rows * tile_.rows.count + v * tile_.cols.count + j - tile_.cols.begin];
  }
  double& scalar(int64_t k) const {
    return data_[shape_.size(tile_.rows.count, tile_.cols.count) - shape_.numbers() + k];
  }
  double& agreements() const { return scalar(core::agreement_scalar(shape_)); }
  double& parameter_squares() const { return scalar(core::parameter_squares_scalar(shape_)); }

 private:
  double* data_;
  const core::ReductionShape& shape_;
  const Tile& tile_;
};

/// What follows from a reduction, per block of a slot; kept in the workspace until the step ends.
struct MatrixScalars {
  double mean_row = 0;    ///< Mean of the row averages of the squared gradient; 1 where a worker owns the matrix.
  double update = 0;      ///< Multiplier of the update: root of mean_row over the clipping ratio.
  double confidence = 0;  ///< Multiplier of the momentum: the root of the same mean of the instability, bias-corrected.
  double direction = 0;   ///< Multiplier of the whole direction: cautious rescaling, LAMB's trust ratio.
};
static_assert(sizeof(MatrixScalars) == core::kMatrixScalars * sizeof(double));

/// One tensor of one step.
class Subject {
 public:
  Subject(const core::Plan& plan, const came_step& step, int64_t index, double grad_multiplier);

  const core::Plan& plan;
  const core::Tensor& t;
  const came_options& o;
  double lr;     ///< Learning rate of the group.
  double count;  ///< Number of this step, from 1.

  /// Gradient as the optimizer sees it: unscaled, clipped to max_grad_norm, negated by `maximize`.
  [[nodiscard]] double grad(int64_t b, int64_t i, int64_t j) const { return grad_.get(at(b, i, j)) * grad_multiplier_; }
  [[nodiscard]] double param(int64_t b, int64_t i, int64_t j) const { return param_.get(at(b, i, j)); }
  /// theta <- theta - decay * theta - move, in one rounding.
  void move_param(int64_t b, int64_t i, int64_t j, double decay, double move) const;

  /// A state tensor by name; false if the tensor has none of that name.
  [[nodiscard]] Cells state(const char* name) const;
  /// Random bits of one element at this step.
  [[nodiscard]] uint32_t random(algorithms::Stream stream, int64_t b, int64_t i, int64_t j) const;

  /// Results of an earlier phase for local matrix b after its reduction; vectors run over the whole matrix.
  [[nodiscard]] const double* rows(PhaseKind phase, int64_t v, int64_t b) const;
  [[nodiscard]] const double* cols(PhaseKind phase, int64_t v, int64_t b) const;
  [[nodiscard]] double scalar(PhaseKind phase, int64_t k, int64_t b) const;
  /// A total over all matrices, by its number among scalars and totals.
  [[nodiscard]] double total(PhaseKind phase, int64_t k) const;
  [[nodiscard]] const core::ReductionShape& shape(PhaseKind phase) const {
    return t.slots[static_cast<size_t>(plan.find(phase))].shape;
  }

  [[nodiscard]] MatrixScalars& matrix_scalars(int64_t b) const;
  /// Number of different matrix_scalars(b): as many as matrices here, or one.
  [[nodiscard]] int64_t matrix_scalars_count() const { return t.set_per_matrix() ? t.local.batch.count : 1; }

  [[nodiscard]] int64_t at(int64_t b, int64_t i, int64_t j) const {
    return (b * t.local.rows.count + i) * t.local.cols.count + j;
  }
  [[nodiscard]] int64_t row_at(int64_t b, int64_t i) const { return b * t.local.rows.count + i; }
  [[nodiscard]] int64_t col_at(int64_t b, int64_t j) const { return b * t.local.cols.count + j; }
  [[nodiscard]] double elements() const { return static_cast<double>(t.view.elements()); }

 private:
  /// What a phase left for local matrix b.
  [[nodiscard]] const double* slot(PhaseKind phase, int64_t b) const;

  const came_step& step_;
  Cells param_;
  Cells grad_;
  double grad_multiplier_;
};

/// Calls f(b, i, j) for every element of a tile, row by row.
template <class F>
void for_each(const Tile& tile, F f) {
  for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
    for (int64_t i = tile.rows.begin; i < tile.rows.begin + tile.rows.count; ++i) {
      for (int64_t j = tile.cols.begin; j < tile.cols.begin + tile.cols.count; ++j) f(b, i, j);
    }
  }
}

/// Exponential moving average.
inline double ema(double old, double beta, double value) { return beta * old + (1 - beta) * value; }

/// Does a direction agree with the gradient?  docs/algorithms.md, equation (3).
inline double agrees(double direction, double gradient) {
  // Not the sign of the product, which may underflow.
  return (direction > 0 && gradient > 0) || (direction < 0 && gradient < 0) ? 1.0 : 0.0;
}

/// Writes matrix_scalars().direction from the number of agreeing elements that `phase` counted.
void finish_agreement(const Subject& s, PhaseKind phase);

}  // namespace came::reference
