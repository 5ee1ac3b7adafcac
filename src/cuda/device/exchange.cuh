// What the blocks of a resident matrix leave for each other: sums per column, multipliers of columns, and
// numbers of each block.
#pragma once

#include "cuda/device/notes.cuh"

namespace came::cuda {

/// Columns whose sums few pieces have left.
struct FewSums {
  const float* first;  ///< Of the first piece,
  int64_t apart;       ///< and so far apart the others'.
  int count;
  int cols;
  float* averages;
  float* roots;
  float rate;
  double eps, share;
};
/// Exchange::finish_columns() for many columns of few pieces: every thread takes some.  Sums are added in f64.
template <bool Weighted>
CAME_ROUTE void finish_few(const FewSums& sums, Range columns, float* scratch, double* weighted) {
  double over = 0;
#pragma unroll 1
  for (int64_t j = columns.begin + threadIdx.x; j < columns.begin + columns.count; j += kThreads) {
    double total[2] = {0, 0};
#pragma unroll 1
    for (int k = 0; k < sums.count; ++k) {
      const float* sum = sums.first + k * sums.apart + j;
      total[0] += static_cast<double>(__ldcg(sum));
      if (Weighted) total[1] += static_cast<double>(__ldcg(sum + sums.cols));
    }
    const float c = blend(sums.averages[j], sums.rate, static_cast<float>(total[0] * sums.share + sums.eps));
    sums.averages[j] = c;
    sums.roots[j] = 1.0F / sqrtf(c);
    over += total[1] * static_cast<double>(1.0F / c);  // the quotient may be beyond f32
  }
  if (!Weighted) return;
  over = over_lanes<Add>(over, kWarp);
  auto* warps = reinterpret_cast<double*>(scratch);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = over;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) over += warps[w];
  *weighted = over;
}

/// One block's part in it.  `Together`: all of it happens in one launch in which other data streams through the second
/// cache, which keeps sums.
template <int Fold, bool Together>
struct Exchange {
  static constexpr int N = kColumns;
  static constexpr int kFolds = 1 << Fold;  ///< Items side by side in a row.

  const ResidentArgs& run;
  const Notes& notes;
  float* scratch;  ///< Of the block.
  int thread;
  int cols;
  float columns[kFolds][N];  ///< Multipliers of this thread's columns.

  __device__ __forceinline__ Exchange(const ResidentArgs& r, const Notes& n, float* sums)
      : run(r), notes(n), scratch(sums), thread(ask_for_thread()), cols(n.whole(Word::cols)) {}

  [[nodiscard]] __device__ __forceinline__ int lane() const { return thread % kWarp; }
  [[nodiscard]] __device__ __forceinline__ int warp() const { return thread / kWarp; }

  // All lanes must ask for these, like notes.
  [[nodiscard]] __device__ __forceinline__ int index() const { return notes.whole(Word::index); }
  /// Blocks of the matrix.
  [[nodiscard]] __device__ __forceinline__ int all() const { return notes.whole(Word::count); }
  /// Where the first of them leaves its sums per column, the next `run.area` further,
  [[nodiscard]] __device__ __forceinline__ float* areas() const {
    return run.areas + notes.whole(Word::base) * run.area;
  }
  /// and where they leave multipliers of columns,
  [[nodiscard]] __device__ __forceinline__ float* roots() const { return run.results + notes.whole(Word::results); }
  /// and what else they have, one after the other.
  [[nodiscard]] __device__ __forceinline__ double* scalars(Sum which) const {
    return reinterpret_cast<double*>(roots() + cols) + static_cast<int>(which) * all();
  }

  __device__ __forceinline__ void leave_columns(const float (&sums)[kFolds][N], int vector, bool first_of_block) const {
    auto* to = reinterpret_cast<Item*>(areas() + index() * run.area + vector * cols);
#pragma unroll
    for (int c = 0; c < kFolds; ++c) {
      const int j = c * kThreads + thread;
      if (j * N >= cols) continue;
      Item sum = first_of_block ? Item{} : to[j];
#pragma unroll
      for (int n = 0; n < N; ++n) sum.v[n] += sums[c][n];
      if (Together) leave(to[j].v, sum.v);
      if (!Together) to[j] = sum;
    }
  }

  /// The piece's share of the columns: their averages, and what later passes multiply with.  Sums of pieces are added
  /// in f32 by each warp over an eighth of them, in order, then in f64.  Calls wait() before it looks at them;
  /// then nobody may still look at the scratch.
  template <bool Weighted, class Wait>
  __device__ __forceinline__ void finish_columns(const Wait& wait) {
    thread = ask_for_thread();
    constexpr int kUnit = 8;  // columns that share a sector of memory
    auto* averages = notes.template pointer<float>(Weighted ? Word::col : Word::res_col);
    const float rate = notes.rounded(Weighted ? Word::rate2 : Word::rate3);
    const double eps = notes.number(Weighted ? Word::eps1 : Word::eps2);
    const double share = notes.number(Word::share_of_row);
    const int pieces = all();
    const int width = ((cols + pieces - 1) / pieces + kUnit - 1) / kUnit * kUnit;
    const int begin = index() * width;
    const int count = cols - begin < width ? cols - begin : width;
    const int run_of_warp = (pieces + kWarps - 1) / kWarps;
    const int first = warp() * run_of_warp;
    const int last = first + run_of_warp < pieces ? first + run_of_warp : pieces;
    const float* left = areas();
    float* multipliers = roots();
    double* weighted = scalars(Sum::weighted) + index();
    double over = 0;
    float old = warp() == 0 && lane() < count ? averages[begin + lane()] : 0.0F;
    wait();
    if (pieces < kFewPieces) {
      finish_few<Weighted>({left, run.area, pieces, cols, averages, multipliers, rate, eps, share}, {begin, count},
                           scratch, weighted);
      return;
    }
    for (int from = 0; from < count; from += kWarp) {
      const int j = begin + from + lane();
      const bool there = from + lane() < count;
      float sums[2] = {0.0F, 0.0F};
#pragma unroll 1
      for (int k = first; k < last; k += kSumsAtOnce) {
        float loaded[2][kSumsAtOnce];
#pragma unroll
        for (int x = 0; x < kSumsAtOnce; ++x) {
          const bool has = there && k + x < last;
          const float* sum = left + (k + x) * run.area + j;
          loaded[0][x] = has ? __ldcg(sum) : 0.0F;
          loaded[1][x] = Weighted && has ? __ldcg(sum + cols) : 0.0F;
        }
#pragma unroll
        for (int x = 0; x < kSumsAtOnce; ++x) {
          sums[0] += loaded[0][x];
          sums[1] += loaded[1][x];
        }
      }
      double total[2] = {0, 0};
#pragma unroll
      for (int v = 0; v < (Weighted ? 2 : 1); ++v) {
        if (v > 0 || from > 0) __syncthreads();
        scratch[warp() * kWarp + lane()] = sums[v];
        __syncthreads();
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total[v] += static_cast<double>(scratch[w * kWarp + lane()]);
      }
      if (warp() == 0 && there) {
        if (from > 0) old = averages[j];
        const float c = blend(old, rate, static_cast<float>(total[0] * share + eps));
        averages[j] = c;
        multipliers[j] = 1.0F / sqrtf(c);
        over += total[1] * static_cast<double>(1.0F / c);  // the quotient may be beyond f32
      }
    }
    if (Weighted && warp() == 0) {
      over = over_lanes<Add>(over, kWarp);
      if (thread == 0) *weighted = over;
    }
  }

  /// Fetches the columns' multipliers, and adds up the pieces' scalars.  Nobody may still look at the scratch.
  template <int Count>
  __device__ __forceinline__ void gather(Sum which, double (&sums)[Count]) {
    static_assert(kWavesAtOnce * kMostPieces <= kThreads);
    const int pieces = all();
    const double* from = scalars(which);
    const auto* multipliers = reinterpret_cast<const float4*>(roots());
#pragma unroll
    for (int v = 0; v < Count; ++v) sums[v] = thread < pieces ? __ldcg(from + v * pieces + thread) : 0.0;
#pragma unroll
    for (int c = 0; c < kFolds; ++c) {
      const int j = c * kThreads + thread;
      const float4 root = j * N < cols ? __ldcg(multipliers + j) : float4{0, 0, 0, 0};
      columns[c][0] = root.x;
      columns[c][1] = root.y;
      columns[c][2] = root.z;
      columns[c][3] = root.w;
    }
    auto* warps = reinterpret_cast<double*>(scratch);
#pragma unroll
    for (int v = 0; v < Count; ++v) {
      const double of_warp = over_lanes<Add>(sums[v], kWarp);
      if (lane() == 0) warps[v * kWarps + warp()] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < Count; ++v) {
      sums[v] = 0;
      for (int w = 0; w < kWarps; ++w) sums[v] += warps[v * kWarps + w];
    }
  }
};

}  // namespace came::cuda
