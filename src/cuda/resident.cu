// CAME on matrices that stay on the chip: each block takes a piece of a matrix through all three visits and keeps its
// gradient, then its momentum, in shared memory and registers.  Bytes per parameter: G + 2M + 2P.
// docs/algorithms.md, equations (5) to (13); docs/performance.md, "Matrices that stay on the chip".
//
// Blocks of one matrix run side by side and wait for each other twice per reduction: once until every piece has left
// its sums per column, once until every piece has finished its share of the columns.  Waves of matrices take turns in
// the visits that stream momentum and parameters, so that one wave moves bytes while the others wait.
//
// Where blocks cannot run side by side, the same functions run one after the other, a launch each, and read again what
// they would have kept: the same bits.
#include <type_traits>

#include "cuda/device/launch.cuh"
#include "cuda/resident.hpp"

namespace came::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

/// Vectors of a piece that a thread takes: row by row, the columns of a row `kThreads` vectors at a time.
constexpr int kItems = kPiece / (kThreads * kColumns);
constexpr int kGroup = 4;  ///< Items taken together, and those on their way.

/// Scratch of a block, in floats: sums of each warp over a row's part of an item.
constexpr int kScratch = kItems * kWarps;

/// Four columns of a row: of the gradient, then of the momentum.
using Item = Vector<float, kColumns>;

/// Items that a thread keeps in registers, and in shared memory.
constexpr int kRegisters = 8;
constexpr int kShared = kItems - kRegisters;
constexpr size_t kBytes = (kShared + kGroup) * kThreads * sizeof(Item) + kScratch * sizeof(float);
static_assert(kBytes == kPieceBytes && kShared % kGroup == 0);

/// Brings an item to shared memory, some time before arrived(); zeros where there is none.
template <class W>
__device__ __forceinline__ void bring(Item* to, const Place& from, const W& w) {
  if constexpr (W::kPlain) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    const char* source = from.data + static_cast<size_t>(w.first) * sizeof(float);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(source), "r"(w.there ? 16 : 0)
                 : "memory");
  } else {
    *to = F32::load<kColumns>(from, w);
  }
}
__device__ inline void sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All but the last `Later` groups that were sent.
template <int Later>
__device__ inline void arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
}

__device__ inline void raise(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ inline void poll(const unsigned* counter, unsigned count) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < count);
}

/// What a block leaves for others beside sums per column.
enum class Sum : int32_t { squares, weighted, instability };

/// What a warp must know of a matrix: lane k has word k, so that nobody waits for memory.  All lanes must ask.
class Notes {
 public:
  __device__ __forceinline__ void read(const ResidentArgs& run, int tensor) {
    mine_ = tensor < 0 ? 0 : __ldcg(run.a.sheets[tensor].word + threadIdx.x % kWarp);
  }
  [[nodiscard]] __device__ __forceinline__ uint64_t word(Word k) const {
    return __shfl_sync(kAll, mine_, static_cast<int>(k));
  }
  [[nodiscard]] __device__ __forceinline__ double number(Word k) const {
    return __longlong_as_double(static_cast<long long>(word(k)));
  }
  [[nodiscard]] __device__ __forceinline__ float rounded(Word k) const { return static_cast<float>(number(k)); }
  [[nodiscard]] __device__ __forceinline__ int whole(Word k) const { return static_cast<int>(word(k)); }
  template <class U>
  [[nodiscard]] __device__ __forceinline__ U* pointer(Word k) const {
    return reinterpret_cast<U*>(word(k));
  }
  [[nodiscard]] __device__ __forceinline__ bool is_active() const { return word(Word::active) != 0; }
  /// Parameter, gradient or momentum, from an element on.
  [[nodiscard]] __device__ __forceinline__ Place place(Word data, int64_t first) const {
    const int64_t cols = whole(Word::cols);
    return {reinterpret_cast<char*>(pointer<float>(data) + first), nullptr, cols, DType::f32, false, false, 0, 0, cols};
  }

 private:
  uint64_t mine_ = 0;
};

/// One piece of a matrix whose rows take 2^Fold times `kThreads` vectors at most.
template <class W, int Fold>
struct Visitor {
  static constexpr int N = kColumns;
  static constexpr int kFolds = 1 << Fold;        ///< Items side by side in a row.
  static constexpr int kRows = kItems >> Fold;    ///< Of a piece.
  static constexpr int kEach = kThreads / kRows;  ///< Threads that finish a row.
  static_assert(kGroup % kFolds == 0, "a group is made of whole rows, or of parts of rows that share their columns");

  const ResidentArgs& run;
  const Notes& notes;
  const PieceTable& piece;
  Item* slots;     ///< Of this thread, `kThreads` apart; `kGroup` more for what is on its way.
  float* scratch;  ///< Of the block.
  Item (&registers)[kRegisters];

  int thread, lane, warp;
  int rows, cols, all_rows;
  int64_t first_row;
  int row;        ///< That this thread helps to finish.
  float average;  ///< Of that row: of squared gradients, then of the instability.
  float factor;   ///< Lane k: of row k.
  float columns[kFolds][N];

  __device__ __forceinline__ Visitor(const ResidentArgs& r, const Notes& n, const PieceTable& p, Item* items,
                                     float* sums, Item (&kept)[kRegisters])
      : run(r),
        notes(n),
        piece(p),
        slots(items + threadIdx.x),
        scratch(sums),
        registers(kept),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % kWarp),
        warp(thread / kWarp),
        cols(n.whole(Word::cols)),
        all_rows(n.whole(Word::rows)),
        row(thread / kEach) {
    go_to(p.index);
  }

  __device__ __forceinline__ void go_to(int number) {
    first_row = static_cast<int64_t>(number) * kRows;
    const int64_t left = all_rows - first_row;
    rows = left < kRows ? static_cast<int>(left) : kRows;
  }

  [[nodiscard]] __device__ __forceinline__ int64_t first() const { return first_row * cols; }
  [[nodiscard]] __device__ __forceinline__ W at(int item) const {
    const int i = item >> Fold;
    const int j = (item & (kFolds - 1)) * kThreads + thread;
    const bool there = i < rows && j * N < cols;
    if constexpr (W::kPlain) {
      return {static_cast<uint32_t>(i * cols + j * N), there};
    } else {
      return {i, static_cast<int64_t>(j) * N, there ? N : 0, false, kWarp};
    }
  }
  [[nodiscard]] __device__ __forceinline__ float of_row(int item) const {
    return __shfl_sync(kAll, factor, item >> Fold);
  }
  [[nodiscard]] __device__ bool finishes() const { return thread % kEach == 0 && row < rows; }

  [[nodiscard]] __device__ float* area(int index) const {
    return run.areas + static_cast<int64_t>(piece.base + index) * run.area;
  }
  [[nodiscard]] __device__ double* scalars(int index) const {
    return reinterpret_cast<double*>(area(index) + run.area) - kScalars;
  }
  [[nodiscard]] __device__ float* roots() const { return run.roots + piece.root; }

  /// Calls body(item, stored) for the items in shared memory, a group at a time, and those in registers; after(item,
  /// values) for each group with what body returned.
  template <class Body, class After>
  __device__ __forceinline__ void for_items(const Body& body, const After& after) {
#pragma unroll 1
    for (int q = 0; q < kShared; q += kGroup) {
      float values[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) values[k] = body(q + k, k, slots[(q + k) * kThreads]);
      after(q, values);
    }
#pragma unroll
    for (int q = kShared; q < kItems; q += kGroup) {
      float values[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) values[k] = body(q + k, k, registers[q + k - kShared]);
      after(q, values);
    }
  }

  /// Leaves the sum over this warp's share of each item in the scratch.
  __device__ __forceinline__ void sum_lanes(int item, float (&values)[kGroup]) const {
    constexpr int kLanes = kWarp / kGroup;
    const float total = rows_over_warp<Add>(values);
    if (lane % kLanes == 0) scratch[(item + lane / kLanes) * kWarps + warp] = total;
  }
  /// The sum over a row, in each of the threads that finish it.
  [[nodiscard]] __device__ __forceinline__ float sum_of_row() const {
    // kFolds items of kWarps numbers, as many as threads or fewer
    constexpr int kNumbers = kFolds * kWarps;
    static_assert(kNumbers <= kEach && kEach <= kWarp);
    const int k = thread % kEach;
    return over_lanes<Add>(k < kNumbers ? scratch[row * kNumbers + k] : 0.0F, kEach);
  }
  /// Sends a number per row to lane k of every warp.
  __device__ __forceinline__ void spread(float value) {
    constexpr int kAt = 64;  // beside what a thread may still be adding up
    if (thread % kEach == 0) scratch[kAt + row] = row < rows ? value : 0.0F;
    __syncthreads();
    factor = lane < kRows ? scratch[kAt + lane] : 0.0F;
    __syncthreads();
  }
  /// Adds up the averages of the piece's rows, for all blocks to see.
  __device__ __forceinline__ void sum_averages(Sum which, bool first_of_block) const {
    double sum = finishes() ? static_cast<double>(average) : 0.0;
#pragma unroll
    for (int step = kEach; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAll, sum, step);
    auto* warps = reinterpret_cast<double*>(scratch);
    __syncthreads();
    if (lane == 0) warps[warp] = sum;
    __syncthreads();
    if (thread == 0) {
      double& sum_of_block = scalars(piece.index)[static_cast<int>(which)];
      double total = first_of_block ? 0 : sum_of_block;
      for (int w = 0; w < kWarps; ++w) total += warps[w];
      sum_of_block = total;
    }
  }

  /// All of it, where another launch left it.
  __device__ __forceinline__ void load(const Place& from) {
#pragma unroll 1
    for (int q = 0; q < kShared; ++q) bring(slots + q * kThreads, from, at(q));
    sent();
#pragma unroll
    for (int q = kShared; q < kItems; ++q) registers[q - kShared] = F32::load<N>(from, at(q));
    arrived<0>();
  }
  __device__ __forceinline__ void load_average(Word state) {
    const float* averages = notes.template pointer<float>(state) + first_row;
    average = finishes() ? averages[row] : 1.0F;
  }

  /// (5) for its rows, and the sums over them of the squares, plain and weighted.
  __device__ __forceinline__ void statistics(bool first_of_block) {
    float* averages = notes.template pointer<float>(Word::row) + first_row;
    const float old = finishes() ? averages[row] : 1.0F;
    const float by = notes.rounded(Word::factor);
    for_items(
        [&](int, int, const Item& g) {
          float x[N];
#pragma unroll
          for (int n = 0; n < N; ++n) x[n] = square(g.v[n] * by);
          return (x[0] + x[1]) + (x[2] + x[3]);
        },
        [&](int item, float(&values)[kGroup]) { sum_lanes(item, values); });
    __syncthreads();
    const float share = 1.0F / static_cast<float>(cols);
    average = blend(old, notes.rounded(Word::rate2), sum_of_row() * share + notes.rounded(Word::eps1));
    if (finishes()) averages[row] = average;
    sum_averages(Sum::squares, first_of_block);
    spread(1.0F / average);
    float plain[kFolds][N] = {};
    float weighted[kFolds][N] = {};
    for_items(
        [&](int item, int k, const Item& g) {
          const float weight = of_row(item);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            const float x = square(g.v[n] * by);
            plain[k % kFolds][n] += x;
            weighted[k % kFolds][n] += x * weight;
          }
          return 0.0F;
        },
        [](int, const float(&)[kGroup]) {});
    leave_columns(plain, 0, first_of_block);
    leave_columns(weighted, 1, first_of_block);
  }

  __device__ __forceinline__ void leave_columns(const float (&sums)[kFolds][N], int vector, bool first_of_block) const {
    auto* to = reinterpret_cast<Item*>(area(piece.index) + vector * cols);
#pragma unroll
    for (int c = 0; c < kFolds; ++c) {
      const int j = c * kThreads + thread;
      if (j * N >= cols) continue;
      Item sum = first_of_block ? Item{} : to[j];
#pragma unroll
      for (int n = 0; n < N; ++n) sum.v[n] += sums[c][n];
      to[j] = sum;
    }
  }

  /// The piece's share of the columns: their averages, and what later visits multiply with.  Sums of pieces are added
  /// in f32 by each warp over an eighth of them, in order, then in f64.
  template <bool Weighted>
  __device__ __forceinline__ void finish_columns(const unsigned* counter) {
    constexpr int kUnit = 8;  // columns that share a sector of memory
    auto* averages = notes.template pointer<float>(Weighted ? Word::col : Word::res_col);
    const float rate = notes.rounded(Weighted ? Word::rate2 : Word::rate3);
    const double eps = notes.number(Weighted ? Word::eps1 : Word::eps2);
    const double share = notes.number(Word::share_of_row);
    const int width = ((cols + piece.count - 1) / piece.count + kUnit - 1) / kUnit * kUnit;
    const int begin = piece.index * width;
    const int count = cols - begin < width ? cols - begin : width;
    const int run_of_warp = (piece.count + kWarps - 1) / kWarps;
    const int first = warp * run_of_warp;
    const int last = first + run_of_warp < piece.count ? first + run_of_warp : piece.count;
    double over = 0;
    float old = warp == 0 && lane < count ? averages[begin + lane] : 0.0F;
    if (counter != nullptr) {
      if (thread == 0) poll(counter, static_cast<unsigned>(piece.count) * (Weighted ? 1U : 3U));
      __syncthreads();
    }
    for (int from = 0; from < count; from += kWarp) {
      const int j = begin + from + lane;
      const bool there = from + lane < count;
      float sums[2] = {0.0F, 0.0F};
      constexpr int kTogether = 16;
#pragma unroll 1
      for (int k = first; k < last; k += kTogether) {
        float loaded[2][kTogether];
#pragma unroll
        for (int x = 0; x < kTogether; ++x) {
          const bool has = there && k + x < last;
          const float* sum = area(k + x) + j;
          loaded[0][x] = has ? __ldcg(sum) : 0.0F;
          loaded[1][x] = Weighted && has ? __ldcg(sum + cols) : 0.0F;
        }
#pragma unroll
        for (int x = 0; x < kTogether; ++x) {
          sums[0] += loaded[0][x];
          sums[1] += loaded[1][x];
        }
      }
      double total[2] = {0, 0};
#pragma unroll
      for (int v = 0; v < (Weighted ? 2 : 1); ++v) {
        __syncthreads();
        scratch[warp * kWarp + lane] = sums[v];
        __syncthreads();
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total[v] += static_cast<double>(scratch[w * kWarp + lane]);
      }
      if (warp == 0 && there) {
        if (from > 0) old = averages[j];
        const float c = blend(old, rate, static_cast<float>(total[0] * share + eps));
        averages[j] = c;
        roots()[j] = 1.0F / sqrtf(c);
        over += static_cast<double>(static_cast<float>(total[1]) / c);
      }
    }
    if (Weighted && warp == 0) {
      over = over_lanes<Add>(over, kWarp);
      if (thread == 0) scalars(piece.index)[static_cast<int>(Sum::weighted)] = over;
    }
  }

  /// Fetches the columns' factors, and adds up the pieces' scalars.
  template <int Count>
  __device__ __forceinline__ void gather(Sum which, double (&sums)[Count]) {
    static_assert(kTeams * kMostPieces <= kThreads);
#pragma unroll
    for (int v = 0; v < Count; ++v) {
      sums[v] = thread < piece.count ? __ldcg(scalars(thread) + static_cast<int>(which) + v) : 0.0;
    }
#pragma unroll
    for (int c = 0; c < kFolds; ++c) {
      const int j = c * kThreads + thread;
      const auto* from = reinterpret_cast<const float4*>(roots());
      const float4 root = j * N < cols ? __ldcg(from + j) : float4{0, 0, 0, 0};
      columns[c][0] = root.x;
      columns[c][1] = root.y;
      columns[c][2] = root.z;
      columns[c][3] = root.w;
    }
    auto* warps = reinterpret_cast<double*>(scratch);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < Count; ++v) {
      const double of_warp = over_lanes<Add>(sums[v], kWarp);
      if (lane == 0) warps[v * kWarps + warp] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < Count; ++v) {
      sums[v] = 0;
      for (int w = 0; w < kWarps; ++w) sums[v] += warps[v * kWarps + w];
    }
  }

  /// What of momentum or parameters is on its way.
  __device__ __forceinline__ Item& ring(int item) const { return slots[(kShared + item % kGroup) * kThreads]; }
  __device__ __forceinline__ void start(const Place& from) const {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      bring(&ring(q), from, at(q));
      sent();
    }
  }

  /// (7) to (10): the momentum, and the sums of the instability.  Parameters are sent for when room is left.
  /// Waits for its turn as late as it can: turn(true) before the first element, turn(false) after the last.
  template <class Turn>
  __device__ __forceinline__ void momentum(bool first_of_block, const Turn& turn) {
    double sums[2];
    gather(Sum::squares, sums);
    const double share = notes.number(Word::share_of_row);
    const double mean = sums[0] * share;
    const float rms = sqrtf(static_cast<float>(mean * sums[1] * share) / static_cast<float>(cols));
    const float most = notes.rounded(Word::clip);
    const float ratio = rms > most ? rms / most : 1.0F;  // a NaN does not clip
    const float factor_of_row =
        notes.rounded(Word::factor) * (sqrtf(static_cast<float>(mean)) / ratio) / sqrtf(average);
    turn(true);
    spread(factor_of_row);
    float* averages = notes.template pointer<float>(Word::res_row) + first_row;
    const float residual = finishes() ? averages[row] : 1.0F;
    const float rate = notes.rounded(Word::rate1);
    const Place place = notes.place(Word::momentum, first());
    const Place param = notes.place(Word::param, first());
    float over[kFolds][N] = {};
    for_items(
        [&](int item, int k, Item& stored) {
          const W w = at(item);
          const float by = of_row(item);
          arrived<kGroup - 1>();
          const Item old = ring(k);
          float u[N];
          float m[N];
#pragma unroll
          for (int n = 0; n < N; ++n) {
            u[n] = stored.v[n] * by * columns[k % kFolds][n];
            m[n] = blend(old.v[n], rate, u[n]);
          }
          F32::store(place, w, m);
          const int later = item + kGroup;
          if (later < kItems) {
            bring(&ring(k), place, at(later));
          } else {
            bring(&ring(k), param, at(later - kItems));
          }
          sent();
#pragma unroll
          for (int n = 0; n < N; ++n) {
            stored.v[n] = m[n];
            u[n] = square(u[n] - m[n]);
            over[k % kFolds][n] += u[n];
          }
          return (u[0] + u[1]) + (u[2] + u[3]);
        },
        [&](int item, float(&values)[kGroup]) { sum_lanes(item, values); });
    turn(false);
    leave_columns(over, 0, first_of_block);
    __syncthreads();
    const float of_columns = 1.0F / static_cast<float>(cols);
    average = blend(residual, notes.rounded(Word::rate3), sum_of_row() * of_columns + notes.rounded(Word::eps2));
    if (finishes()) averages[row] = average;
    sum_averages(Sum::instability, first_of_block);
  }

  /// (12), (13), likewise; where an item was, `refill` may bring the next piece's.
  template <class Refill, class Turn>
  __device__ __forceinline__ void apply(const Refill& refill, const Turn& turn) {
    double sums[1];
    gather(Sum::instability, sums);
    const double mean = sums[0] * notes.number(Word::share_of_row) * notes.number(Word::correction);
    const float factor_of_row = notes.rounded(Word::lr) * sqrtf(static_cast<float>(mean)) / sqrtf(average);
    turn(true);
    spread(factor_of_row);
    const float decay = notes.rounded(Word::decay);
    const Place param = notes.place(Word::param, first());
    for_items(
        [&](int item, int k, Item& stored) {
          const float by = of_row(item);
          arrived<kGroup - 1>();
          const Item old = ring(k);
          float p[N];
#pragma unroll
          for (int n = 0; n < N; ++n) p[n] = moved(old.v[n], decay, stored.v[n] * by * columns[k % kFolds][n]);
          F32::store(param, at(item), p);
          if (item + kGroup < kItems) bring(&ring(k), param, at(item + kGroup));
          refill(item, stored);
          sent();
          return 0.0F;
        },
        [](int, const float(&)[kGroup]) {});
    turn(false);
  }
};

/// Calls f with the fold of a width.
template <class F>
__device__ __forceinline__ void with_fold(int64_t cols, const F& f) {
  if (cols <= kThreads * kColumns) {
    f(std::integral_constant<int, 0>{});
  } else if (cols <= 2 * kThreads * kColumns) {
    f(std::integral_constant<int, 1>{});
  } else {
    f(std::integral_constant<int, 2>{});
  }
}

/// Brings item after item of a piece's gradient.
template <class W>
struct Refill {
  Place grad{};
  int rows = 0;
  int cols = 0;
  int fold = 0;

  __device__ __forceinline__ Refill(const Notes& notes, int index) {
    if (!notes.is_active()) return;
    cols = notes.whole(Word::cols);
    fold = fold_of(cols);
    const int most = kItems >> fold;
    const int first = index * most;
    const int left = notes.whole(Word::rows) - first;
    rows = left < most ? left : most;
    grad = notes.place(Word::grad, static_cast<int64_t>(first) * cols);
  }
  [[nodiscard]] __device__ __forceinline__ W at(int item) const {
    const int i = item >> fold;
    const int j = (item & ((1 << fold) - 1)) * kThreads + static_cast<int>(threadIdx.x);
    const bool there = i < rows && j * kColumns < cols;
    if constexpr (W::kPlain) {
      return {static_cast<uint32_t>(i * cols + j * kColumns), there};
    } else {
      return {i, static_cast<int64_t>(j) * kColumns, there ? kColumns : 0, false, kWarp};
    }
  }
  __device__ __forceinline__ void operator()(int item, Item& to) const {
    if (item < kShared) {
      bring(&to, grad, at(item));
    } else {
      to = F32::load<kColumns>(grad, at(item));
    }
  }
};

/// Where a wave stands in the turns that waves take: how many of its blocks are done with a visit.
__device__ inline unsigned* turn_of(const ResidentArgs& run, int wave, int visit) {
  return run.a.turns + (2 * wave + visit) * kTurnPitch;
}
/// Waits until the visit before this one is nearly over: momentum of all teams, then parameters of all teams.  One
/// thread waits; the next barrier holds the others.
__device__ inline void take_turn(const ResidentArgs& run, int wave, int visit) {
  const int team = wave % kTeams;
  int before = wave - 1;
  int what = visit;
  if (team == 0) {
    what = 1 - visit;
    if (visit == 1) before = wave + kTeams - 1 < run.waves ? wave + kTeams - 1 : run.waves - 1;
    if (visit == 1 && before == wave) return;
  }
  if (before >= 0) poll(turn_of(run, before, what), kNearly);
}
__device__ inline void end_turn(const ResidentArgs& run, int wave, int visit) {
  atomicAdd(turn_of(run, wave, visit), 1U);
}
/// Both, for a visitor.
struct Turn {
  const ResidentArgs& run;
  int wave;
  int visit;

  __device__ __forceinline__ void operator()(bool begins) const {
    if (threadIdx.x != 0) return;
    if (begins) {
      take_turn(run, wave, visit);
    } else {
      end_turn(run, wave, visit);
    }
  }
};

extern __shared__ __align__(16) unsigned char resident_memory[];

/// One visit to all pieces of a block, each read from memory.
template <class V>
__device__ __forceinline__ void visit_all(V& visit, const Notes& notes, Stage stage) {
  if (stage == Stage::squares) return visit.template finish_columns<true>(nullptr);
  if (stage == Stage::instability) return visit.template finish_columns<false>(nullptr);
  const int first = visit.piece.index;
  for (int number = first; number * int64_t{V::kRows} < visit.all_rows; number += visit.piece.count) {
    visit.go_to(number);
    if (stage == Stage::statistics) {
      visit.load(notes.place(Word::grad, visit.first()));
      visit.statistics(number == first);
    } else if (stage == Stage::momentum) {
      visit.load(notes.place(Word::grad, visit.first()));
      visit.load_average(Word::row);
      visit.start(notes.place(Word::momentum, visit.first()));
      visit.momentum(number == first, [](bool) {});
    } else {
      visit.load(notes.place(Word::momentum, visit.first()));
      visit.load_average(Word::res_row);
      visit.start(notes.place(Word::param, visit.first()));
      visit.apply([](int, const Item&) {}, [](bool) {});
    }
    arrived<0>();
  }
}

/// Matrices of more pieces than a team has blocks: all of them take each together, and read again what they cannot
/// keep.
__global__ void __launch_bounds__(kThreads, kTeams) large_kernel(const __grid_constant__ ResidentArgs run) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(resident_memory);
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  for (int k = 0; k < run.large_count; ++k) {
    PieceTable piece = run.large[k];
    piece.index = static_cast<int32_t>(blockIdx.x);
    Notes notes;
    notes.read(run, piece.tensor);
    if (!notes.is_active() || piece.index >= piece.count) continue;
    with_fold(notes.whole(Word::cols), [&](auto fold) {
      Visitor<Where<true>, decltype(fold)::value> visit(run, notes, piece, items, scratch, registers);
      auto* counter = notes.template pointer<unsigned>(Word::counter);
      unsigned arrivals = 0;
#pragma unroll 1
      for (int stage = 0; stage < static_cast<int>(Stage::apply); ++stage) {
        visit_all(visit, notes, static_cast<Stage>(stage));
        raise(counter);
        arrivals += static_cast<unsigned>(piece.count);
        if (threadIdx.x == 0) poll(counter, arrivals);
        __syncthreads();
      }
      visit_all(visit, notes, Stage::apply);
    });
  }
}

/// All visits: every block of the grid runs at once.
__global__ void __launch_bounds__(kThreads, kTeams) resident_kernel(const __grid_constant__ ResidentArgs run) {
  using W = Where<true>;
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(resident_memory);
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  const int team = static_cast<int>(blockIdx.x) / kMostPieces;
  const int block = static_cast<int>(blockIdx.x) % kMostPieces;
  const auto fill = [&](const Refill<W>& refill) {
#pragma unroll 1
    for (int q = 0; q < kShared; ++q) refill(q, items[q * kThreads + threadIdx.x]);
    sent();
#pragma unroll
    for (int q = kShared; q < kItems; ++q) refill(q, registers[q - kShared]);
  };
  const auto piece_of = [&](int wave) {
    return wave < run.waves ? run.pieces[static_cast<int64_t>(wave) * kMostPieces + block] : PieceTable{-1, 0, 0, 0, 0};
  };
  PieceTable piece = piece_of(team);
  Notes notes;
  notes.read(run, piece.tensor);
  fill(Refill<W>(notes, piece.index));
  for (int wave = team; wave < run.waves; wave += kTeams) {
    const PieceTable later = piece_of(wave + kTeams);
    Notes of_later;
    if (!notes.is_active()) {
      Turn{run, wave, 0}(false);
      Turn{run, wave, 1}(false);
      of_later.read(run, later.tensor);
      arrived<0>();
      fill(Refill<W>(of_later, later.index));
    } else {
      with_fold(notes.whole(Word::cols), [&](auto fold) {
        Visitor<W, decltype(fold)::value> visit(run, notes, piece, items, scratch, registers);
        auto* counter = notes.template pointer<unsigned>(Word::counter);
        const auto all = static_cast<unsigned>(piece.count);
        visit.start(notes.place(Word::momentum, visit.first()));
        arrived<kGroup>();
        visit.statistics(true);
        raise(counter);
        visit.template finish_columns<true>(counter);
        raise(counter);
        of_later.read(run, later.tensor);
        if (threadIdx.x == 0) poll(counter, 2 * all);
        __syncthreads();
        visit.momentum(true, Turn{run, wave, 0});
        raise(counter);
        visit.template finish_columns<false>(counter);
        raise(counter);
        if (threadIdx.x == 0) poll(counter, 4 * all);
        __syncthreads();
        visit.apply(Refill<W>(of_later, later.index), Turn{run, wave, 1});
      });
    }
    piece = later;
    notes = of_later;
  }
}

/// One part of it: for the pieces of as many waves as there are teams, or for a large matrix.
template <class W>
__global__ void __launch_bounds__(kThreads, kTeams)
    streaming_kernel(const __grid_constant__ ResidentArgs run, int wave, int large, Stage stage) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(resident_memory);
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  PieceTable piece = large >= 0 ? run.large[large] : run.pieces[static_cast<int64_t>(wave) * kMostPieces + blockIdx.x];
  if (large >= 0) piece.index = static_cast<int32_t>(blockIdx.x);
  Notes notes;
  notes.read(run, piece.tensor);
  if (!notes.is_active()) return;
  with_fold(notes.whole(Word::cols), [&](auto fold) {
    Visitor<W, decltype(fold)::value> visit(run, notes, piece, items, scratch, registers);
    visit_all(visit, notes, stage);
  });
}

constexpr Stage kStages[] = {Stage::statistics, Stage::squares, Stage::momentum, Stage::instability, Stage::apply};

template <class W>
void stream_stages(const ResidentArgs& run, cudaStream_t stream) {
  const auto launch = [&](int blocks, int wave, int large) {
    for (const Stage stage : kStages) {
      streaming_kernel<W><<<static_cast<unsigned>(blocks), kThreads, kBytes, stream>>>(run, wave, large, stage);
    }
  };
  for (int k = 0; k < run.large_count; ++k) launch(kTeams * kMostPieces, 0, k);
  for (int wave = 0; wave < run.waves; wave += kTeams) {
    launch((run.waves - wave < kTeams ? run.waves - wave : kTeams) * kMostPieces, wave, -1);
  }
}

template <class Kernel>
void allow_memory(Kernel kernel) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kBytes)),
        "shared memory of a block");
}

}  // namespace

bool fits_the_chip() {
  int device = 0;
  int multiprocessors = 0;
  int cooperative = 0;
  int blocks = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), "cooperative launch");
  allow_memory(streaming_kernel<Where<true>>);
  allow_memory(streaming_kernel<Where<false>>);
  allow_memory(resident_kernel);
  allow_memory(large_kernel);
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, resident_kernel, kThreads, kBytes), "occupancy");
  return cooperative != 0 && blocks * multiprocessors >= kTeams * kMostPieces;  // `large_kernel` asks for no more
}

void run_resident(const ResidentArgs& run, bool side_by_side, bool aligned, cudaStream_t stream) {
  if (!aligned) return stream_stages<Where<false>>(run, stream);
  if (!side_by_side) return stream_stages<Where<true>>(run, stream);
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kTeams * kMostPieces);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  if (run.large_count > 0) check(cudaLaunchKernelEx(&config, large_kernel, run), "step: a launch failed");
  if (run.waves > 0) check(cudaLaunchKernelEx(&config, resident_kernel, run), "step: a launch failed");
}

}  // namespace came::cuda
