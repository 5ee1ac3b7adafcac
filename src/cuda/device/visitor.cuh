// The visits of a block to a piece of a matrix that stays on the chip: docs/algorithms.md, equations (5) to (13).
#pragma once

#include "cuda/device/exchange.cuh"

namespace came::cuda {

/// One piece of a matrix whose rows take 2^Fold times `kThreads` vectors at most.
template <class W, int Fold, bool Together>
struct Visitor : Exchange<Fold, Together> {
  using Base = Exchange<Fold, Together>;
  using Base::cols, Base::columns, Base::gather, Base::kFolds, Base::lane, Base::leave_columns, Base::N, Base::notes,
      Base::piece, Base::scalars, Base::scratch, Base::thread, Base::warp;
  static constexpr int kRows = kItems >> Fold;    ///< Of a piece.
  static constexpr int kEach = kThreads / kRows;  ///< Threads that finish a row.
  static_assert(kGroup % kFolds == 0, "a group is made of whole rows, or of parts of rows that share their columns");

  Item (&registers)[kRegisters];  ///< The first items,
  Item* slots;                    ///< the others, `kThreads` apart, and `kGroup` more for what is on its way.

  int rows, all_rows;
  int64_t first_row;
  int row;        ///< That this thread helps to finish.
  float average;  ///< Of that row: of squared gradients, then of the instability.
  float factor;   ///< Lane k: of row k.

  __device__ __forceinline__ Visitor(const ResidentArgs& r, const Notes& n, const PieceTable& p, Item* items,
                                     float* sums, Item (&kept)[kRegisters])
      : Base(r, n, p, sums),
        registers(kept),
        slots(items + threadIdx.x),
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

  /// Calls body(item, k, stored) for items in registers, a group of them at a time, and after(first, values) for each
  /// group with what body returned.
  template <class Body, class After>
  __device__ __forceinline__ void for_registers(const Body& body, const After& after) {
#pragma unroll
    for (int q = 0; q < kRegisters; q += kGroup) {
      float values[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) values[k] = body(q + k, k, registers[q + k]);
      after(q, values);
    }
  }
  /// Likewise for those in shared memory.
  template <class Body, class After>
  __device__ __forceinline__ void for_shared(int first, const Body& body, const After& after) {
#pragma unroll 1
    for (int q = first; q < kItems; q += kGroup) {
      float values[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) values[k] = body(q + k, k, slot(q + k));
      after(q, values);
    }
  }
  template <class Body, class After>
  __device__ __forceinline__ void for_items(const Body& body, const After& after) {
    for_registers(body, after);
    for_shared(kRegisters, body, after);
  }
  [[nodiscard]] __device__ __forceinline__ Item& slot(int item) const { return slots[(item - kRegisters) * kThreads]; }

  [[nodiscard]] __device__ __forceinline__ static float sum_of_squares(const Item& g, float by) {
    float x[N];
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = square(g.v[n] * by);
    return (x[0] + x[1]) + (x[2] + x[3]);
  }

  /// Leaves the sum over this warp's share of each item in the scratch.
  __device__ __forceinline__ void sum_lanes(int item, float (&values)[kGroup]) const {
    constexpr int kLanes = kWarp / kGroup;
    const float total = rows_over_warp<Add>(values);
    if (lane % kLanes == 0) scratch[(item + lane / kLanes) * kWarps + warp] = total;
  }
  /// The sum over a row, in each of the threads that finish it.
  [[nodiscard]] __device__ __forceinline__ float sum_of_row() const {
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

  /// All of it at once, where nothing was sent for before.
  __device__ __forceinline__ void load(const Place& from) {
#pragma unroll 1
    for (int q = kRegisters; q < kItems; ++q) bring(&slot(q), from, at(q));
    sent();
#pragma unroll
    for (int q = 0; q < kRegisters; ++q) registers[q] = F32::load<N>(from, at(q));
    arrived<0>();
  }
  __device__ __forceinline__ void load_average(Word state) {
    const float* averages = notes.template pointer<float>(state) + first_row;
    average = finishes() ? averages[row] : 1.0F;
  }

  /// (5) for its rows, and the sums over them of the squares, plain and weighted.  Calls left() when the latter are
  /// left: others need not wait for what follows.  `ahead`: all squares in shared memory but the last group's were
  /// added up while they came.
  template <class Left>
  __device__ __forceinline__ void statistics(bool first_of_block, bool ahead, const Left& left) {
    float* averages = notes.template pointer<float>(Word::row) + first_row;
    const float by = notes.rounded(Word::factor);
    const auto squares = [&](int, int, const Item& g) { return sum_of_squares(g, by); };
    const auto add = [&](int item, float(&values)[kGroup]) { sum_lanes(item, values); };
    for_registers(squares, add);
    arrived<kGroup>();  // what was sent for before the momentum
    for_shared(ahead ? kItems - kGroup : kRegisters, squares, add);
    __syncthreads();
    const float share = 1.0F / static_cast<float>(cols);
    average = blend(average, notes.rounded(Word::rate2), sum_of_row() * share + notes.rounded(Word::eps1));
    if (finishes()) averages[row] = average;
    __syncthreads();  // sums of rows lie where that goes
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
    left();
    sum_averages(Sum::squares, first_of_block);
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

  /// (7) to (10): the momentum, and the sums of the instability.  Parameters are sent for when room is left, if they
  /// come next.
  /// Waits for its turn as late as it can: turn(true) before the first element, turn(false) after the last.
  template <class Turn, class Left>
  __device__ __forceinline__ void momentum(bool first_of_block, const Turn& turn, const Left& left) {
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
          const int later = item + kGroup;
          if (later < kItems) {
            bring(&ring(k), place, at(later));
          } else if (Together) {
            bring(&ring(k), param, at(later - kItems));
          }
          sent();
          float u[N];
          float m[N];
#pragma unroll
          for (int n = 0; n < N; ++n) {
            u[n] = stored.v[n] * by * columns[k % kFolds][n];
            m[n] = blend(old.v[n], rate, u[n]);
          }
          F32::store(place, w, m);
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
    left();
    const float of_columns = 1.0F / static_cast<float>(cols);
    average = blend(residual, notes.rounded(Word::rate3), sum_of_row() * of_columns + notes.rounded(Word::eps2));
    if (finishes()) averages[row] = average;
    sum_averages(Sum::instability, first_of_block);
  }

  /// (12), (13), likewise; where an item was, `refill` may bring the next piece's, whose squares are added up a group
  /// later.
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
          const Item m = stored;
          if (item + kGroup < kItems) bring(&ring(k), param, at(item + kGroup));
          refill(item, stored);
          sent();
          float p[N];
#pragma unroll
          for (int n = 0; n < N; ++n) p[n] = moved(old.v[n], decay, m.v[n] * by * columns[k % kFolds][n]);
          F32::store(param, at(item), p);
          return 0.0F;
        },
        [&](int item, const float(&)[kGroup]) {
          if constexpr (Refill::kAdds) {
            if (item < kRegisters + kGroup) return;
            float values[kGroup];
#pragma unroll
            for (int k = 0; k < kGroup; ++k) values[k] = sum_of_squares(slot(item - kGroup + k), refill.by);
            sum_lanes(item - kGroup, values);
          }
        });
    turn(false);
  }
};

}  // namespace came::cuda
