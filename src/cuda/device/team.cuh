// Threads that work together: a block, or a warp where matrices are tiny.  Sums whose order depends on shapes alone.
#pragma once

#include <cstdint>

#include "algorithms/rounding.hpp"

namespace came::cuda {

/// A route that a kernel may take beside its main one: compiled by itself, so that it costs that one no registers.
#define CAME_ROUTE __noinline__ __device__
#define CAME_MAIN_ROUTE __forceinline__ __device__

inline constexpr int kWarp = 32;
inline constexpr unsigned kAll = 0xffffffffU;

struct Add {
  template <class T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};

/// The larger one; a NaN is larger than all.
struct Largest {
  template <class T>
  __device__ static T of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

/// Combines over the lanes whose numbers differ in bits below `width`, a power of two; all get the result.
template <class Op, class T>
__device__ inline T over_lanes(T value, int width) {
  for (int step = width / 2; step > 0; step /= 2) value = Op::of(value, __shfl_xor_sync(kAll, value, step));
  return value;
}

/// Combines R values each over a warp: lane k gets the one of row k / (32 / R).  Half as many shuffles as one by one,
/// or fewer.
template <class Op, int R, class T>
__device__ inline T rows_over_warp(T (&values)[R], int lane) {
  int step = kWarp / 2;
#pragma unroll
  for (int rows = R; rows > 1; rows /= 2, step /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int r = 0; r < rows / 2; ++r) {
      const T keep = upper ? values[r + rows / 2] : values[r];
      const T give = upper ? values[r] : values[r + rows / 2];
      values[r] = Op::of(keep, __shfl_xor_sync(kAll, give, step));
    }
  }
  return over_lanes<Op>(values[0], 2 * step);
}
template <class Op, int R, class T>
__device__ inline T rows_over_warp(T (&values)[R]) {
  return rows_over_warp<Op>(values, static_cast<int>(threadIdx.x) % kWarp);
}

template <int Threads>
struct Team {
  static constexpr int kThreads = Threads;
  static constexpr int kWarps = Threads / kWarp;

  int rank;   ///< Of this thread.
  int index;  ///< Of the team in its block.

  __device__ Team() : rank(static_cast<int>(threadIdx.x) % Threads), index(static_cast<int>(threadIdx.x) / Threads) {}

  __device__ void sync() const {
    if constexpr (Threads == kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  /// Sum over the team; all get it.
  __device__ double sum(double value) const {
    value = over_lanes<Add>(value, kWarp);
    if constexpr (Threads == kWarp) return value;
    __shared__ double warps[kWarps];
    if (rank % kWarp == 0) warps[rank / kWarp] = value;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < kWarps; ++w) total += warps[w];
    __syncthreads();
    return total;
  }

  /// Sum of f(k) for k below count, each thread its share.
  template <class F>
  __device__ double sum_of(int64_t count, F f) const {
    double value = 0;
#pragma unroll 16
    for (int64_t k = rank; k < count; k += Threads) value += f(k);
    return sum(value);
  }
};

/// The threads of a team laid over a panel of rows: `across` of them side by side, N columns each, in `down` rows.
template <int N, int Threads>
struct Grid {
  int across, down;
  int x, y;

  __device__ Grid(int rank, int64_t cols) {
    const int vectors = static_cast<int>(cols < Threads * N ? (cols + N - 1) / N : Threads);
    const int power = vectors <= 1 ? 0 : 32 - __clz(vectors - 1);
    across = 1 << power;
    down = Threads >> power;
    x = rank & (across - 1);
    y = rank >> power;
  }
  [[nodiscard]] __device__ int lanes() const { return across < kWarp ? across : kWarp; }
  /// Warps side by side in a row.
  [[nodiscard]] __device__ int warps() const { return across < kWarp ? 1 : across / kWarp; }

  /// Combines what the threads of one column have, from the top down, into `to`: what lies there counts unless `first`.
  template <class Op, class T, int Vectors>
  __device__ void over_rows(const Team<Threads>& team, T (&values)[Vectors][N], int count, int64_t at,
                            T* const (&to)[Vectors], bool first) const {
    for (int step = across; step < kWarp; step *= 2) {
      for (int v = 0; v < Vectors; ++v) {
        for (int n = 0; n < N; ++n) values[v][n] = Op::of(values[v][n], __shfl_xor_sync(kAll, values[v][n], step));
      }
    }
    const int rounds = across < kWarp ? Threads / kWarp : down;
    const int mine = across < kWarp ? team.rank / kWarp : y;
    const bool leads = across >= kWarp || team.rank % kWarp < across;
    for (int round = 0; round < rounds; ++round) {
      if (round == mine && leads) {
        for (int v = 0; v < Vectors; ++v) {
          for (int n = 0; n < count; ++n) {
            T& cell = to[v][at + n];
            cell = round == 0 && first ? values[v][n] : Op::of(cell, values[v][n]);
          }
        }
      }
      team.sync();
    }
  }
};

}  // namespace came::cuda
