// The passes of a block over a piece of a resident matrix: docs/algorithms.md, equations (5) to (13).
#pragma once

#include "cuda/device/exchange.cuh"

namespace came::cuda {

/// One piece of a matrix whose rows take 2^Fold times `kThreads` vectors at most.
template <class W, int Fold, bool Together>
struct Piece : Exchange<Fold, Together> {
  using Base = Exchange<Fold, Together>;
  using Base::all, Base::cols, Base::columns, Base::gather, Base::index, Base::kFolds, Base::lane, Base::leave_columns,
      Base::N, Base::notes, Base::scalars, Base::scratch, Base::thread, Base::warp;
  static constexpr int kRows = kItems >> Fold;    ///< Of a piece.
  static constexpr int kEach = kThreads / kRows;  ///< Threads that finish a row.
  static_assert(kGroup % kFolds == 0, "a group is made of whole rows, or of parts of rows that share their columns");

  Item (&registers)[kRegisters];  ///< The first items,
  Item* items;                    ///< the others, and `kGroup` more for what is on its way.

  int rows, all_rows;
  int first_row;
  float average;     ///< Of row(): of squared gradients, then of the instability.
  float multiplier;  ///< Lane k: of row k.

  __device__ __forceinline__ Piece(const ResidentArgs& r, const Notes& n, Item* shared, float* sums,
                                   Item (&kept)[kRegisters])
      : Base(r, n, sums), registers(kept), items(shared), all_rows(n.whole(Word::rows)) {
    go_to(index());
  }

  __device__ __forceinline__ void go_to(int number) {
    first_row = number * kRows;
    const int left = all_rows - first_row;
    rows = left < kRows ? left : kRows;
  }

  [[nodiscard]] __device__ __forceinline__ int64_t first() const { return int64_t{first_row} * cols; }
  [[nodiscard]] __device__ __forceinline__ W at(int item) const { return at(item, rows); }
  [[nodiscard]] __device__ __forceinline__ W at(int item, int of_rows) const {
    const int i = item >> Fold;
    const int j = (item & (kFolds - 1)) * kThreads + thread;
    return at_item<W>(i, j, i < of_rows && j * N < cols);
  }
  /// Where the first item of it lies,
  [[nodiscard]] __device__ __forceinline__ Place start_of(const Place& piece) const {
    return further<W>(piece, thread * static_cast<int>(sizeof(Item)));
  }
  /// the one after the k-th of a group,
  __device__ __forceinline__ void go_on(Place& place, int k) const {
    constexpr int kAcross = kThreads * static_cast<int>(sizeof(Item));
    const bool ends_row = (k + 1) % kFolds == 0;
    place = further<W>(place, ends_row ? bytes_of_rows(1) - (kFolds - 1) * kAcross : kAcross);
  }
  /// and the first of the next group.
  [[nodiscard]] __device__ __forceinline__ Place next_group(const Place& place) const {
    return further<W>(place, bytes_of_rows(kGroup / kFolds));
  }
  [[nodiscard]] __device__ __forceinline__ int bytes_of_rows(int count) const {
    return count * cols * static_cast<int>(sizeof(float));
  }
  [[nodiscard]] __device__ __forceinline__ float of_row(int item) const {
    return __shfl_sync(kAll, multiplier, item >> Fold);
  }
  /// That this thread helps to finish.
  [[nodiscard]] __device__ __forceinline__ int row() const { return thread / kEach; }
  [[nodiscard]] __device__ bool finishes() const { return thread % kEach == 0 && row() < rows; }

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
  [[nodiscard]] __device__ __forceinline__ Item& slot(int item) const {
    return items[(item - kRegisters) * kThreads + thread];
  }

  [[nodiscard]] __device__ __forceinline__ static float sum_of_squares(const Item& g, float by) {
    float x[N];
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = square(g.v[n] * by);
    return (x[0] + x[1]) + (x[2] + x[3]);
  }

  /// Leaves the sum over this warp's share of each item in the scratch.
  __device__ __forceinline__ void sum_lanes(int item, float (&values)[kGroup]) const {
    constexpr int kLanes = kWarp / kGroup;
    const float total = rows_over_warp<Add>(values, lane());
    if (lane() % kLanes == 0) scratch[(item + lane() / kLanes) * kWarps + warp()] = total;
  }
  /// The sum over a row, in each of the threads that finish it.
  [[nodiscard]] __device__ __forceinline__ float sum_of_row() const {
    constexpr int kNumbers = kFolds * kWarps;
    static_assert(kNumbers <= kEach && kEach <= kWarp);
    const int k = thread % kEach;
    return over_lanes<Add>(k < kNumbers ? scratch[row() * kNumbers + k] : 0.0F, kEach);
  }
  /// Sends a number per row to lane k of every warp.
  __device__ __forceinline__ void spread(float value) {
    constexpr int kAt = 64;  // beside what a thread may still be adding up
    if (thread % kEach == 0) scratch[kAt + row()] = row() < rows ? value : 0.0F;
    __syncthreads();
    multiplier = lane() < kRows ? scratch[kAt + lane()] : 0.0F;
    __syncthreads();
  }
  /// Adds up the averages of the piece's rows, for all blocks to see.
  __device__ __forceinline__ void sum_averages(Sum which, bool first_of_block) const {
    double sum = finishes() ? static_cast<double>(average) : 0.0;
#pragma unroll
    for (int step = kEach; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAll, sum, step);
    auto* warps = reinterpret_cast<double*>(scratch);
    __syncthreads();
    if (lane() == 0) warps[warp()] = sum;
    __syncthreads();
    double& sum_of_block = scalars(which)[index()];
    if (thread == 0) {
      double total = first_of_block ? 0 : sum_of_block;
      for (int w = 0; w < kWarps; ++w) total += warps[w];
      sum_of_block = total;
    }
  }

  /// Sends for all of it at once, where nothing was before.
  __device__ __forceinline__ void load(const Place& piece) {
    Place from = start_of(piece);
#pragma unroll
    for (int q = 0; q < kRegisters; ++q) {
      registers[q] = F32::load<N>(from, at(q));
      go_on(from, q);
    }
#pragma unroll 1
    for (int q = kRegisters; q < kItems; q += kGroup) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        bring(&slot(q + k), from, at(q + k));
        go_on(from, k);
      }
    }
    sent();
  }
  __device__ __forceinline__ void load_average(Word state) {
    const float* averages = notes.template pointer<float>(state) + first_row;
    average = finishes() ? averages[row()] : 1.0F;
  }

  /// (5) for its rows, and the sums over them of the squares, plain and weighted.  Calls left() when the latter are
  /// left: others need not wait for what follows.  Where an item was, `refill` may bring another piece's.  `ahead`: all
  /// squares in shared memory but the last group's were added up while they came.
  template <class Refill, class Left>
  __device__ __forceinline__ void statistics(bool first_of_block, bool ahead, Refill refill, const Left& left) {
    thread = ask_for_thread();
    float* averages = notes.template pointer<float>(Word::row) + first_row;
    const float by = notes.rounded(Word::multiplier);
    const auto squares = [&](int, int, const Item& g) { return sum_of_squares(g, by); };
    const auto add = [&](int item, float(&values)[kGroup]) { sum_lanes(item, values); };
    for_registers(squares, add);
    arrived<kGroup>();  // what was sent for before the momentum
    for_shared(ahead ? kItems - kGroup : kRegisters, squares, add);
    __syncthreads();
    const float share = 1.0F / static_cast<float>(cols);
    average = blend(average, notes.rounded(Word::rate2), sum_of_row() * share + notes.rounded(Word::eps1));
    if (finishes()) averages[row()] = average;
    __syncthreads();  // sums of rows lie where that goes
    spread(weight_of(average));
    float plain[kFolds][N] = {};
    float weighted[kFolds][N] = {};
    for_items(
        [&](int item, int k, Item& g) {
          const float weight = of_row(item);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            const float x = g.v[n] * by;
            const float weighed = x * weight;
            plain[k % kFolds][n] = fused(x, x, plain[k % kFolds][n]);
            weighted[k % kFolds][n] = fused(weighed, weighed, weighted[k % kFolds][n]);
          }
          if (refill.refills()) refill(item, k, g);
          return 0.0F;
        },
        [](int, const float(&)[kGroup]) {});
    sent();
    leave_columns(plain, 0, first_of_block);
    leave_columns(weighted, 1, first_of_block);
    left();
    sum_averages(Sum::squares, first_of_block);
  }

  /// Brings item after item of another piece of the matrix; a negative number: of none.
  struct Another {
    static constexpr bool kAdds = false;

    const Piece& piece;
    int rows;
    Place from;

    __device__ __forceinline__ Another(const Piece& v, Word data, int number)
        : piece(v),
          rows(number < 0 ? 0 : v.all_rows - number * kRows),
          from(v.start_of(v.notes.place(data, int64_t{number} * kRows * v.cols))) {}

    [[nodiscard]] __device__ __forceinline__ bool refills() const { return rows > 0; }
    __device__ __forceinline__ void operator()(int item, int k, Item& to) {
      if (item < kRegisters) {
        to = F32::load<N>(from, piece.at(item, rows));
      } else {
        bring(&to, from, piece.at(item, rows));
      }
      piece.go_on(from, k);
    }
  };

  /// What of momentum or parameters is on its way.
  __device__ __forceinline__ Item& ring(int item) const { return items[(kShared + item % kGroup) * kThreads + thread]; }
  __device__ __forceinline__ void start(const Place& piece) const {
    Place from = start_of(piece);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      bring(&ring(q), from, at(q));
      sent();
      go_on(from, q);
    }
  }

  /// (7) to (10): the momentum, and the sums of the instability.  Parameters are sent for when room is left, if they
  /// come next, and the momentum stays unless another piece's gradient comes.
  /// Waits for its turn as late as it can, and ends it with the last element.
  template <class Refill, class Turn, class Left>
  __device__ __forceinline__ void momentum(bool first_of_block, Refill refill, const Turn& turn, const Left& left) {
    thread = ask_for_thread();
    const unsigned before = turn.look();
    double sums[2];
    gather(Sum::squares, sums);
    const double share = notes.number(Word::share_of_row);
    const double mean = sums[0] * share;
    // The square may be beyond f32: its root is taken of as much of it as sums[1] is too large, and once more.
    constexpr double kUnscale = algorithms::kWeightUnscale * algorithms::kWeightUnscale;
    const float rms = sqrtf(static_cast<float>(mean * sums[1] * share * kUnscale) / static_cast<float>(cols)) *
                      static_cast<float>(algorithms::kWeightScale);
    const float most = notes.rounded(Word::clip);
    const float ratio = algorithms::clipping_ratio(rms, most);
    const float root = sqrtf(static_cast<float>(mean)) / ratio;
    const float multiplier_of_row =
        algorithms::row_multiplier_as_f32(notes.rounded(Word::multiplier) * root / sqrtf(average), mean);
    arrived<kGroup>();  // the gradient
    turn.begin(before);
    spread(multiplier_of_row);
    float* averages = notes.template pointer<float>(Word::res_row) + first_row;
    const float residual = finishes() ? averages[row()] : 1.0F;
    const float rate = notes.rounded(Word::rate1);
    Place to = start_of(notes.place(Word::momentum, first()));
    Place from = next_group(to);
    float over[kFolds][N] = {};
    for_items(
        [&](int item, int k, Item& stored) {
          const float by = of_row(item);
          arrived<kGroup - 1>();
          const Item old = ring(k);
          const int later = item + kGroup;
          if (Together || later < kItems) bring(&ring(k), from, at(later % kItems));
          go_on(from, k);
          const Item g = stored;
          if (refill.refills()) refill(item, k, stored);
          sent();
          float u[N];
          float m[N];
#pragma unroll
          for (int n = 0; n < N; ++n) {
            u[n] = g.v[n] * by * columns[k % kFolds][n];
            m[n] = blend(old.v[n], rate, u[n]);
          }
          F32::store(to, at(item), m);
          go_on(to, k);
          if (!refill.refills()) {
#pragma unroll
            for (int n = 0; n < N; ++n) stored.v[n] = m[n];
          }
#pragma unroll
          for (int n = 0; n < N; ++n) {
            u[n] = square(u[n] - m[n]);
            over[k % kFolds][n] += u[n];
          }
          return (u[0] + u[1]) + (u[2] + u[3]);
        },
        [&](int item, float(&values)[kGroup]) {
          sum_lanes(item, values);
          if (item + 2 * kGroup == kItems) from = start_of(notes.place(Word::param, first()));
        });
    turn.end();
    leave_columns(over, 0, first_of_block);
    __syncthreads();
    left();
    const float of_columns = 1.0F / static_cast<float>(cols);
    average = blend(residual, notes.rounded(Word::rate3), sum_of_row() * of_columns + notes.rounded(Word::eps2));
    if (finishes()) averages[row()] = average;
    sum_averages(Sum::instability, first_of_block);
  }

  /// (12), (13), likewise; where an item was, `refill` may bring the next piece's, whose squares are added up a group
  /// later.
  template <class Refill, class Turn>
  __device__ __forceinline__ void apply(Refill refill, const Turn& turn) {
    thread = ask_for_thread();
    const unsigned before = turn.look();
    double sums[1];
    gather(Sum::instability, sums);
    const double mean = sums[0] * notes.number(Word::share_of_row) * notes.number(Word::correction);
    const float root = sqrtf(static_cast<float>(mean));
    const float multiplier_of_row =
        algorithms::row_multiplier_as_f32(notes.rounded(Word::lr) * root / sqrtf(average), mean);
    arrived<kGroup>();  // the momentum
    turn.begin(before);
    spread(multiplier_of_row);
    const float decay = notes.rounded(Word::decay);
    Place to = start_of(notes.place(Word::param, first()));
    Place from = next_group(to);
    for_items(
        [&](int item, int k, Item& stored) {
          const float by = of_row(item);
          arrived<kGroup - 1>();
          const Item old = ring(k);
          const Item m = stored;
          if (item + kGroup < kItems) bring(&ring(k), from, at(item + kGroup));
          go_on(from, k);
          if (refill.refills()) refill(item, k, stored);
          sent();
          float p[N];
#pragma unroll
          for (int n = 0; n < N; ++n) p[n] = moved(old.v[n], decay, m.v[n] * by * columns[k % kFolds][n]);
          F32::store(to, at(item), p);
          go_on(to, k);
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
    turn.end();
  }
};

}  // namespace came::cuda
