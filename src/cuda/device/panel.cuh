// Loops over parts of tensors: element by element, by rows and columns with a multiplier for each, and with reductions
// over both.  All threads of a warp stay together, so that bodies may exchange what they have.
#pragma once

#include "cuda/device/subject.cuh"

namespace came::cuda {

/// Shared memory of a team for one panel.
template <class T, int Threads>
struct Shelf {
  /// Rows whose multipliers wait in it.
  static constexpr int kSegment = Threads == kWarp ? 32 : 128;
  T row[kSegment];
  T part[kSegment][Threads / kWarp];
  double total[kSegment];
};

/// Calls body(where[R]) for all vectors of a part of matrix b, R at a time.
template <class K, int R, int Threads, class T, class Body>
__device__ inline void for_vectors(const Team<Threads>& team, const Subject<T>& s, int64_t b, const Part& part,
                                   const Body& body) {
  constexpr int N = K::N;
  // Rows that follow each other are one long row, unless codes begin anew with each.
  const bool joined = (K::kPlain || s.t.contiguous) && part.cols == s.t.cols;
  const int64_t rows = joined ? 1 : part.rows;
  const int64_t cols = joined ? part.rows * part.cols : part.cols;
  const int64_t vectors = (cols + N - 1) / N;
  // A block of codes begins at a lane whose number its size divides.
  const int64_t wide = rows == 1 ? vectors : (vectors + kCodeLanes - 1) / kCodeLanes * kCodeLanes;
  const int64_t total = rows * wide;
  const auto frame = s.template frame<K::kPlain>(b, kWarp);
  const int64_t first_row = part.row;
  const int64_t first_col = part.col;
  for (int64_t base = 0; base < total; base += Threads * R) {
    typename K::At w[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int64_t v = base + r * Threads + team.rank;
      const int64_t i = rows == 1 ? 0 : v / wide;
      const int64_t j = (v - i * wide) * N;
      w[r] = frame.where(first_row + i, first_col + j, cols - j, v < total);
    }
    body(w);
  }
}

/// Goes through a panel of matrix b with load(where) for R rows at once and then use(where, loaded, row multiplier,
/// column multipliers) for each.  The next rows are on their way meanwhile.  row_multiplier(i) is called once per row
/// by one thread, col_multiplier(j) once per column by each that needs it.
template <class K, int R, int Threads, class T, class RowMultiplier, class ColMultiplier, class Load, class Use>
__device__ inline void for_panel(const Team<Threads>& team, const Subject<T>& s, Shelf<T, Threads>& shelf, int64_t b,
                                 Range rows, Range cols, const RowMultiplier& row_multiplier,
                                 const ColMultiplier& col_multiplier, const Load& load, const Use& use) {
  constexpr int N = K::N;
  const Grid<N, Threads> grid(team.rank, cols.count);
  const auto frame = s.template frame<K::kPlain>(b, grid.lanes());
  constexpr int kSegment = Shelf<T, Threads>::kSegment;
  for (int64_t chunk = 0; chunk < cols.count; chunk += grid.across * N) {
    const int64_t j = chunk + grid.x * N;
    T col[N];
#pragma unroll
    for (int n = 0; n < N; ++n) col[n] = j + n < cols.count ? col_multiplier(cols.begin + j + n) : T{0};
    for (int64_t segment = 0; segment < rows.count; segment += kSegment) {
      const int height = static_cast<int>(rows.count - segment < kSegment ? rows.count - segment : kSegment);
      const int64_t first = rows.begin + segment;
      const auto top = frame.where(first + grid.y, cols.begin + j, cols.count - j);
      const auto at = [&](int below) { return top.below(below, frame.cols, grid.y + below < height); };
      decltype(load(top)) next[R];
#pragma unroll
      for (int r = 0; r < R; ++r) next[r] = load(at(r * grid.down));
      for (int i = team.rank; i < height; i += Threads) shelf.row[i] = row_multiplier(first + i);
      team.sync();
      for (int base = 0; base < height; base += grid.down * R) {
        decltype(load(top)) raw[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          raw[r] = next[r];
          next[r] = load(at(base + (R + r) * grid.down));
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const int i = base + r * grid.down;
          use(at(i), raw[r], shelf.row[grid.y + i < height ? grid.y + i : 0], col);
        }
      }
      team.sync();
    }
  }
}

/// Goes through a panel with load(where) for R rows at once and then use(where, loaded, row multiplier, column
/// multipliers, values) for each: values[N] are reduced by Op over rows into sums[0 .. cols.count), where what lies
/// there counts unless `fresh`, and over columns; done(i, total, first) gets the latter, from one thread per row, for
/// each run of columns that the team takes at once.
template <class Op, class K, int R, int Threads, class T, class RowMultiplier, class ColMultiplier, class Load,
          class Use, class Done>
__device__ inline void reduce_panel(const Team<Threads>& team, const Subject<T>& s, Shelf<T, Threads>& shelf, int64_t b,
                                    Range rows, Range cols, const RowMultiplier& row_multiplier,
                                    const ColMultiplier& col_multiplier, T* sums, bool fresh, const Load& load,
                                    const Use& use, const Done& done) {
  constexpr int N = K::N;
  const Grid<N, Threads> grid(team.rank, cols.count);
  const auto frame = s.template frame<K::kPlain>(b, grid.lanes());
  constexpr int kSegment = Shelf<T, Threads>::kSegment;
  const int lanes = grid.lanes();
  const int warps = grid.warps();
  for (int64_t chunk = 0; chunk < cols.count; chunk += grid.across * N) {
    const int64_t j = chunk + grid.x * N;
    T col[N];
    T over[1][N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      col[n] = j + n < cols.count ? col_multiplier(cols.begin + j + n) : T{0};
      over[0][n] = T{0};
    }
    for (int64_t segment = 0; segment < rows.count; segment += kSegment) {
      const int height = static_cast<int>(rows.count - segment < kSegment ? rows.count - segment : kSegment);
      const int64_t first = rows.begin + segment;
      const auto top = frame.where(first + grid.y, cols.begin + j, cols.count - j);
      const auto at = [&](int below) { return top.below(below, frame.cols, grid.y + below < height); };
      decltype(load(top)) next[R];
#pragma unroll
      for (int r = 0; r < R; ++r) next[r] = load(at(r * grid.down));
      for (int i = team.rank; i < height; i += Threads) shelf.row[i] = row_multiplier(first + i);
      team.sync();
      for (int base = 0; base < height; base += grid.down * R) {
        decltype(load(top)) raw[R];
        T of_row[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          raw[r] = next[r];
          next[r] = load(at(base + (R + r) * grid.down));
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const int i = base + r * grid.down;
          T values[N];
          use(at(i), raw[r], shelf.row[grid.y + i < height ? grid.y + i : 0], col, values);
          of_row[r] = values[0];
#pragma unroll
          for (int n = 1; n < N; ++n) of_row[r] = Op::of(of_row[r], values[n]);
#pragma unroll
          for (int n = 0; n < N; ++n) over[0][n] = Op::of(values[n], over[0][n]);
        }
        if (lanes == kWarp) {
          constexpr int kGroup = kWarp / R;
          const int r = team.rank % kWarp / kGroup;
          const int i = base + grid.y + r * grid.down;
          const T of_warp = rows_over_warp<Op>(of_row);
          if (team.rank % kGroup == 0 && i < height) shelf.part[i][grid.x / kWarp] = of_warp;
        } else {
#pragma unroll
          for (int r = 0; r < R; ++r) {
            const int i = base + grid.y + r * grid.down;
            const T of_lanes = over_lanes<Op>(of_row[r], lanes);
            if (i < height && grid.x == 0) shelf.part[i][0] = of_lanes;
          }
        }
      }
      team.sync();
      for (int i = team.rank; i < height; i += Threads) {
        double total = 0;
        for (int k = 0; k < warps; ++k) total = Op::of(static_cast<double>(shelf.part[i][k]), total);
        done(first + i, total, chunk == 0);
      }
      team.sync();
    }
    const int64_t room = cols.count - j;
    T* const to[1] = {sums};
    grid.template over_rows<Op>(team, over, room < 0 ? 0 : room < N ? static_cast<int>(room) : N, j, to, fresh);
  }
}

/// The last of `count` arrivals at a counter, which then is 0 again; what others wrote before they came is visible.
template <int Threads>
__device__ inline bool arrives_last(const Team<Threads>&, unsigned* counter, unsigned count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1U) == count - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace came::cuda
