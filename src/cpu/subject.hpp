// One tensor of one step as the CPU kernels see it: storages, scalars, the partials of a tile, and what a phase left
// once they are reduced.  Indices b, i, j count what this rank holds.
#pragma once

#include <algorithm>
#include <cmath>

#include "algorithms/averages.hpp"
#include "algorithms/scalars.hpp"
#include "core/dtype.hpp"
#include "core/plan.hpp"
#include "cpu/storage.hpp"

namespace came::cpu {

using core::Owner;
using core::PhaseKind;
using core::Range;
using core::Tensor;
using core::Tile;

// Small loops over vectors of results: inlined, they are compiled for the instruction set of the kernel they are in.
#define CAME_CPU_INLINE inline __attribute__((always_inline))

/// What follows from a reduction, per block of a tensor; kept in the workspace until the step ends.
struct MatrixScalars {
  double update = 0;      ///< Multiplier of the update: root of the mean row average over the clipping ratio.
  double confidence = 0;  ///< Multiplier of the momentum: the same root for the instability, bias-corrected.
  double direction = 0;   ///< Multiplier of the whole direction: cautious rescaling, LAMB's trust ratio.
  double rate = 0;        ///< Adafactor: the learning rate.
};
static_assert(sizeof(MatrixScalars) == core::kMatrixScalars * sizeof(double));

/// Partials of one tile: scalars, vectors over its rows, vectors over its columns.
template <class T>
struct Partials {
  double* scalars;  ///< And totals behind them.
  T* rows;
  T* cols;
  int64_t n;
  int64_t m;
  const core::ReductionShape& shape;

  [[nodiscard]] T* row(int64_t v) const { return rows + v * n; }
  [[nodiscard]] T* col(int64_t v) const { return cols + v * m; }
  [[nodiscard]] double& agreements() const { return scalars[core::agreement_scalar(shape)]; }
  [[nodiscard]] double& parameter_squares() const { return scalars[core::parameter_squares_scalar(shape)]; }
};

enum class Axis { rows, cols };

class Subject {
 public:
  Subject(const core::Plan& plan, const came_step& step, int64_t index, double grad_multiplier);

  const core::Plan& plan;
  const Tensor& t;
  const came_options& o;
  double lr;          ///< Learning rate of the group.
  double count;       ///< Number of this step, from 1.
  double multiplier;  ///< Of the gradient: unscaled, clipped to max_grad_norm, negated by `maximize`.
  double sign;        ///< Of `multiplier`: as good where only signs are compared, and no product with it underflows.
  Storage param;
  Storage grad;
  Storage momentum;
  Storage second_moment;  ///< Of Adam and LAMB.

  /// A state tensor of full precision by name; null if there is none.
  template <class T>
  [[nodiscard]] T* state(const char* name) const {
    return static_cast<T*>(find_state(name).data);
  }

  [[nodiscard]] Span span(int64_t b, int64_t i, int64_t j, int64_t n) const {
    const int64_t row = (t.local.batch.begin + b) * t.view.rows + t.local.rows.begin + i;
    return {b * t.local.rows.count + i, j, static_cast<uint64_t>(row * t.view.cols + t.local.cols.begin + j),
            static_cast<size_t>(n)};
  }
  [[nodiscard]] int64_t row_at(int64_t b, int64_t i) const { return b * t.local.rows.count + i; }
  [[nodiscard]] int64_t col_at(int64_t b, int64_t j) const { return b * t.local.cols.count + j; }
  [[nodiscard]] double elements() const { return static_cast<double>(t.view.elements()); }

  [[nodiscard]] MatrixScalars& matrix_scalars(int64_t b) const { return matrix_scalars_[t.set_per_matrix() ? b : 0]; }

  template <class T>
  [[nodiscard]] Partials<T> partials(PhaseKind phase, const Tile& tile) const {
    const core::ReductionShape& shape = this->shape(phase);
    double* scalars = static_cast<double*>(step_.workspace) + tile.partial;
    T* rows = reinterpret_cast<T*>(scalars + shape.numbers());
    return {scalars, rows, rows + shape.rows * tile.rows.count, tile.rows.count, tile.cols.count, shape};
  }
  /// The number per column that waits in the workspace for all tiles; null where a worker owns the columns.
  template <class T>
  [[nodiscard]] T* column_multipliers(int64_t b) const {
    if (!t.factored || t.owner == Owner::matrix || t.owner == Owner::columns) return nullptr;
    const int64_t doubles = (t.local.cols.count * static_cast<int64_t>(sizeof(T)) + 7) / 8;
    return reinterpret_cast<T*>(static_cast<double*>(step_.workspace) + t.column_multipliers + b * doubles);
  }

  /// Vector v of a phase over rows or columns of local matrix b, reduced; `range` is local.  In f64, in tile order.
  template <class T>
  void reduce(PhaseKind phase, Axis axis, int64_t v, int64_t b, Range range, double* to) const;
  /// A reduced scalar of local matrix b; a total over all matrices, by its number among scalars and totals.
  [[nodiscard]] double scalar(PhaseKind phase, int64_t b, int64_t k) const;
  [[nodiscard]] double total(PhaseKind phase, int64_t k) const;
  [[nodiscard]] const core::ReductionShape& shape(PhaseKind phase) const { return slot(phase).shape; }
  /// Vectors and scalars of local matrix b, all-reduced; sharded tensors only.
  [[nodiscard]] const double* all_reduced(PhaseKind phase, int64_t b) const {
    return slot_data(phase) + b * slot(phase).shape.matrix_size(t.view.rows, t.view.cols);
  }
  /// Writes the tensor's slot of a phase: what the ranks all-reduce.
  void write_slot(PhaseKind phase) const;
  /// Sets the partials of a tile to zero.
  void clear(PhaseKind phase, const Tile& tile) const;

 private:
  [[nodiscard]] Storage find_state(const char* name) const;
  [[nodiscard]] const core::Slot& slot(PhaseKind phase) const { return t.slots[static_cast<size_t>(plan.find(phase))]; }
  [[nodiscard]] double* slot_data(PhaseKind phase) const {
    return static_cast<double*>(step_.reductions) + slot(phase).offset;
  }
  [[nodiscard]] double* totals(PhaseKind phase) const {
    return static_cast<double*>(step_.reductions) + slot(phase).totals;
  }
  [[nodiscard]] Range tiles_of(int64_t b) const {
    if (!t.set_per_matrix() || t.tiles.count == 0) return t.tiles;
    const int64_t each = t.tiles.count / t.local.batch.count;
    return {t.tiles.begin + b * each, each};
  }
  [[nodiscard]] double tile_scalars(Range tiles, int64_t k) const;
  template <class T>
  void reduce_tiles(PhaseKind phase, Axis axis, int64_t v, int64_t b, Range range, double* to) const;
  template <class T>
  void write_matrices_as(PhaseKind phase) const;

  const came_step& step_;
  MatrixScalars* matrix_scalars_;
};

/// Exponential moving average of a statistic with algorithms::rate_of(beta).
template <class T>
CAME_CPU_INLINE void average(T& statistic, T rate, double value) {
  const auto latest = static_cast<T>(value);
  statistic = (algorithms::anchors_value(rate) ? latest : statistic) + rate * (latest - statistic);
}

template <class T>
CAME_CPU_INLINE void Subject::reduce_tiles(PhaseKind phase, Axis axis, int64_t v, int64_t b, Range range,
                                           double* to) const {
  const bool maximum = phase == PhaseKind::cover;
  std::fill_n(to, range.count, 0.0);
  const Range tiles = tiles_of(b);
  for (int64_t k = tiles.begin; k < tiles.begin + tiles.count; ++k) {
    const Tile& tile = plan.tiles[static_cast<size_t>(k)];
    const Range& held = axis == Axis::rows ? tile.rows : tile.cols;
    const int64_t begin = std::max(held.begin, range.begin);
    const int64_t end = std::min(held.begin + held.count, range.begin + range.count);
    if (begin >= end) continue;
    const Partials<T> out = partials<T>(phase, tile);
    const T* from = (axis == Axis::rows ? out.row(v) : out.col(v)) + (begin - held.begin);
    double* into = to + (begin - range.begin);
    for (int64_t x = 0; x < end - begin; ++x) {
      const auto value = static_cast<double>(from[x]);
      into[x] = !maximum ? into[x] + value : value > into[x] || value != value ? value : into[x];
    }
  }
}

template <class T>
CAME_CPU_INLINE void Subject::reduce(PhaseKind phase, Axis axis, int64_t v, int64_t b, Range range, double* to) const {
  if (!t.sharded) return reduce_tiles<T>(phase, axis, v, b, range, to);
  const core::ReductionShape& shape = slot(phase).shape;
  const int64_t skip = axis == Axis::rows ? v * t.view.rows + t.local.rows.begin
                                          : shape.rows * t.view.rows + v * t.view.cols + t.local.cols.begin;
  std::copy_n(all_reduced(phase, b) + skip + range.begin, range.count, to);
}

/// Writes matrix_scalars().direction from the number of agreeing elements that `phase` counted.
void finish_agreement(const Subject& s, PhaseKind phase);

}  // namespace came::cpu
