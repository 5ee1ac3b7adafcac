// The clipped update that CAME and Adafactor share, and the statistics of the squared gradient under it.
// docs/algorithms.md: averages (5), (6); update (7); clipping (8).  Reads G bytes per parameter.
#if defined(CAME_CPU_UPDATE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_UPDATE_INL
#undef CAME_CPU_UPDATE_INL
#else
#define CAME_CPU_UPDATE_INL
#endif

#include "cpu/averages-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {

/// Rows taken together here: the sums over columns are two, and there is nothing else to load.  Of 2, 4, 8 and 16, 8
/// was the fastest on Zen 4.
inline constexpr size_t kStatisticsRows = 8;

template <class T>
class Update {
 public:
  Update(const Subject& subject, double beta2)
      : s(subject),
        averages{subject,
                 subject.state<T>("exp_avg_sq_row"),
                 subject.state<T>("exp_avg_sq_col"),
                 beta2,
                 subject.o.eps1,
                 PhaseKind::statistics},
        full(subject.state<T>("exp_avg_sq")) {}

  const Subject& s;
  Averages<T> averages;
  T* full;  ///< The unfactored average of a tensor without rows and columns.

  inline void run_statistics(const Tile& tile) const {
    const Partials<T> out = s.partials<T>(PhaseKind::statistics, tile);
    if (!s.t.factored) return run_full(tile, out);
    switch (s.t.owner) {
      case Owner::rows:
        pass_rows({tile.batch.begin, tile.rows, tile.cols, out.col(core::kSquares)}, out.col(core::kWeightedSquares),
                  out.scalars[core::kRowAverages]);
        break;
      case Owner::matrix:
        for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) run_matrix(b, tile, out);
        break;
      case Owner::columns:
        run_columns(tile, out);
        break;
      case Owner::none:
        run_split(tile, out);
        break;
    }
  }

  inline void finish_statistics() const {
    double sum_of_squares = 0;
    for (int64_t b = 0; b < s.t.local_sets(); ++b) {
      const double mean = s.t.factored ? averages.finish(b) : 1.0;
      s.matrix_scalars(b).update = std::sqrt(mean);
      if (s.t.set_per_matrix() && s.t.owner != Owner::none) sum_of_squares += mean * weighted_sum(b);
    }
    if (needs_rms_phase()) return;
    clip(s.t.set_per_matrix() ? sum_of_squares : s.total(PhaseKind::statistics, core::kUpdateSquares));
  }

  /// Where a worker owns neither rows nor columns, the RMS takes a pass of its own.
  inline void run_rms(const Tile& tile) const {
    if (!needs_rms_phase()) return;
    double& sum = s.partials<T>(PhaseKind::rms, tile).scalars[core::kUpdateSquares];
    for_panels(averages, tile, [&](int64_t b, Range rows, Range cols, const T* col) {
      for (int64_t i = rows.begin; i < rows.begin + rows.count; ++i) {
        const Vec<T> row = set(row_multiplier(b, i, kRmsScale));
        for_chunks(cols, [&](int64_t j, int64_t n) {
          const Rows<T, 1> gradient(s, s.grad, b, i, j, n);
          const auto g = gradient.rows();
          const T* c = col + (j - cols.begin);
          sum += sum_over<T>(static_cast<size_t>(n), [&](size_t k, auto at) CAME_LANES {
            return square(hn::Mul(hn::Mul(at.load(g[0] + k), row), at.load(c + k)));
          });
        });
      }
    });
  }

  inline void finish_rms() const {
    if (needs_rms_phase()) clip(s.total(PhaseKind::rms, core::kUpdateSquares) / (kRmsScale * kRmsScale));
  }

  /// What the gradients of row i are multiplied with, beside the column's reciprocal root, to give the clipped update.
  /// `own` is averages.own_root(b).
  [[nodiscard]] HWY_INLINE T row_multiplier(int64_t b, int64_t i, double own = 1) const {
    return algorithms::row_multiplier_as<T>(s.multiplier * own * s.matrix_scalars(b).update *
                                            averages.inverse_root(b, i));
  }

  /// What the gradients of an unfactored tensor are multiplied with before they enter its update.
  [[nodiscard]] HWY_INLINE Vec<T> gradient_multiplier() const { return set(static_cast<T>(s.multiplier)); }
  /// The clipped update of its elements.  The multiplier comes first: it may be 0 where a gradient over a root
  /// overflows.
  [[nodiscard]] static HWY_INLINE Vec<T> full_update(Vec<T> g, Vec<T> multiplier, Vec<T> v, Vec<T> clip) {
    return hn::Mul(hn::Div(hn::Mul(g, multiplier), hn::Sqrt(v)), clip);
  }
  [[nodiscard]] HWY_INLINE Vec<T> full_clip() const { return set(static_cast<T>(s.matrix_scalars(0).update)); }

 private:
  /// An update that is not clipped yet may have a square beyond f32.
  static constexpr double kRmsScale = 1 / algorithms::kWeightScale;

  [[nodiscard]] bool needs_rms_phase() const { return s.t.factored && s.t.owner == Owner::none; }

  /// Squared gradients.
  [[nodiscard]] static HWY_INLINE Vec<T> x(Vec<T> g, Vec<T> multiplier) { return square(hn::Mul(g, multiplier)); }

  /// Sums of x over R rows of a panel.
  template <size_t R>
  HWY_INLINE void sum_rows(const Panel<T>& panel, int64_t i, double* sums) const {
    for_chunks(panel.cols, [&](int64_t j, int64_t n) {
      const Rows<T, R> gradient(s, s.grad, panel.b, i, j, n);
      const auto g = gradient.rows();
      const Vec<T> scale = gradient_multiplier();
      const int64_t ahead = static_cast<int64_t>(R) * s.t.local.cols.count;
      Sum<T> sum[R];
      for_lanes<T>(static_cast<size_t>(n), [&](size_t k, auto at) CAME_LANES {
        for (size_t r = 0; r < R; ++r) {
          if (r < (R + 1) / 2) __builtin_prefetch(g[r] + k + ahead, 0, 2);
          sum[r].add(k, x(at.load(g[r] + k), scale));
        }
      });
      for (size_t r = 0; r < R; ++r) sums[r] += sum[r].total();
    });
  }

  /// Adds R rows of x to the sums over columns and, if wanted, the squares of gradients times their row's weight to
  /// `weighted`.  Weights are roots: x itself may underflow where its quotient by an average must not.
  template <size_t R>
  HWY_INLINE void sum_cols(const Panel<T>& panel, int64_t i, const T* weights, T* weighted) const {
    for_chunks(panel.cols, [&](int64_t j, int64_t n) {
      const Rows<T, R> gradient(s, s.grad, panel.b, i, j, n);
      const auto g = gradient.rows();
      const Vec<T> scale = gradient_multiplier();
      T* sums = panel.sums_at(j);
      const int64_t ahead = static_cast<int64_t>(R) * s.t.local.cols.count;
      T* more = weighted + (weighted != nullptr ? j - panel.cols.begin : 0);
      for_lanes<T>(static_cast<size_t>(n), [&](size_t k, auto at) CAME_LANES {
        Vec<T> value = hn::Mul(at.load(g[0] + k), scale);
        Vec<T> total = square(value);
        Vec<T> other = square(hn::Mul(value, set(weights[0])));
        for (size_t r = 1; r < R; ++r) {
          if (r >= (R + 1) / 2) __builtin_prefetch(g[r] + k + ahead, 0, 2);
          value = hn::Mul(at.load(g[r] + k), scale);
          total = hn::Add(total, square(value));
          other = hn::Add(other, square(hn::Mul(value, set(weights[r]))));
        }
        at.store(hn::Add(at.load(sums + k), total), sums + k);
        if (weighted != nullptr) at.store(hn::Add(at.load(more + k), other), more + k);
      });
    });
  }

  /// Owned rows: each average is finished while its row is at hand, and then weighs the row in the second sum over
  /// columns.  That is what the RMS follows from.
  HWY_INLINE void pass_rows(const Panel<T>& panel, T* weighted, double& sum_of_rows) const {
    for_row_blocks<kStatisticsRows>(panel.rows, [&](int64_t i, auto count) {
      constexpr size_t R = decltype(count)::value;
      double sums[R] = {};
      sum_rows<R>(panel, i, sums);
      T weights[R];
      for (size_t r = 0; r < R; ++r) {
        const int64_t row = i + static_cast<int64_t>(r);
        averages.average_row(panel.b, row, sums[r]);
        const auto stored = static_cast<double>(averages.row[s.row_at(panel.b, row)]);
        sum_of_rows += stored;
        weights[r] = weight(stored);
      }
      sum_cols<R>(panel, i, weights, weighted);
    });
  }

  /// What gradients are multiplied with before they are squared, where x is to be divided by an average.
  [[nodiscard]] static HWY_INLINE T weight(double average) {
    return static_cast<T>(algorithms::kWeightScale / std::sqrt(average));
  }

  /// Sum over columns j of weighted_j / c_j.
  template <class Sums>
  HWY_INLINE double divided(const Sums* weighted, const T* statistic, int64_t count) const {
    constexpr int64_t kSums = 8;
    double sums[kSums] = {};
    const auto add = [&](int64_t k, int64_t n) CAME_LANES {
      for (int64_t x = 0; x < n; ++x) {
        sums[x] += static_cast<double>(weighted[k + x]) / static_cast<double>(statistic[k + x]);
      }
    };
    int64_t k = 0;
    for (; k + kSums <= count; k += kSums) add(k, kSums);
    add(k, count - k);
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum * algorithms::kWeightUnscale;
  }

  HWY_INLINE void run_matrix(int64_t b, const Tile& tile, const Partials<T>& out) const {
    HWY_ALIGN T sums[kSmall];
    HWY_ALIGN T weighted[kSmall];
    std::fill_n(sums, tile.cols.count, T{0});
    std::fill_n(weighted, tile.cols.count, T{0});
    double sum_of_rows = 0;
    pass_rows({b, tile.rows, tile.cols, sums}, weighted, sum_of_rows);
    averages.average_cols(b, tile.cols, sums);
    out.scalars[core::kUpdateSquares] += sum_of_rows / static_cast<double>(tile.rows.count) *
                                         divided(weighted, averages.col + s.col_at(b, 0), tile.cols.count);
  }

  HWY_INLINE void run_columns(const Tile& tile, const Partials<T>& out) const {
    const int64_t b = tile.batch.begin;
    for_chunks(tile.cols, [&](int64_t j, int64_t n) {
      HWY_ALIGN T sums[kChunk] = {};
      HWY_ALIGN T weights[kChunk];
      const Panel<T> panel{b, tile.rows, {j, n}, sums};
      const T none[kRows] = {};
      for_row_blocks(tile.rows,
                     [&](int64_t i, auto count) { sum_cols<decltype(count)::value>(panel, i, none, nullptr); });
      averages.average_cols(b, {j, n}, sums);
      const T* c = averages.col + s.col_at(b, j);
      for (int64_t k = 0; k < n; ++k) weights[k] = weight(static_cast<double>(c[k]));
      for (int64_t i = tile.rows.begin; i < tile.rows.begin + tile.rows.count; ++i) {
        const Rows<T, 1> gradient(s, s.grad, b, i, j, n);
        const auto g = gradient.rows();
        const Vec<T> scale = gradient_multiplier();
        Sum<T> plain;
        Sum<T> weighted;
        for_lanes<T>(static_cast<size_t>(n), [&](size_t k, auto at) CAME_LANES {
          const Vec<T> value = hn::Mul(at.load(g[0] + k), scale);
          plain.add(k, square(value));
          weighted.add(k, square(hn::Mul(value, at.load(weights + k))));
        });
        out.row(core::kSquares)[i - tile.rows.begin] += static_cast<T>(plain.total());
        out.row(core::kWeightedSquares)[i - tile.rows.begin] += static_cast<T>(weighted.total());
      }
    });
  }

  HWY_INLINE void run_split(const Tile& tile, const Partials<T>& out) const {
    const Panel<T> panel{tile.batch.begin, tile.rows, tile.cols, out.col(core::kSquares)};
    for_row_blocks(tile.rows, [&](int64_t i, auto count) {
      constexpr size_t R = decltype(count)::value;
      double sums[R] = {};
      const T none[R] = {};
      sum_rows<R>(panel, i, sums);
      sum_cols<R>(panel, i, none, nullptr);
      for (size_t r = 0; r < R; ++r) {
        const int64_t row = i + static_cast<int64_t>(r);
        out.row(core::kSquares)[row - tile.rows.begin] = static_cast<T>(sums[r]);
        averages.add_share(out, panel.b, row, tile.cols.count);
      }
    });
  }

  HWY_INLINE void run_full(const Tile& tile, const Partials<T>& out) const {
    const Vec<T> rate = set(static_cast<T>(algorithms::rate_of(averages.beta)));
    const Vec<T> eps = set(static_cast<T>(averages.eps));
    const Vec<T> scale = gradient_multiplier();
    for_spans(s, tile, [&](int64_t, const Span& span) {
      HWY_ALIGN T scratch[kChunk];
      const T* g = values_of(s.grad, span, scratch);
      T* v = full + s.grad.at(span);
      out.scalars[core::kUpdateSquares] += sum_over<T>(span.n, [&](size_t j, auto at) CAME_LANES {
        const Vec<T> value = at.load(g + j);
        const Vec<T> mean = blend(at.load(v + j), rate, hn::Add(x(value, scale), eps));
        at.store(mean, v + j);
        return square(full_update(value, scale, mean, set(T{1})));
      });
    });
  }

  /// Sum of u^2 over mean(r) for matrix b: over columns j of B_j / c_j, or with rows and columns swapped.
  [[nodiscard]] HWY_INLINE double weighted_sum(int64_t b) const {
    const bool by_rows = s.t.owner == Owner::rows;
    const core::Local& local = s.t.local;
    const T* statistic = by_rows ? averages.col + s.col_at(b, 0) : averages.row + s.row_at(b, 0);
    double weighted[kChunk];
    double sum = 0;
    for_chunks({0, by_rows ? local.cols.count : local.rows.count}, [&](int64_t k, int64_t n) {
      s.reduce<T>(PhaseKind::statistics, by_rows ? Axis::cols : Axis::rows, core::kWeightedSquares, b, {k, n},
                  weighted);
      sum += divided(weighted, statistic + k, n);
    });
    return sum;
  }

  inline void clip(double sum_of_squares) const {
    const double ratio = algorithms::clipping_ratio(std::sqrt(sum_of_squares / s.elements()), s.o.clip_threshold);
    for (int64_t b = 0; b < s.t.local_sets(); ++b) s.matrix_scalars(b).update /= ratio;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
