// Moving averages of the row and column means of a non-negative matrix x, and the reciprocal roots that follow from
// them.  docs/algorithms.md, equations (5), (6), (11).
#if defined(CAME_CPU_AVERAGES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_AVERAGES_INL
#undef CAME_CPU_AVERAGES_INL
#else
#define CAME_CPU_AVERAGES_INL
#endif

#include "cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {

inline constexpr auto kSmall = static_cast<size_t>(core::kSmallMatrix);

/// Part of a matrix in which a worker takes rows from first to last: a tile, a small matrix, or a chunk of the columns
/// it owns.  `sums` has room for what is added up over its rows, column by column.
template <class T>
struct Panel {
  int64_t b;
  Range rows;
  Range cols;
  T* sums;

  [[nodiscard]] T* sums_at(int64_t j) const { return sums + (j - cols.begin); }
};

template <class T>
struct Averages {
  const Subject& s;
  T* row;
  T* col;
  double beta;
  double eps;
  PhaseKind phase;  ///< The pass that reads x and leaves its sums.

  /// Takes sum = sum over j of x_ij into the average of row i.
  HWY_INLINE void average_row(int64_t b, int64_t i, double sum) const {
    average(row[s.row_at(b, i)], static_cast<T>(algorithms::rate_of(beta)),
            sum / static_cast<double>(s.t.view.cols) + eps);
  }
  template <class Sums>
  HWY_INLINE void average_cols(int64_t b, Range cols, const Sums* sums) const {
    T* c = col + s.col_at(b, cols.begin);
    const double share = 1 / static_cast<double>(s.t.view.rows);
    const auto rate = static_cast<T>(algorithms::rate_of(beta));
    const double plus = eps;
    for (int64_t k = 0; k < cols.count; ++k) average(c[k], rate, static_cast<double>(sums[k]) * share + plus);
  }

  /// 1 / sqrt(c_j).  Two roots instead of one of r_i c_j: the product of two tiny averages would be 0.
  HWY_INLINE void inverse_roots(int64_t b, Range cols, T* to) const {
    const T* c = col + s.col_at(b, cols.begin);
    for (int64_t k = 0; k < cols.count; ++k) to[k] = 1 / std::sqrt(c[k]);
  }
  HWY_INLINE double inverse_root(int64_t b, int64_t i) const {
    return 1 / std::sqrt(static_cast<double>(row[s.row_at(b, i)]));
  }
  /// Calls f(i, multiplier / sqrt(r_i)) for a range of rows.  The roots of many rows are taken at once.
  template <class F>
  HWY_INLINE void for_rows(int64_t b, Range rows, double multiplier, const F& f) const {
    for_chunks(rows, [&](int64_t first, int64_t n) {
      HWY_ALIGN T multipliers[kChunk];
      const T* r = row + s.row_at(b, first);
      for (int64_t k = 0; k < n; ++k)
        multipliers[k] = algorithms::row_multiplier_as<T>(multiplier / std::sqrt(static_cast<double>(r[k])));
      for (int64_t k = 0; k < n; ++k) f(first + k, multipliers[k]);
    });
  }

  /// Sum of the row averages of matrix b.
  [[nodiscard]] HWY_INLINE double sum_rows(int64_t b, Range rows) const {
    double sum = 0;
    for (int64_t i = rows.begin; i < rows.begin + rows.count; ++i) sum += static_cast<double>(row[s.row_at(b, i)]);
    return sum;
  }
  /// Root of the mean of the row averages, where a worker owns the matrix; elsewhere the matrix scalars have it.
  [[nodiscard]] HWY_INLINE double own_root(int64_t b) const {
    if (s.t.owner != Owner::matrix) return 1;
    return std::sqrt(sum_rows(b, {0, s.t.view.rows}) / static_cast<double>(s.t.view.rows));
  }

  /// Finishes the averages of matrix b that no worker owned, and the column multipliers that later tiles need; returns
  /// the mean of the row averages.
  [[nodiscard]] inline double finish(int64_t b) const {
    const core::Local& local = s.t.local;
    const auto n = static_cast<double>(s.t.view.rows);
    double sums[kChunk];
    if (s.t.owner == Owner::matrix) return 1;
    if (T* multipliers = s.column_multipliers<T>(b); multipliers != nullptr) {
      for_chunks({0, local.cols.count}, [&](int64_t j, int64_t count) {
        s.reduce<T>(phase, Axis::cols, core::kSums, b, {j, count}, sums);
        average_cols(b, {j, count}, sums);
        inverse_roots(b, {j, count}, multipliers + j);
      });
    }
    if (s.t.owner == Owner::rows) return s.scalar(phase, b, core::kRowAverages) / n;
    for_chunks({0, local.rows.count}, [&](int64_t i, int64_t count) {
      s.reduce<T>(phase, Axis::rows, core::kSums, b, {i, count}, sums);
      for (int64_t k = 0; k < count; ++k) average_row(b, i + k, sums[k]);
    });
    if (s.t.owner == Owner::columns) return sum_rows(b, {0, s.t.view.rows}) / n;  // all rows are here
    const double* all = s.all_reduced(phase, b);
    double total = 0;
    for (int64_t i = 0; i < s.t.view.rows; ++i) total += all[i];
    return beta * s.scalar(phase, b, core::kRowAverages) / n +
           (1 - beta) * (total / (n * static_cast<double>(s.t.view.cols)) + eps);
  }

  /// Goes through a tile panel by panel with use(panel, multipliers, row_done): `multipliers` are the reciprocal roots
  /// of `by`'s columns, and use calls row_done(i, sum) with the sum of x over each row of the panel and leaves those
  /// over the columns in panel.sums.  Averages over what the worker owns are finished at once, sums for others go to
  /// the tile's partials.
  template <class Use>
  HWY_INLINE void accumulate(const Tile& tile, const Averages& by, const Use& use) const {
    const Partials<T> out = s.partials<T>(phase, tile);
    const int64_t b = tile.batch.begin;  // the only one, unless the worker owns whole matrices
    switch (s.t.owner) {
      case Owner::rows:
        use(Panel<T>{b, tile.rows, tile.cols, out.col(core::kSums)}, s.column_multipliers<T>(b),
            [&](int64_t i, double sum) {
              average_row(b, i, sum);
              out.scalars[core::kRowAverages] += static_cast<double>(row[s.row_at(b, i)]);
            });
        break;
      case Owner::columns:
        for_chunks(tile.cols, [&](int64_t j, int64_t n) {
          HWY_ALIGN T sums[kChunk] = {};
          HWY_ALIGN T roots[kChunk];
          by.inverse_roots(b, {j, n}, roots);
          use(Panel<T>{b, tile.rows, {j, n}, sums}, roots,
              [&](int64_t i, double sum) { out.row(core::kSums)[i - tile.rows.begin] += static_cast<T>(sum); });
          average_cols(b, {j, n}, sums);
        });
        break;
      case Owner::matrix:
        for (int64_t whole = b; whole < b + tile.batch.count; ++whole) {
          HWY_ALIGN T sums[kSmall];
          HWY_ALIGN T roots[kSmall];
          std::fill_n(sums, tile.cols.count, T{0});
          by.inverse_roots(whole, tile.cols, roots);
          use(Panel<T>{whole, tile.rows, tile.cols, sums}, roots,
              [&](int64_t i, double sum) { average_row(whole, i, sum); });
          average_cols(whole, tile.cols, sums);
        }
        break;
      case Owner::none:
        use(Panel<T>{b, tile.rows, tile.cols, out.col(core::kSums)}, s.column_multipliers<T>(b) + tile.cols.begin,
            [&](int64_t i, double sum) {
              out.row(core::kSums)[i - tile.rows.begin] = static_cast<T>(sum);
              add_share(out, b, i, tile.cols.count);
            });
        break;
    }
  }

  /// Every holder of a part of row i adds its share of the old average: together, the whole.
  HWY_INLINE void add_share(const Partials<T>& out, int64_t b, int64_t i, int64_t count) const {
    out.scalars[core::kRowAverages] +=
        static_cast<double>(row[s.row_at(b, i)]) * static_cast<double>(count) / static_cast<double>(s.t.view.cols);
  }
};

/// Calls f(b, rows, cols, multipliers) for parts of a tile with the reciprocal roots of their columns.
template <class T, class F>
HWY_INLINE void for_panels(const Averages<T>& by, const Tile& tile, const F& f) {
  const Subject& s = by.s;
  for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
    if (const T* multipliers = s.column_multipliers<T>(b); multipliers != nullptr) {
      f(b, tile.rows, tile.cols, multipliers + tile.cols.begin);
      continue;
    }
    for_chunks(tile.cols, [&](int64_t j, int64_t n) {
      HWY_ALIGN T roots[kChunk];
      by.inverse_roots(b, {j, n}, roots);
      f(b, tile.rows, Range{j, n}, static_cast<const T*>(roots));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
