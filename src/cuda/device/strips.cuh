// Rows of a matrix that are taken a strip at a time, each strip by one warp: what a thread does for a row is shared by
// many columns, and no warp waits for another unless a row has several strips.
#pragma once

#include "cuda/device/ahead.cuh"
#include "cuda/device/launch.cuh"

namespace came::cuda {

inline constexpr int kStripThreads = kNarrow;
inline constexpr int kStripWarps = kStripThreads / kWarp;

/// The strip of this thread's warp: of each row `Vectors` vectors per thread, a warp's width apart.
template <class K, int Vectors>
struct Strip {
  static constexpr int N = K::N;
  static constexpr int kApart = kWarp * N;
  static constexpr int kWidth = Vectors * kApart;

  int cols;
  int strips;         ///< Side by side in a row: a power of two.
  int strip;          ///< Of this warp.
  int groups, group;  ///< Of warps that have the same rows: each every groups-th row.
  int lane;
  int col;  ///< The first of this thread.

  explicit __device__ Strip(int64_t columns) : cols(static_cast<int>(columns)), strips(1) {
    while (strips * kWidth < cols) strips *= 2;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    lane = static_cast<int>(threadIdx.x) % kWarp;
    strip = warp % strips;
    groups = kStripWarps / strips;
    group = warp / strips;
    col = strip * kWidth + lane * N;
  }

  /// Vector v of a row whose first one is at w, and the place that it is to be found in.
  __device__ __forceinline__ typename K::At vector(const typename K::At& w, int v) const {
    if constexpr (K::kPlain) {
      return {w.first, w.there && col + v * kApart < cols};
    } else {
      const int left = cols - col - v * kApart;
      const int count = !w.any() || left <= 0 ? 0 : left < N ? left : N;
      return {w.row, col + v * kApart, count, w.aligned && count == N, kWarp};
    }
  }
  /// Is the warp's part of it there?
  __device__ __forceinline__ bool begins(const typename K::At& w, int v) const {
    return w.any() && col - lane * N + v * kApart < cols;
  }
  template <class Storage>
  __device__ __forceinline__ Place place(const Place& p, int v) const {
    if constexpr (K::kPlain) return Storage::after(p, v * kApart);
    return p;
  }

  /// The sum over the strips of a row; `round` tells one use from the next.  All threads of the block must come.
  __device__ float across(float mine, int round) const {
    __shared__ float parts[2][kStripWarps];
    if (strips == 1) return mine;
    const int first = group * strips;
    if (lane == 0) parts[round & 1][first + strip] = mine;
    __syncthreads();
    float total = 0;
#pragma unroll 1
    for (int k = 0; k < strips; ++k) total += parts[round & 1][first + k];
    return total;
  }

  /// Adds up what the groups have of each column, one after the other, in `room` for all of them.
  __device__ void leave(const float (&sums)[Vectors][N], float* room, float* to) const {
    using Item = Vector<float, N>;
    __syncthreads();
#pragma unroll 1
    for (int round = 0; round < groups; ++round) {
      if (round == group) {
#pragma unroll
        for (int v = 0; v < Vectors; ++v) {
          auto* cell = reinterpret_cast<Item*>(room + col + v * kApart);
          Item sum = round == 0 ? Item{} : *cell;
#pragma unroll
          for (int n = 0; n < N; ++n) sum.v[n] += sums[v][n];
          *cell = sum;
        }
      }
      __syncthreads();
    }
    for (int j = static_cast<int>(threadIdx.x); j < cols; j += kStripThreads) to[j] = room[j];
  }
};

}  // namespace came::cuda
