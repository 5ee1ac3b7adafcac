// SM3-II over the rows and columns of a matrix: docs/algorithms.md, equations (25) to (27).
// One pass, G + 2M + 2P bytes per parameter; `cautious` makes it three.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/sm3.cpp"
#include "hwy/foreach_target.h"

#include "cpu/averages-inl.hpp"
#include "cpu/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

/// (25) and, unless the direction waits to be rescaled, (27), for a span.  least(k, lanes) is the old cover, and
/// keep(k, lanes, cover) takes the new one.
template <class T, class Least, class Keep>
HWY_INLINE void pass_span(const Subject& s, const Span& span, const Least& least, const Keep& keep) {
  HWY_ALIGN T scratch[2][kChunk];
  const T* g = values_of(s.grad, span, scratch[0]);
  const Vec<T> eps = set(static_cast<T>(s.o.eps));
  const Vec<T> multiplier = set(static_cast<T>(s.multiplier));
  const Vec<T> lr = set(static_cast<T>(s.lr));
  const double decay = s.lr * s.o.weight_decay;
  const auto direction = [&](size_t k, auto at) CAME_LANES {
    const Vec<T> gradient = hn::Mul(at.load(g + k), multiplier);
    const Vec<T> cover = hn::Add(least(k, at), square(gradient));
    keep(k, at, cover);
    return hn::Div(gradient, hn::Sqrt(hn::Add(cover, eps)));
  };
  if (!s.momentum) {
    move_param<T>(s, span, decay, [&](size_t k, auto at) CAME_LANES { return hn::Mul(lr, direction(k, at)); });
    return;
  }
  T* m = values_of(s.momentum, span, scratch[1]);
  const Vec<T> rate = set(static_cast<T>(algorithms::rate_of(s.o.beta1)));
  const auto blend_lanes = [&](size_t k, auto at)
                               CAME_LANES { at.store(blend(at.load(m + k), rate, direction(k, at)), m + k); };
  const auto move = [=](size_t k, auto at) CAME_LANES { return hn::Mul(lr, at.load(m + k)); };
  if (s.o.cautious == 0 && s.momentum.dtype == kType<T>) {
    move_param<T>(s, span, decay, [=](size_t k, auto at) CAME_LANES {
      blend_lanes(k, at);
      return move(k, at);
    });
    return;
  }
  for_lanes<T>(span.n, blend_lanes);
  store_rounded(s.momentum, span, m);
  if (s.o.cautious == 0) move_param<T>(s, span, decay, move);
}

/// The covers of a panel's rows and columns; their maxima go to `rows` and `cols`, which are zero on entry : (26).
template <class T>
void pass_panel(const Subject& s, int64_t b, const Tile& tile, T* rows, T* cols) {
  const T* row = s.state<T>("accumulator_row");
  const T* col = s.state<T>("accumulator_col");
  for (int64_t i = tile.rows.begin; i < tile.rows.begin + tile.rows.count; ++i) {
    const T of_row = row[s.row_at(b, i)];
    const Vec<T> old_row = set(of_row);
    // A NaN must not be lost in a minimum.  x86 gives the second operand if there is one, others give the NaN: that
    // keeps the column's; the row's is added.
    const Vec<T> nan = set(of_row != of_row ? of_row : T{0});
    HWY_ALIGN T lanes[kLanes<T>] = {};
    for_chunks(tile.cols, [&](int64_t j, int64_t n) {
      const T* old_col = col + s.col_at(b, j);
      T* most = cols + (j - tile.cols.begin);
      Vec<T> row_most = hn::Load(Lanes<T>(), lanes);
      pass_span<T>(
          s, s.span(b, i, j, n),
          [=](size_t k, auto at) CAME_LANES { return hn::Add(hn::Min(old_row, at.load(old_col + k)), nan); },
          [&](size_t k, auto at, Vec<T> cover) CAME_LANES {
            row_most = larger<T>(cover, row_most);
            at.store(larger<T>(cover, at.load(most + k)), most + k);
          });
      hn::Store(row_most, Lanes<T>(), lanes);
    });
    T& most = rows[i - tile.rows.begin];
    for (const T lane : lanes) most = lane > most || lane != lane ? lane : most;
  }
}

template <class T>
void run_cover(const Subject& s, const Tile& tile) {
  if (!s.t.factored) {
    T* full = s.state<T>("accumulator");
    for_spans(s, tile, [&](int64_t, const Span& span) {
      T* v = full + s.grad.at(span);
      pass_span<T>(
          s, span, [=](size_t k, auto at) CAME_LANES { return at.load(v + k); },
          [=](size_t k, auto at, Vec<T> cover) CAME_LANES { at.store(cover, v + k); });
    });
    return;
  }
  if (s.t.owner != Owner::matrix) {
    const Partials<T> out = s.partials<T>(PhaseKind::cover, tile);
    return pass_panel(s, tile.batch.begin, tile, out.row(core::kCovers), out.col(core::kCovers));
  }
  for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
    HWY_ALIGN T rows[kSmall];
    HWY_ALIGN T cols[kSmall];
    std::fill_n(rows, tile.rows.count, T{0});
    std::fill_n(cols, tile.cols.count, T{0});
    pass_panel(s, b, tile, rows, cols);
    std::copy_n(rows, tile.rows.count, s.state<T>("accumulator_row") + s.row_at(b, 0));
    std::copy_n(cols, tile.cols.count, s.state<T>("accumulator_col") + s.col_at(b, 0));
  }
}

/// The covers of the next step are the maxima of this one: (26).
template <class T>
void finish_cover(const Subject& s) {
  if (!s.t.set_per_matrix()) return;  // stored already
  double most[kChunk];
  const auto copy_axis = [&](Axis axis, int64_t b, int64_t count, T* to) {
    for_chunks({0, count}, [&](int64_t k, int64_t n) {
      s.reduce<T>(PhaseKind::cover, axis, core::kCovers, b, {k, n}, most);
      copy(most, static_cast<size_t>(n), to + k);
    });
  };
  for (int64_t b = 0; b < s.t.local.batch.count; ++b) {
    copy_axis(Axis::rows, b, s.t.local.rows.count, s.state<T>("accumulator_row") + s.row_at(b, 0));
    copy_axis(Axis::cols, b, s.t.local.cols.count, s.state<T>("accumulator_col") + s.col_at(b, 0));
  }
}

template <class T>
void run_cautious(const Subject& s, PhaseKind phase, const Tile& tile) {
  for_spans(s, tile, [&](int64_t b, const Span& span) {
    HWY_ALIGN T scratch[2][kChunk];
    const T* g = values_of(s.grad, span, scratch[0]);
    const T* m = values_of(s.momentum, span, scratch[1]);
    const Vec<T> sign = set(static_cast<T>(s.sign));
    const auto agreement = [=](size_t k, auto at)
                               CAME_LANES { return agreeing<T>(at.load(m + k), hn::Mul(at.load(g + k), sign)); };
    if (phase == PhaseKind::agreement) {
      s.partials<T>(phase, tile).agreements() += sum_over<T>(span.n, agreement);
    } else {
      const Vec<T> multiplier = set(static_cast<T>(s.lr * s.matrix_scalars(b).direction));
      move_param<T>(s, span, s.lr * s.o.weight_decay, [=](size_t k, auto at) CAME_LANES {
        return hn::Mul(hn::Mul(at.load(m + k), multiplier), agreement(k, at));
      });
    }
  });
}

template <class T>
void run_as(const Subject& s, PhaseKind phase, const Tile& tile) {
  if (phase == PhaseKind::cover) return run_cover<T>(s, tile);
  if (s.o.cautious != 0) run_cautious<T>(s, phase, tile);
}

template <class T>
void finish_as(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::cover) finish_cover<T>(s);
  if (done == PhaseKind::agreement) finish_agreement(s, PhaseKind::agreement);
}

}  // namespace

constexpr Kernel kSm3 = kernel_by_type<finish_as<float>, finish_as<double>, run_as<float>, run_as<double>>();

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace came::cpu {

const Kernel& sm3_kernel(Target chosen) { CAME_CPU_CHOOSE(kSm3, chosen); }

}  // namespace came::cpu
#endif
