// CAME, Algorithm 2 of the paper: docs/algorithms.md, equations (5) to (13).
// Three passes; bytes per parameter: statistics G, momentum G + 2M, apply M + 2P.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/came.cpp"
#include "hwy/foreach_target.h"

#include "cpu/kernels.hpp"
#include "cpu/update-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
Averages<T> instability(const Subject& s) {
  return {s, s.state<T>("exp_avg_res_row"), s.state<T>("exp_avg_res_col"), s.o.beta3, s.o.eps2, PhaseKind::momentum};
}

/// m <- beta1 m + (1 - beta1) u : (9), and U = (u - m)^2 with the stored m : (10), for R rows of a panel.  Adds U up
/// over columns to panel.sums and over rows to `sums`, and counts the agreeing elements of `cautious`.
template <class T, size_t R>
HWY_INLINE void blend_rows(const Subject& s, const Panel<T>& panel, int64_t i, const T* row_multipliers,
                           const T* col_multipliers, double* sums, double* agreements) {
  const Vec<T> rate = set(static_cast<T>(algorithms::rate_of(s.o.beta1)));
  for_chunks(panel.cols, [&](int64_t j, int64_t count) {
    const auto n = static_cast<size_t>(count);
    const Rows<T, R> gradient(s, s.grad, panel.b, i, j, count);
    const Rows<T, R> momentum(s, s.momentum, panel.b, i, j, count);
    const auto g = gradient.rows();
    const auto m = momentum.rows();
    std::array<T, R> rows;
    std::copy_n(row_multipliers, R, rows.begin());
    const T* col = col_multipliers + (j - panel.cols.begin);
    T* col_sums = panel.sums_at(j);
    const Vec<T> sign = set(static_cast<T>(s.sign));
    const int64_t ahead = static_cast<int64_t>(R) * s.t.local.cols.count;
    Sum<T> row_sums[R];

    const auto update = [=](size_t r, size_t k, auto at)
                            CAME_LANES { return hn::Mul(hn::Mul(at.load(g[r] + k), set(rows[r])), at.load(col + k)); };
    // What is stored is what was blended, where it is stored as T.
    const auto blend_lanes = [=](size_t r, size_t k, auto at, Vec<T> u) CAME_LANES {
      const Vec<T> value = blend(at.load(m[r] + k), rate, u);
      at.store(value, m[r] + k);
      return value;
    };
    const auto sum_lanes = [&](size_t k, auto at, const auto& stored) CAME_LANES {
      Vec<T> total = at.load(col_sums + k);
      for (size_t r = 0; r < R; ++r) {
        __builtin_prefetch(g[r] + k + ahead, 0, 2);
        __builtin_prefetch(m[r] + k + ahead, 1, 2);
        const Vec<T> u = update(r, k, at);
        const Vec<T> value = square(hn::Sub(u, stored(r, k, at, u)));
        row_sums[r].add(k, value);
        total = hn::Add(total, value);
      }
      at.store(total, col_sums + k);
    };
    if (s.momentum.dtype == kType<T>) {
      for_lanes<T>(n, [&](size_t k, auto at) CAME_LANES { sum_lanes(k, at, blend_lanes); });
    } else {
      for_lanes<T>(n, [=](size_t k, auto at) CAME_LANES {
        for (size_t r = 0; r < R; ++r) blend_lanes(r, k, at, update(r, k, at));
      });
      for (size_t r = 0; r < R; ++r) store_rounded(s.momentum, momentum.span[r], m[r]);
      for_lanes<T>(n, [&](size_t k, auto at) CAME_LANES {
        sum_lanes(k, at, [=](size_t r, size_t x, auto, Vec<T>) CAME_LANES { return at.load(m[r] + x); });
      });
    }
    for (size_t r = 0; r < R; ++r) sums[r] += row_sums[r].total();
    if (agreements == nullptr) return;
    for (size_t r = 0; r < R; ++r) {
      *agreements += sum_over<T>(n, [=](size_t k, auto at) CAME_LANES {
        return agreeing<T>(at.load(m[r] + k), hn::Mul(at.load(g[r] + k), sign));
      });
    }
  });
}

/// The same for a tensor without rows and columns; (11) with `confidence_1d`.
template <class T>
void blend_full(const Subject& s, const Update<T>& update, const Tile& tile, double* agreements) {
  T* full = s.state<T>("exp_avg_res");
  const Vec<T> rate = set(static_cast<T>(algorithms::rate_of(s.o.beta1)));
  const Vec<T> rate3 = set(static_cast<T>(algorithms::rate_of(s.o.beta3)));
  const Vec<T> eps = set(static_cast<T>(s.o.eps2));
  for_spans(s, tile, [&](int64_t, const Span& span) {
    HWY_ALIGN T scratch[2][kChunk];
    const T* g = values_of(s.grad, span, scratch[0]);
    T* m = values_of(s.momentum, span, scratch[1]);
    const T* v = update.full + s.grad.at(span);
    const Vec<T> multiplier = update.gradient_multiplier();
    const Vec<T> clip = update.full_clip();
    const Vec<T> sign = set(static_cast<T>(s.sign));
    const auto update_at = [=](size_t k, auto at) CAME_LANES {
      return Update<T>::full_update(at.load(g + k), multiplier, at.load(v + k), clip);
    };
    for_lanes<T>(span.n,
                 [=](size_t k, auto at) CAME_LANES { at.store(blend(at.load(m + k), rate, update_at(k, at)), m + k); });
    store_rounded(s.momentum, span, m);
    if (full != nullptr) {
      T* residual = full + s.grad.at(span);
      for_lanes<T>(span.n, [=](size_t k, auto at) CAME_LANES {
        const Vec<T> value = hn::Add(square(hn::Sub(update_at(k, at), at.load(m + k))), eps);
        at.store(blend(at.load(residual + k), rate3, value), residual + k);
      });
    }
    if (agreements == nullptr) return;
    *agreements += sum_over<T>(span.n, [=](size_t k, auto at) CAME_LANES {
      return agreeing<T>(at.load(m + k), hn::Mul(at.load(g + k), sign));
    });
  });
}

template <class T>
void run_momentum(const Subject& s, const Tile& tile) {
  const Update<T> update(s, s.o.beta2);
  double* agreements = s.o.cautious != 0 ? &s.partials<T>(PhaseKind::momentum, tile).agreements() : nullptr;
  if (!s.t.factored) return blend_full(s, update, tile, agreements);
  instability<T>(s).accumulate(
      tile, update.averages, [&](const Panel<T>& panel, const T* col_multipliers, const auto& row_done) {
        const double own = update.averages.own_root(panel.b);
        for_row_blocks(panel.rows, [&](int64_t i, auto count) {
          constexpr size_t R = decltype(count)::value;
          T row_multipliers[R];
          for (size_t r = 0; r < R; ++r)
            row_multipliers[r] = update.row_multiplier(panel.b, i + static_cast<int64_t>(r), own);
          double sums[R] = {};
          blend_rows<T, R>(s, panel, i, row_multipliers, col_multipliers, sums, agreements);
          for (size_t r = 0; r < R; ++r) row_done(i + static_cast<int64_t>(r), sums[r]);
        });
      });
}

/// (12)
template <class T>
void finish_momentum(const Subject& s) {
  const double correction = s.o.bias_correction != 0 ? algorithms::bias_correction(s.o.beta3, s.count) : 1.0;
  for (int64_t b = 0; b < s.t.local_sets(); ++b) {
    const double mean = s.t.factored ? instability<T>(s).finish(b) : 1.0;
    s.matrix_scalars(b).confidence = std::sqrt(mean * correction);
  }
  finish_agreement(s, PhaseKind::momentum);
}

/// Moves the parameters of a span by move(k, lanes, m), masked by `cautious`.
template <class T, class Move>
HWY_INLINE void apply_span(const Subject& s, const Span& span, const Move& move) {
  HWY_ALIGN T scratch[kChunk];
  const T* m = values_of(s.momentum, span, scratch);
  const double decay = s.lr * s.o.weight_decay;
  if (s.o.cautious == 0) {
    move_param<T>(s, span, decay, [=](size_t k, auto at) CAME_LANES { return move(k, at, at.load(m + k)); });
    return;
  }
  HWY_ALIGN T more[kChunk];
  const T* g = values_of(s.grad, span, more);
  const Vec<T> sign = set(static_cast<T>(s.sign));
  move_param<T>(s, span, decay, [=](size_t k, auto at) CAME_LANES {
    const Vec<T> value = at.load(m + k);
    const Vec<T> gradient = hn::Mul(at.load(g + k), sign);
    return hn::Mul(move(k, at, value), agreeing<T>(value, gradient));
  });
}

/// The same for R rows of a matrix: moves by m times the multipliers of row and column.
template <class T, size_t R>
HWY_INLINE void apply_rows(const Subject& s, int64_t b, int64_t i, int64_t j, int64_t n, std::array<T, R> of_rows,
                           const T* col) {
  if (s.o.cautious != 0) {
    for (size_t r = 0; r < R; ++r) {
      const Vec<T> row = set(of_rows[r]);
      apply_span<T>(s, s.span(b, i + static_cast<int64_t>(r), j, n),
                    [=](size_t k, auto at, Vec<T> m) CAME_LANES { return hn::Mul(hn::Mul(m, row), at.load(col + k)); });
    }
    return;
  }
  const Rows<T, R> params(s, s.param, b, i, j, n);
  const Rows<T, R> momentum(s, s.momentum, b, i, j, n);
  const auto p = params.rows();
  const auto m = momentum.rows();
  const double decay = s.lr * s.o.weight_decay;
  const Vec<T> shrink = set(static_cast<T>(decay));
  const int64_t ahead = static_cast<int64_t>(R) * s.t.local.cols.count;
  for_lanes<T>(static_cast<size_t>(n), [=](size_t k, auto at) CAME_LANES {
    for (size_t r = 0; r < R; ++r) {
      __builtin_prefetch(p[r] + k + ahead, 1, 2);
      __builtin_prefetch(m[r] + k + ahead, 0, 2);
      const Vec<T> old = at.load(p[r] + k);
      const Vec<T> shrinkage = decay != 0 ? hn::Mul(shrink, old) : hn::Zero(Lanes<T>());
      const Vec<T> move = hn::Mul(hn::Mul(at.load(m[r] + k), set(of_rows[r])), at.load(col + k));
      at.store(hn::Sub(old, hn::Add(shrinkage, move)), p[r] + k);
    }
  });
  for (size_t r = 0; r < R; ++r) store(s.param, params.span[r], p[r]);
}

/// theta <- theta - lr wd theta - lr m / sqrt(S) : (13)
template <class T>
void run_apply(const Subject& s, const Tile& tile) {
  const Averages<T> averages = instability<T>(s);
  const auto step = [&](int64_t b) { return s.lr * s.matrix_scalars(b).direction; };
  if (s.t.factored) {
    for_panels(averages, tile, [&](int64_t b, Range rows, Range cols, const T* col_multipliers) {
      const double multiplier = step(b) * averages.own_root(b) * s.matrix_scalars(b).confidence;
      for_row_blocks(rows, [&](int64_t i, auto count) {
        constexpr size_t R = decltype(count)::value;
        std::array<T, R> of_rows;
        for (size_t r = 0; r < R; ++r) {
          of_rows[r] =
              algorithms::row_multiplier_as<T>(multiplier * averages.inverse_root(b, i + static_cast<int64_t>(r)));
        }
        for_chunks(cols, [&](int64_t j, int64_t n) {
          apply_rows<T, R>(s, b, i, j, n, of_rows, col_multipliers + (j - cols.begin));
        });
      });
    });
    return;
  }
  const T* full = s.state<T>("exp_avg_res");
  for_spans(s, tile, [&](int64_t b, const Span& span) {
    if (full == nullptr) {
      const Vec<T> multiplier = set(static_cast<T>(step(b)));
      return apply_span<T>(s, span, [=](size_t, auto, Vec<T> m) CAME_LANES { return hn::Mul(m, multiplier); });
    }
    const T* residual = full + s.grad.at(span);
    const Vec<T> multiplier = set(static_cast<T>(step(b) * s.matrix_scalars(b).confidence));
    apply_span<T>(s, span, [=](size_t k, auto at, Vec<T> m) CAME_LANES {
      return hn::Div(hn::Mul(m, multiplier), hn::Sqrt(at.load(residual + k)));
    });
  });
}

template <class T>
void run_as(const Subject& s, PhaseKind phase, const Tile& tile) {
  if (phase == PhaseKind::statistics) Update<T>(s, s.o.beta2).run_statistics(tile);
  if (phase == PhaseKind::rms) Update<T>(s, s.o.beta2).run_rms(tile);
  if (phase == PhaseKind::momentum) run_momentum<T>(s, tile);
  if (phase == PhaseKind::apply) run_apply<T>(s, tile);
}

template <class T>
void finish_as(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::statistics) Update<T>(s, s.o.beta2).finish_statistics();
  if (done == PhaseKind::rms) Update<T>(s, s.o.beta2).finish_rms();
  if (done == PhaseKind::momentum) finish_momentum<T>(s);
}

}  // namespace

constexpr Kernel kCame = kernel_by_type<finish_as<float>, finish_as<double>, run_as<float>, run_as<double>>();

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace came::cpu {

const Kernel& came_kernel(Target chosen) { CAME_CPU_CHOOSE(kCame, chosen); }

}  // namespace came::cpu
#endif
