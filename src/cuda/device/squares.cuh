// Squared gradients of a part: averages over what a team owns, and sums of the rest, plain and weighted.
// docs/algorithms.md, equations (5) and (6), "Three passes".
#pragma once

#include "cuda/device/update.cuh"

namespace came::cuda {

/// Rows up to here leave lanes of a warp to other rows.
inline constexpr int64_t kNarrowRow = kColumns * kWarp / 2;

/// Vectors that a thread keeps in registers while the averages of their rows are finished.
inline constexpr int kHeld = 4;

/// Sums of a row that the warps of a block have in part; two, so that one barrier per use is enough.
template <class T, int Threads>
struct RowSums {
  alignas(16) T part[2][kHeld][Threads / kWarp];
};

/// The pass of a team over what it takes.
template <class K, int Threads>
struct SquaresPass {
  using T = typename K::T;
  using G = typename K::Param;
  static constexpr int N = K::N;

  const Team<Threads>& team;
  const Subject<T>& s;
  const Update<T>& update;
  RowSums<T, Threads>& sums;
  Place grad;
  T multiplier;

  __device__ SquaresPass(const Team<Threads>& t, const Update<T>& u, RowSums<T, Threads>& r, int64_t b)
      : team(t), s(u.s), update(u), sums(r), grad(u.s.grad(b)), multiplier(u.s.multiplier()) {}

  /// Gradients as the optimizer sees them.
  __device__ void gradients(const typename G::template Raw<N>& raw, T (&x)[N]) const {
    G::decode(grad, raw, x);
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] *= multiplier;
  }

  /// What the averages of R rows become, and their weights, from what the threads of each have to add up.  Lanes
  /// share the rows; `round` tells one use from the next.
  /// `averages` are those of the rows from the first on, `left` says how many there are.
  template <bool Full, int R>
  __device__ void average_rows(const Grid<N, Threads>& grid, T (&mine)[R], T (&weights)[R], int round, T* averages,
                               int left, T rate, T share, T eps) const {
    constexpr int kGroup = kWarp / R;
    const int lane = team.rank % kWarp;
    const int warp = team.rank / kWarp;
    const int warps = grid.warps();
    if (!Full && grid.lanes() < kWarp) {  // rows narrower than a warp: each has its own
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int i = grid.y + r * grid.down;
        const T old = i < left ? averages[i] : T{1};  // by all its lanes, before one of them writes
        const T total = over_lanes<Add>(mine[r], grid.lanes());
        const T average = blend(old, rate, total * share + eps);
        weights[r] = i < left ? weight_of(average) : T{0};
        if (i < left && grid.x == 0) averages[i] = average;
      }
      return;
    }
    const int row = lane / kGroup;
    const int i = grid.y + row * grid.down;
    const T old = i < left ? averages[i] : T{1};
    T total = rows_over_warp<Add>(mine);
    if (warps > 1) {
      if (lane % kGroup == 0) sums.part[round][row][warp] = total;
      team.sync();
      const T* parts = sums.part[round][row] + (warp & -warps);
      static_assert(2 * kGroup >= Team<Threads>::kWarps, "two for each lane at most");
      const int w = lane % kGroup;
      total = (w < warps ? parts[w] : T{0}) + (w + kGroup < warps ? parts[w + kGroup] : T{0});
      total = over_lanes<Add>(total, kGroup);
    }
    const T average = blend(old, rate, total * share + eps);
    const T weight = i < left ? weight_of(average) : T{0};
    if (i < left && (warp & (warps - 1)) == 0 && lane % kGroup == 0) averages[i] = average;
#pragma unroll
    for (int r = 0; r < R; ++r) weights[r] = __shfl_sync(kAll, weight, r * kGroup);
  }

  /// Owned rows of matrix b, held in registers: each average is finished while its row is at hand, and then weighs the
  /// row in the second sum over columns.
  template <bool Full, int Q, int R>
  CAME_MAIN_ROUTE void rows_held(int64_t b, Range rows, T* plain, T* weighted) const {
    const int64_t cols = s.t.cols;
    const Grid<N, Threads> grid(team.rank, cols);
    const auto frame = s.template frame<K::kPlain>(b, grid.lanes());
    T* averages = update.averages.row + s.row_at(b, rows.begin);
    const T rate = update.averages.rate();
    const T eps = static_cast<T>(update.averages.eps);
    const T share = static_cast<T>(1 / static_cast<double>(s.t.whole_cols));
    const int count = static_cast<int>(rows.count);
    T over[2][Q][N] = {};
    typename K::At top[Q];
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      const int64_t j = (grid.x + q * grid.across) * N;
      top[q] = frame.where(rows.begin + grid.y, j, cols - j);
    }
    typename G::template Raw<N> raw[R][Q];
    const auto load = [&](int from) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int below = from + r * grid.down;
#pragma unroll
        for (int q = 0; q < Q; ++q) {
          raw[r][q] = G::template load<N>(grad, top[q].below(below, cols, grid.y + below < count));
        }
      }
    };
    load(0);
    int round = 0;
    for (int base = 0; base < count; base += grid.down * R, round ^= 1) {
      T x[R][Q][N];
      T mine[R];
      T weights[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        mine[r] = 0;
#pragma unroll
        for (int q = 0; q < Q; ++q) {
          gradients(raw[r][q], x[r][q]);
#pragma unroll
          for (int n = 0; n < N; ++n) mine[r] = fused(x[r][q][n], x[r][q][n], mine[r]);
        }
      }
      load(base + grid.down * R);  // on its way while these rows are finished
      average_rows<Full>(grid, mine, weights, round, averages + base, count - base, rate, share, eps);
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int q = 0; q < Q; ++q) {
#pragma unroll
          for (int n = 0; n < N; ++n) {
            over[0][q][n] = fused(x[r][q][n], x[r][q][n], over[0][q][n]);
            x[r][q][n] *= weights[r];
            over[1][q][n] = fused(x[r][q][n], x[r][q][n], over[1][q][n]);
          }
        }
      }
    }
    T* const to[2] = {plain, weighted};
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      T both[2][N];
#pragma unroll
      for (int n = 0; n < N; ++n) {
        both[0][n] = over[0][q][n];
        both[1][n] = over[1][q][n];
      }
      const int64_t j = (grid.x + q * grid.across) * N;
      const int64_t room = cols - j;
      grid.template over_rows<Add>(team, both, room < 0 ? 0 : room < N ? static_cast<int>(room) : N, j, to, true);
    }
  }

  /// The same for rows too wide to be held: a second read, mostly from the cache.
  CAME_ROUTE void rows_read_twice(int64_t b, Range rows, T* plain, T* weighted) const {
    constexpr int R = kHeld;
    const int64_t cols = s.t.cols;
    const Grid<N, Threads> grid(team.rank, cols);
    const auto frame = s.template frame<K::kPlain>(b, grid.lanes());
    T* averages = update.averages.row + s.row_at(b, 0);
    const T rate = update.averages.rate();
    const T eps = static_cast<T>(update.averages.eps);
    const T share = static_cast<T>(1 / static_cast<double>(s.t.whole_cols));
    int round = 0;
    for (int64_t base = 0; base < rows.count; base += R, round ^= 1) {
      T mine[R] = {};
      T weights[R];
      const auto load = [&](int r, int64_t j) {
        return G::template load<N>(grad, frame.where(rows.begin + base + r, j, cols - j, base + r < rows.count));
      };
      for (int64_t j = grid.x * N; j < cols; j += Threads * N) {
        typename G::template Raw<N> raw[R];
#pragma unroll
        for (int r = 0; r < R; ++r) raw[r] = load(r, j);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          T x[N];
          gradients(raw[r], x);
#pragma unroll
          for (int n = 0; n < N; ++n) mine[r] = fused(x[n], x[n], mine[r]);
        }
      }
      average_rows<true>(grid, mine, weights, round, averages + rows.begin + base, static_cast<int>(rows.count - base),
                         rate, share, eps);
      for (int64_t j = grid.x * N; j < cols; j += Threads * N) {
        typename G::template Raw<N> raw[R];
        T over[2][N] = {};
#pragma unroll
        for (int r = 0; r < R; ++r) raw[r] = load(r, j);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          T x[N];
          gradients(raw[r], x);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            over[0][n] = fused(x[n], x[n], over[0][n]);
            x[n] *= weights[r];
            over[1][n] = fused(x[n], x[n], over[1][n]);
          }
        }
        const int64_t count = cols - j < N ? cols - j : N;
        for (int n = 0; n < count; ++n) {
          plain[j + n] = base == 0 ? over[0][n] : plain[j + n] + over[0][n];
          weighted[j + n] = base == 0 ? over[1][n] : weighted[j + n] + over[1][n];
        }
      }
    }
    team.sync();
  }

  CAME_ROUTE void owned_rows(int64_t b, Range rows, T* plain, T* weighted) const {
    constexpr int64_t kReach = static_cast<int64_t>(Threads) * N;
    if (s.t.cols <= kReach) return rows_held<false, 1, kHeld>(b, rows, plain, weighted);
    if (s.t.cols <= 2 * kReach) return rows_held<true, 2, kHeld / 2>(b, rows, plain, weighted);
    if (s.t.cols <= 4 * kReach) return rows_held<true, 4, kHeld / 4>(b, rows, plain, weighted);
    rows_read_twice(b, rows, plain, weighted);
  }

  /// A whole matrix; returns the sum of its squared updates.
  CAME_ROUTE double whole_matrix(int64_t b, T* columns) const {
    const int64_t n = s.t.rows;
    const int64_t m = s.t.cols;
    T* weighted = columns + m;
    owned_rows(b, {0, n}, columns, weighted);
    const double over = team.sum_of(m, [&](int64_t j) {
      const T c = update.averages.average_col(b, j, static_cast<double>(columns[j]));
      return static_cast<double>(weighted[j]) / static_cast<double>(c);
    });
    return update.averages.mean_of_rows(team, b) * over * algorithms::kWeightUnscale;
  }

  /// Sums over a panel of squares of gradients times the columns' multipliers: over rows into `cols` (plus what is
  /// there unless `fresh`), over columns into `rows`, to which they are added.
  template <class ColMultiplier>
  CAME_ROUTE void sum_panel(Shelf<T, Threads>& shelf, int64_t b, const Part& part, Range cols, T* to_cols, bool fresh,
                            T* to_rows, const ColMultiplier& col_multiplier) const {
    reduce_panel<Add, K, 2>(
        team, s, shelf, b, Range{part.row, part.rows}, cols, [](int64_t) { return T{1}; }, col_multiplier, to_cols,
        fresh, [&](const typename K::At& w) { return G::template load<N>(grad, w); },
        [&](const typename K::At&, const typename G::template Raw<N>& raw, T, const T(&col)[N], T(&values)[N]) {
          gradients(raw, values);
#pragma unroll
          for (int n = 0; n < N; ++n) values[n] = square(values[n] * col[n]);
        },
        [&](int64_t i, double total, bool) {
          if (to_rows != nullptr) to_rows[i - part.row] += static_cast<T>(total);
        });
  }

  /// Owned columns, a strip at a time: their averages, then both sums over rows.
  CAME_ROUTE void owned_columns(Shelf<T, Threads>& shelf, const Part& part, T* columns) const {
    const int64_t b = part.batch;
    T* plain = s.rows(part, core::kSquares);
    T* weighted = s.rows(part, core::kWeightedSquares);
    T* weights = columns + kStrip;
    for (int64_t i = team.rank; i < 2 * part.rows; i += Threads) plain[i] = 0;
    team.sync();
    for (int64_t j = 0; j < part.cols; j += kStrip) {
      const Range strip{part.col + j, part.cols - j < kStrip ? part.cols - j : kStrip};
      sum_panel(shelf, b, part, strip, columns, true, plain, [](int64_t) { return T{1}; });
      for (int64_t k = team.rank; k < strip.count; k += Threads) {
        weights[k] = weight_of(update.averages.average_col(b, strip.begin + k, static_cast<double>(columns[k])));
      }
      team.sync();
      sum_panel(shelf, b, part, strip, columns, true, weighted,
                [&](int64_t col) { return weights[col - strip.begin]; });
      team.sync();
    }
  }

  /// A tensor without rows and columns; returns the sum of its squared updates.
  CAME_ROUTE double elements(const Part& part) const {
    const Place full = s.full(s.t.states.full, part.batch);
    using S = typename Statistic<T>::Type;
    const T rate = update.averages.rate();
    const T eps = static_cast<T>(update.averages.eps);
    double sum = 0;
    for_vectors<K, 2>(team, s, part.batch, part, [&](const typename K::At(&w)[2]) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        T x[N];
        T v[N];
        gradients(G::template load<N>(grad, w[r]), x);
        S::decode(full, S::template load<N>(full, w[r]), v);
        T mine = 0;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          v[n] = blend(v[n], rate, square(x[n]) + eps);
          if (w[r].has(n)) mine += square(Update<T>::full_update(x[n], T{1}, v[n], T{1}));
        }
        S::template store<N>(full, w[r], v);
        sum += static_cast<double>(mine);
      }
    });
    return team.sum(sum);
  }
};

}  // namespace came::cuda
