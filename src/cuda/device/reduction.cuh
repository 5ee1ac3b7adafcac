// What follows from the partials of all tiles: averages of row and column means, their roots, slots for other
// ranks.  Done by the block that comes last to a matrix, or, once ranks have reduced, by a kernel of its own.
// docs/algorithms.md, equations (5), (6), (11).
#pragma once

#include "cuda/device/panel.cuh"

namespace came::cuda {

/// Where the vectors of tiles begin; looked up once, by all threads together.
template <class T>
struct Runs {
  static constexpr int kMost = 128;
  struct Run {
    const T* sums;
    int64_t begin, end, next;
  } run[kMost];
};
template <class T>
__device__ inline Runs<T>& runs_of() {
  __shared__ Runs<T> runs;
  return runs;
}

/// for_columns() where tiles have them, `Width` side by side in a thread.
template <class Op, int Width, int Threads, class T, class F>
__device__ inline void for_columns_of_tiles(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b,
                                            const F& f) {
  const TensorTable& t = s.t;
  const bool two = s.slot(phase).cols > 1;
  constexpr int kBatch = Runs<T>::kMost;
  auto& runs = runs_of<T>().run;
  const Range range = s.tiles_of(b);
  const bool halved = s.a.phase_kind == PhaseKind::momentum;
  for (int64_t first = 0; first < t.cols; first += Threads * Width) {
    const int64_t j = first + team.rank * Width;
    double value[Width] = {};
    double more[Width] = {};
    for (int64_t batch = 0; batch < range.count; batch += kBatch) {
      const int count = static_cast<int>(range.count - batch < kBatch ? range.count - batch : kBatch);
      if (first == 0 || range.count > kBatch) {
        team.sync();
        for (int k = team.rank; k < count; k += Threads) {
          const Part& tile = s.a.tiles[range.begin + batch + k];
          runs[k] = {s.cols(tile, phase, core::kSums), tile.col, tile.col + tile.cols,
                     two || (halved && tile.halves > 1) ? tile.cols : 0};
        }
        team.sync();
      }
      // Eight tiles at a time: their numbers come together, and are added in order.
      constexpr int kTogether = 8;
      using Several = Vector<T, Width>;
      for (int k = 0; k < count; k += kTogether) {
        Several one[kTogether];
        Several other[kTogether];
#pragma unroll
        for (int x = 0; x < kTogether; ++x) {
          const auto& run = runs[k + x < count ? k + x : k];
          const bool held = k + x < count && j >= run.begin && j < run.end;
          const auto* sums = reinterpret_cast<const Several*>(run.sums + (j - run.begin));
          one[x] = held ? *sums : Several{};
          sums = reinterpret_cast<const Several*>(run.sums + (j - run.begin + run.next));
          other[x] = held && run.next != 0 ? *sums : Several{};
        }
#pragma unroll
        for (int x = 0; x < kTogether; ++x) {
#pragma unroll
          for (int n = 0; n < Width; ++n) {
            value[n] = Op::of(static_cast<double>(one[x].v[n]), value[n]);
            double& second = two ? more[n] : value[n];
            second = Op::of(static_cast<double>(other[x].v[n]), second);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < Width; ++n) {
      if (j + n < t.cols) f(j + n, value[n], more[n]);
    }
  }
}

/// Calls f(j, value, more) for the columns of matrix b with the sums of a phase and, if it has them, the weighted:
/// partials of its tiles, reduced in f64 in tile order, or as the ranks have reduced them.
template <class Op, int Threads, class T, class F>
__device__ inline void for_columns(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b, bool tiles,
                                   const F& f) {
  const TensorTable& t = s.t;
  if (!tiles) {
    const bool two = s.slot(phase).cols > 1;
    const double* all = s.reduced(phase, b) + s.slot(phase).rows * t.whole_rows + t.first_col;
    for (int64_t j = team.rank; j < t.cols; j += Threads) f(j, all[j], two ? all[t.whole_cols + j] : 0.0);
  } else if (sizeof(T) == sizeof(float) && t.owner == Owner::rows && s.slot(phase).rows == 0 && t.cols % 2 == 0) {
    for_columns_of_tiles<Op, 2>(team, s, phase, b, f);  // of whole rows, from where a number of f64 could begin
  } else {
    for_columns_of_tiles<Op, 1>(team, s, phase, b, f);
  }
}

/// Vector v of a phase for row i of matrix b likewise.
template <class Op, class T>
__device__ inline double row_result(const Subject<T>& s, int phase, int64_t b, int v, int64_t i, bool tiles) {
  const TensorTable& t = s.t;
  if (!tiles) return s.reduced(phase, b)[v * t.whole_rows + t.first_row + i];
  // Tiles of a row stand side by side, and all rows of tiles but the last are equally high.
  const Range range = s.tiles_of(b);
  const Part& first = s.a.tiles[range.begin];
  const int64_t across = (t.cols + first.cols - 1) / first.cols;
  double total = 0;
  for (int64_t k = 0; k < across; ++k) {
    const Part& tile = s.a.tiles[range.begin + i / first.rows * across + k];
    total = Op::of(static_cast<double>(s.rows(tile, v)[i - tile.row]), total);
  }
  return total;
}

/// Scalar k of matrix b; a total over all matrices, by its number among scalars and totals.
template <int Threads, class T>
__device__ inline double scalar_result(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b, int k,
                                       bool tiles) {
  const SlotTable& slot = s.slot(phase);
  if (!tiles) return s.reduced(phase, b)[slot.rows * s.t.whole_rows + slot.cols * s.t.whole_cols + k];
  const Range range = s.tiles_of(b);
  return team.sum_of(range.count, [&](int64_t x) { return s.scalars(s.a.tiles[range.begin + x])[k]; });
}

template <int Threads, class T>
__device__ inline double scalar_total(const Team<Threads>& team, const Subject<T>& s, int phase, int k, bool tiles) {
  if (!tiles) return s.totals(phase)[k - s.slot(phase).scalars];
  return team.sum_of(s.t.sets * s.t.tiles, [&](int64_t x) { return s.scalars(s.a.tiles[s.t.tile + x])[k]; });
}

/// Moving averages of the means over rows and over columns of a non-negative matrix.
template <class T>
struct Averages {
  const Subject<T>& s;
  T* row;
  T* col;
  double beta;
  double eps;

  [[nodiscard]] __device__ T rate() const { return static_cast<T>(algorithms::rate_of(beta)); }
  /// Takes the sum over a row into its average; returns it.
  __device__ T average_row(int64_t b, int64_t i, double sum) const {
    T& cell = row[s.row_at(b, i)];
    return cell = blend(cell, rate(), static_cast<T>(sum / static_cast<double>(s.t.whole_cols) + eps));
  }
  __device__ T average_col(int64_t b, int64_t j, double sum) const {
    T& cell = col[s.col_at(b, j)];
    return cell = blend(cell, rate(), static_cast<T>(sum / static_cast<double>(s.t.whole_rows) + eps));
  }
  /// Two roots instead of one of r_i c_j: the product of two tiny averages would be 0.
  [[nodiscard]] __device__ T col_root(int64_t b, int64_t j) const {
    if (const T* waiting = s.column_multipliers(b); waiting != nullptr) return waiting[j];
    return T{1} / sqrt(col[s.col_at(b, j)]);
  }
  /// multiplier / sqrt(r_i)
  [[nodiscard]] __device__ T row_root(int64_t b, int64_t i, double multiplier) const {
    return algorithms::row_multiplier_as<T>(multiplier / sqrt(static_cast<double>(row[s.row_at(b, i)])));
  }
  template <int Threads>
  [[nodiscard]] __device__ double mean_of_rows(const Team<Threads>& team, int64_t b) const {
    const T* rows = row + s.row_at(b, 0);
    const double sum = team.sum_of(s.t.rows, [&](int64_t i) { return static_cast<double>(rows[i]); });
    return sum / static_cast<double>(s.t.whole_rows);
  }
  /// Root of the mean of the row averages, where a block owns the matrix; elsewhere it is part of the matrix scalars.
  template <int Threads>
  [[nodiscard]] __device__ double own_root(const Team<Threads>& team, int64_t b) const {
    return s.t.owner == Owner::matrix ? sqrt(mean_of_rows(team, b)) : 1.0;
  }

  /// Finishes the averages of matrix b that no block owned, and the column multipliers that later ones need.  Returns
  /// the mean of the row averages; `weighted` becomes what the weighted squares add up to over the averages they belong
  /// to.
  template <int Threads>
  CAME_ROUTE double finish(const Team<Threads>& team, int phase, int64_t b, bool tiles, double* weighted) const {
    const TensorTable& t = s.t;
    if (t.owner == Owner::matrix) return 1;
    double over = 0;
    if (T* multipliers = s.column_multipliers(b); multipliers != nullptr) {
      for_columns<Add>(team, s, phase, b, tiles, [&](int64_t j, double sum, double more) {
        const T c = average_col(b, j, sum);
        multipliers[j] = T{1} / sqrt(c);
        if (t.owner == Owner::rows) over += more / static_cast<double>(c);
      });
    }
    if (t.owner != Owner::rows) {
      for (int64_t i = team.rank; i < t.rows; i += Threads) {
        const T r = average_row(b, i, row_result<Add>(s, phase, b, core::kSums, i, tiles));
        if (weighted != nullptr && t.owner == Owner::columns) {
          over += row_result<Add>(s, phase, b, core::kWeightedSquares, i, tiles) / static_cast<double>(r);
        }
      }
    }
    if (weighted != nullptr) *weighted = team.sum(over);
    team.sync();
    if (t.owner == Owner::columns || (t.owner == Owner::rows && tiles)) return mean_of_rows(team, b);
    const double n = static_cast<double>(t.whole_rows);
    const double scalar = scalar_result(team, s, phase, b, core::kRowAverages, tiles);
    if (t.owner == Owner::rows) return scalar / n;
    const double* all = s.reduced(phase, b);
    const double total = team.sum_of(t.whole_rows, [&](int64_t i) { return all[i]; });
    return beta * scalar / n + (1 - beta) * (total / (n * static_cast<double>(t.whole_cols)) + eps);
  }

  /// What the ranks add up to the sum of all row averages: of rows that are held in part, the same part.
  template <int Threads>
  [[nodiscard]] __device__ double share_of_rows(const Team<Threads>& team, int64_t b) const {
    const double share =
        s.t.owner == Owner::none ? static_cast<double>(s.t.cols) / static_cast<double>(s.t.whole_cols) : 1.0;
    const T* rows = row + s.row_at(b, 0);
    return team.sum_of(s.t.rows, [&](int64_t i) { return static_cast<double>(rows[i]) * share; });
  }
};

/// Has this phase a count of `cautious`?  That one is kept per tensor, as a whole number.
template <class T>
__device__ inline bool counts_agreement(const Subject<T>& s) {
  const PhaseKind kind = s.a.phase_kind;
  return s.o.cautious != 0 && s.a.algorithm != Algorithm::lamb &&
         (kind == PhaseKind::momentum || kind == PhaseKind::moments || kind == PhaseKind::agreement);
}

/// Writes what a phase leaves of matrix b to its slot.  `averages` are those whose rows kRowAverages adds up.
template <class Op, int Threads, class T>
CAME_ROUTE void write_slot(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b,
                           const Averages<T>* averages) {
  const TensorTable& t = s.t;
  const SlotTable& slot = s.slot(phase);
  double* to = s.reduced(phase, b);
  for (int v = 0; v < slot.rows; ++v, to += t.whole_rows) {
    for (int64_t i = team.rank; i < t.rows; i += Threads) to[t.first_row + i] = row_result<Op>(s, phase, b, v, i, true);
  }
  if (slot.cols > 0) {
    for_columns<Op>(team, s, phase, b, true, [&](int64_t j, double value, double more) {
      to[t.first_col + j] = value;
      if (slot.cols > 1) to[t.whole_cols + t.first_col + j] = more;
    });
    to += slot.cols * t.whole_cols;
  }
  const bool of_rows = averages != nullptr && t.per_matrix && t.owner != Owner::columns;
  for (int k = 0; k < slot.scalars; ++k) {
    const double value = of_rows && k == core::kRowAverages ? averages->share_of_rows(team, b)
                                                            : scalar_result(team, s, phase, b, k, true);
    if (team.rank == 0) to[k] = value;
  }
}

/// Writes the totals of a tensor to its slot.
template <int Threads, class T>
CAME_ROUTE void write_totals(const Team<Threads>& team, const Subject<T>& s, int phase) {
  const SlotTable& slot = s.slot(phase);
  for (int k = slot.scalars; k < slot.scalars + slot.totals; ++k) {
    const bool counted = counts_agreement(s) && k == core::agreement_scalar(slot);
    const double value = counted ? static_cast<double>(s.a.agreements[s.index]) : scalar_total(team, s, phase, k, true);
    if (team.rank == 0) s.totals(phase)[k - slot.scalars] = value;
  }
}

/// Counts a block that has done its part of matrix b.  The last one of a matrix calls matrix(b), the last one of a
/// tensor then tensor().  For a sharded tensor it writes slots instead, and the rest waits for the ranks.
template <class Op, int Threads, class T, class Matrix, class Whole>
__device__ inline void arrive(const Team<Threads>& team, const Subject<T>& s, int64_t b, const Averages<T>* averages,
                              const Matrix& matrix, const Whole& tensor) {
  const int phase = s.a.phase;
  const int64_t own = s.t.first_set + (s.t.per_matrix ? b : 0);
  if (!arrives_last(team, s.a.arrivals + own, static_cast<unsigned>(s.t.units[phase]))) return;
  if (s.t.sharded) {
    write_slot<Op>(team, s, phase, b, averages);
  } else {
    matrix(b);
  }
  if (s.t.sets > 1 && !arrives_last(team, s.a.arrivals + s.a.set_count + s.index, static_cast<unsigned>(s.t.sets))) {
    return;
  }
  if (!s.t.sharded) return tensor();
  write_totals(team, s, phase);
}

/// Writes matrix_scalars().direction from the number of agreeing elements : (3)
template <int Threads, class T>
CAME_ROUTE void finish_agreement(const Team<Threads>& team, const Subject<T>& s, int phase, bool tiles) {
  double multiplier = 1;
  if (s.o.cautious != 0) {
    const double count = tiles ? static_cast<double>(s.a.agreements[s.index])
                               : scalar_total(team, s, phase, core::agreement_scalar(s.slot(phase)), false);
    multiplier = algorithms::cautious_multiplier(s.t.elements, count);
  }
  for (int64_t b = team.rank; b < s.t.sets; b += Threads) s.matrix_scalars(b).direction = multiplier;
}

/// Counts agreeing elements: whole numbers add up to the same in any order.
template <int Threads, class T>
CAME_ROUTE void count_agreement(const Team<Threads>& team, const Subject<T>& s, double count) {
  const double total = team.sum(count);
  if (team.rank == 0) atomicAdd(s.a.agreements + s.index, static_cast<unsigned long long>(total));
}

}  // namespace came::cuda
