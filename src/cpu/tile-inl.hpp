// Loops over tiles: by several rows at once, by spans of rows, or as one run of elements.
#if defined(CAME_CPU_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_TILE_INL
#undef CAME_CPU_TILE_INL
#else
#define CAME_CPU_TILE_INL
#endif

#include <array>

#include "cpu/stream-inl.hpp"
#include "cpu/subject.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {

/// Rows taken together: sums over columns are loaded and stored once for all of them, and the next ones are prefetched
/// into the second cache meanwhile.
inline constexpr size_t kRows = 4;

/// Calls f(i, number of rows as a constant) for a range of rows.
template <size_t kBlock = kRows, class F>
HWY_INLINE void for_row_blocks(Range rows, const F& f) {
  const int64_t end = rows.begin + rows.count;
  int64_t i = rows.begin;
  for (; i + static_cast<int64_t>(kBlock) <= end; i += kBlock) f(i, std::integral_constant<size_t, kBlock>());
  for (; i < end; ++i) f(i, std::integral_constant<size_t, 1>());
}

/// Calls f(j, n) for the chunks of a range of columns.
template <class F>
HWY_INLINE void for_chunks(Range cols, const F& f) {
  constexpr auto kStep = static_cast<int64_t>(kChunk);
  for (int64_t j = cols.begin; j < cols.begin + cols.count; j += kStep) {
    f(j, std::min(kStep, cols.begin + cols.count - j));
  }
}

/// Calls f(b, span) for all elements of a tile.  Where rows follow each other in memory and in the whole tensor, and no
/// code cares where they begin, they are one run.
template <class F>
HWY_INLINE void for_spans(const Subject& s, const Tile& tile, const F& f) {
  const bool codes = s.momentum.scales != nullptr || s.second_moment.scales != nullptr;
  const bool run = tile.cols.count == s.t.view.cols && !codes;
  for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
    if (run) {
      for_chunks({0, tile.rows.count * tile.cols.count},
                 [&](int64_t j, int64_t n) { f(b, s.span(b, tile.rows.begin, j, n)); });
      continue;
    }
    for (int64_t i = tile.rows.begin; i < tile.rows.begin + tile.rows.count; ++i) {
      for_chunks(tile.cols, [&](int64_t j, int64_t n) { f(b, s.span(b, i, j, n)); });
    }
  }
}

/// R rows of a storage from one column on.
template <class T, size_t R>
struct Rows {
  Span span[R];
  T* row[R];
  HWY_ALIGN T scratch[R][kChunk];

  HWY_INLINE Rows(const Subject& s, const Storage& storage, int64_t b, int64_t i, int64_t j, int64_t n) {
    for (size_t r = 0; r < R; ++r) {
      span[r] = s.span(b, i + static_cast<int64_t>(r), j, n);
      row[r] = values_of(storage, span[r], scratch[r]);
    }
  }
  /// The rows, apart from the scratch: a copy stays in registers.
  [[nodiscard]] HWY_INLINE std::array<T*, R> rows() const {
    std::array<T*, R> all;
    for (size_t r = 0; r < R; ++r) all[r] = row[r];
    return all;
  }
};

/// theta <- theta - (decay * theta + move(j, lanes)), in one rounding; a change of 0 keeps even the sign of a zero.
template <class T, class Move>
HWY_INLINE void move_param(const Subject& s, const Span& span, double decay, const Move& move) {
  HWY_ALIGN T scratch[kChunk];
  T* p = values_of(s.param, span, scratch);
  const Vec<T> shrink = set(static_cast<T>(decay));
  if (decay != 0) {
    for_lanes<T>(span.n, [&](size_t j, auto at) CAME_LANES {
      const Vec<T> old = at.load(p + j);
      at.store(hn::Sub(old, hn::Add(hn::Mul(shrink, old), move(j, at))), p + j);
    });
  } else {
    for_lanes<T>(span.n, [&](size_t j, auto at) CAME_LANES {
      at.store(hn::Sub(at.load(p + j), hn::Add(hn::Zero(Lanes<T>()), move(j, at))), p + j);
    });
  }
  store(s.param, span, p);
}

/// Adds up value(j, lanes) over a span: in f32 lanes, then in f64.
template <class T, class Value>
HWY_INLINE double sum_over(size_t n, const Value& value) {
  Sum<T> sum;
  for_lanes<T>(n, [&](size_t j, auto at) CAME_LANES { sum.add(j, value(j, at)); });
  return sum.total();
}

/// Adds up the squares of value(j, lanes) over a span again, in f64, if their sum in T is not to be trusted.
template <class T, class Value>
HWY_INLINE double sound_squares(double sum, size_t n, const Value& value) {
  if (sizeof(T) == sizeof(double) || algorithms::is_sound_sum_of_squares(sum)) return sum;
  HWY_ALIGN T values[kChunk];
  for_lanes<T>(n, [&](size_t j, auto at) CAME_LANES { at.store(value(j, at), values + j); });
  double total = 0;
  for (size_t j = 0; j < n; ++j) total += static_cast<double>(values[j]) * static_cast<double>(values[j]);
  return total;
}
template <class T, class Value>
HWY_INLINE double squares_over(size_t n, const Value& value) {
  const double sum = sum_over<T>(n, [&](size_t j, auto at) CAME_LANES { return square(value(j, at)); });
  return sound_squares<T>(sum, n, value);
}

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
