// One tensor of one step as a kernel sees it: places, scalars, partials and matrix scalars.
#pragma once

#include <type_traits>

#include "algorithms/averages.hpp"
#include "algorithms/scalars.hpp"
#include "cuda/device/instructions.cuh"
#include "cuda/device/storage.cuh"
#include "cuda/device/team.cuh"
#include "cuda/tables.hpp"

namespace came::cuda {

/// Columns of a row that a thread takes at once, whatever it is compiled for: sums have the same order.
inline constexpr int kColumns = 4;
inline constexpr int kCodeLanes = static_cast<int>(kMomentumBlock) / kColumns;
static_assert(kCodeLanes == kWarp, "a warp holds a block of codes");

/// What a kernel is compiled for: arithmetic, storages.
template <class T_, class P_, class M_, bool Plain>
struct Types {
  using T = T_;
  using Param = P_;  ///< And gradient.
  using Momentum = M_;
  static constexpr int N = kColumns;
  static constexpr bool kPlain = Plain;
  using At = Where<Plain>;
};

template <Variant variant>
struct TypesOf;
template <>
struct TypesOf<Variant::f32_f32> : Types<float, F32, F32, true> {};
template <>
struct TypesOf<Variant::f32_bf16> : Types<float, F32, BF16, true> {};
template <>
struct TypesOf<Variant::f32_codes> : Types<float, F32, Codes, true> {};
template <>
struct TypesOf<Variant::bf16_f32> : Types<float, BF16, F32, true> {};
template <>
struct TypesOf<Variant::bf16_bf16> : Types<float, BF16, BF16, true> {};
template <>
struct TypesOf<Variant::bf16_codes> : Types<float, BF16, Codes, true> {};
template <>
struct TypesOf<Variant::any32> : Types<float, Any<float>, Any<float>, false> {};
template <>
struct TypesOf<Variant::any64> : Types<double, Any<double>, Any<double>, false> {};

/// Storage of statistics.
template <class T>
struct Statistic {
  using Type = F32;
};
template <>
struct Statistic<double> {
  using Type = Any<double>;
};

__device__ inline double scalar_at(const void* data, DType dtype, int64_t k) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<const float*>(data)[k]);
  if (dtype == DType::i64) return static_cast<double>(static_cast<const int64_t*>(data)[k]);
  return static_cast<const double*>(data)[k];
}

/// A set found_inf: every kernel leaves everything as it is.
__device__ inline bool is_skipped(const Args& a) {
  return a.found_inf.data != nullptr && scalar_at(a.found_inf.data, a.found_inf.dtype, 0) != 0;
}

/// One matrix: turns its rows and columns into addresses.  A copy of what loops need: memory may change under them.
template <bool Plain>
struct Frame {
  int64_t first_row;  ///< Of the matrix among all rows; if plain, of the part in the matrix, and
  int64_t first_col;  ///< likewise.
  int64_t cols;
  bool aligned;
  int lanes;

  /// Columns from j on of row i, `room` of them left, or none if the row is not there.
  [[nodiscard]] __device__ Where<Plain> where(int64_t i, int64_t j, int64_t room, bool there = true) const {
    const bool any = there && room > 0;
    if constexpr (Plain) {
      return {static_cast<uint32_t>((i - first_row) * cols + j - first_col), any};
    } else {
      const int count = !any ? 0 : room < kColumns ? static_cast<int>(room) : kColumns;
      return {first_row + i, j, count, aligned && count == kColumns, lanes};
    }
  }
};

/// What a block must know of its part, near at hand.
struct Desk {
  TensorTable tensor;
  came_options options;
  Scalars scalars;
  uint64_t pointers[kMostPointers];
  Part part;
};

/// Brings it there in two goes: blocks are many, and each would wait for one thing after the other.
__device__ inline const Desk& desk_of(const Args& a) {
  using Unit = uint64_t;
  constexpr int kWords[] = {sizeof(TensorTable) / sizeof(Unit), sizeof(came_options) / sizeof(Unit),
                            sizeof(Scalars) / sizeof(Unit), kMostPointers, sizeof(Part) / sizeof(Unit)};
  constexpr int kAllWords = kWords[0] + kWords[1] + kWords[2] + kWords[3] + kWords[4];
  static_assert(sizeof(Desk) == kAllWords * sizeof(Unit), "a row of whole words");
  __shared__ Desk desk;
  const Part* part = a.parts + blockIdx.x;
  const void* const from[] = {a.tensors + part->tensor, a.groups + part->group, a.scalars + part->tensor,
                              a.words + part->pointers, part};
  for (int k = static_cast<int>(threadIdx.x); k < kAllWords; k += static_cast<int>(blockDim.x)) {
    int at = k;
    const void* source = from[0];
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      if (at >= kWords[piece] && source == from[piece]) {
        at -= kWords[piece];
        source = from[piece + 1];
      }
    }
    reinterpret_cast<Unit*>(&desk)[k] = static_cast<const Unit*>(source)[at];
  }
  __syncthreads();
  return desk;
}

template <class T>
struct Subject {
  const Args& a;
  const TensorTable& t;
  const came_options& o;
  const Scalars& k;
  const uint64_t* pointers;
  int64_t index;
  const Part* origin = nullptr;  ///< Places begin with it; null: with the first element.

  __device__ Subject(const Args& args, const Desk& desk, bool plain)
      : a(args),
        t(desk.tensor),
        o(desk.options),
        k(desk.scalars),
        pointers(desk.pointers),
        index(desk.part.tensor),
        origin(plain ? &desk.part : nullptr) {}

  __device__ Subject(const Args& args, int64_t tensor)
      : a(args),
        t(args.tensors[tensor]),
        o(args.groups[args.tensors[tensor].group]),
        k(args.scalars[tensor]),
        pointers(args.words + args.tensors[tensor].pointers),
        index(tensor) {}

  [[nodiscard]] __device__ char* pointer(int8_t at) const {
    return at == 0 ? nullptr : reinterpret_cast<char*>(pointers[at]);
  }
  template <class U = T>
  [[nodiscard]] __device__ U* state(int8_t at) const {
    return reinterpret_cast<U*>(pointer(at));
  }
  /// Elements before the first one of the places of matrix b.
  [[nodiscard]] __device__ int64_t before(int64_t b) const {
    return origin == nullptr ? 0 : (b * t.rows + origin->row) * t.cols + origin->col;
  }
  /// Places of matrix b.
  [[nodiscard]] __device__ Place place(uint64_t address, DType dtype, int64_t b, int stream, bool draws) const {
    const int64_t row = (t.first_batch + b) * t.whole_rows + t.first_row - b * t.rows;
    const int64_t skipped = before(b);
    const int64_t bytes = dtype == DType::f32 ? 4 * skipped : dtype == DType::bf16 ? 2 * skipped : skipped;
    return {reinterpret_cast<char*>(address == 0 ? 0 : address + static_cast<uint64_t>(bytes)),
            nullptr,
            t.cols,
            dtype,
            false,
            draws,
            k.keys[stream],
            static_cast<uint64_t>(row * t.whole_cols + t.first_col + skipped),
            t.whole_cols};
  }
  [[nodiscard]] __device__ Place param(int64_t b) const {
    return place(pointers[0], t.dtype, b, 1, o.stochastic_rounding != 0);
  }
  [[nodiscard]] __device__ Place grad(int64_t b) const { return place(pointers[1], t.grad_dtype, b, 0, false); }
  [[nodiscard]] __device__ Place momentum(int64_t b) const {
    const uint64_t address = t.states.momentum == 0 ? 0 : pointers[t.states.momentum];
    Place found = place(address, t.momentum_dtype, b, 2, o.stochastic_rounding != 0);
    found.scales = state<float>(t.states.momentum_scale);
    if (origin != nullptr && found.scales != nullptr) {
      found.scales += before(b) / kMomentumBlock;
      if (t.momentum_dtype == DType::u8) found.data -= before(b) / 2;  // two to a byte
    }
    return found;
  }
  [[nodiscard]] __device__ Place second(int64_t b) const {
    Place found = place(pointers[t.states.second], t.second_dtype, b, 3, false);
    found.scales = state<float>(t.states.second_scale);
    found.second = true;
    return found;
  }
  /// A statistic per element, of full precision.
  [[nodiscard]] __device__ Place full(int8_t at, int64_t b) const {
    return place(at == 0 ? 0 : pointers[at], sizeof(T) == 8 ? DType::f64 : DType::f32, b, 0, false);
  }

  [[nodiscard]] __device__ T multiplier() const { return static_cast<T>(k.multiplier); }
  /// Of the multiplier: as good where only signs are compared, and no product with it underflows.
  [[nodiscard]] __device__ T sign() const { return k.multiplier > 0 ? T{1} : k.multiplier < 0 ? T{-1} : T{0}; }
  [[nodiscard]] __device__ MatrixScalars& matrix_scalars(int64_t b) const {
    return a.matrix_scalars[t.first_set + (t.per_matrix ? b : 0)];
  }
  [[nodiscard]] __device__ int64_t row_at(int64_t b, int64_t i) const { return b * t.rows + i; }
  [[nodiscard]] __device__ int64_t col_at(int64_t b, int64_t j) const { return b * t.cols + j; }

  /// Matrix b, in which `lanes` threads of a warp stand side by side.
  template <bool Plain>
  [[nodiscard]] __device__ Frame<Plain> frame(int64_t b, int lanes) const {
    if constexpr (Plain) {
      return {origin->row, origin->col, t.cols, true, lanes};
    } else {
      return {b * t.rows, 0, t.cols, k.vectors != 0, lanes};
    }
  }

  [[nodiscard]] __device__ const SlotTable& slot(int phase) const { return t.slots[phase]; }
  [[nodiscard]] __device__ double* scalars(const Part& part) const { return a.workspace + part.partial; }
  /// Vector v of a tile's partials over rows, and over columns.
  [[nodiscard]] __device__ T* rows(const Part& tile, int v) const {
    return reinterpret_cast<T*>(scalars(tile) + t.front) + v * tile.rows;
  }
  [[nodiscard]] __device__ T* cols(const Part& tile, int phase, int v) const {
    return reinterpret_cast<T*>(scalars(tile) + t.front) + slot(phase).rows * tile.rows + v * tile.cols;
  }
  /// The number per column that waits in the workspace for all tiles; null where a block owns the columns.
  [[nodiscard]] __device__ T* column_multipliers(int64_t b) const {
    if (!t.factored || t.owner == Owner::matrix || t.owner == Owner::columns) return nullptr;
    const int64_t doubles = (t.cols * static_cast<int64_t>(sizeof(T)) + 7) / 8;
    return reinterpret_cast<T*>(a.workspace + t.column_multipliers + b * doubles);
  }
  [[nodiscard]] __device__ Range tiles_of(int64_t b) const {
    return {t.tile + (t.per_matrix ? b * t.tiles : 0), t.tiles};
  }
  /// Vectors and scalars of local matrix b, all-reduced; sharded tensors only.
  [[nodiscard]] __device__ double* reduced(int phase, int64_t b) const {
    const SlotTable& s = slot(phase);
    return a.reductions + s.offset + b * (s.rows * t.whole_rows + s.cols * t.whole_cols + s.scalars);
  }
  /// Totals of the tensor likewise; of a norm those of matrix b, if it is not sharded.
  [[nodiscard]] __device__ double* totals(int phase, int64_t b = 0) const {
    return a.reductions + slot(phase).totals_offset + b * slot(phase).totals;
  }
};

/// a b + c, rounded once.
template <class T>
__device__ inline T fused(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>) {
    return fmaf(a, b, c);
  } else {
    return fma(a, b, c);
  }
}

/// Exponential moving average with algorithms::rate_of(beta).
template <class T>
__device__ inline T blend(T old, T rate, T value) {
  return fused(rate, value - old, algorithms::anchors_value(rate) ? value : old);
}

template <class T>
__device__ inline T square(T x) {
  return x * x;
}

/// What gradients are multiplied with before they are squared, where the square is to be divided by an average: the
/// square itself may underflow.
template <class T>
__device__ inline T weight_of(T average) {
  if constexpr (std::is_same_v<T, float>) {
    return nearly_over_root(static_cast<float>(algorithms::kWeightScale), average);
  }
  return static_cast<T>(algorithms::kWeightScale) / sqrt(average);
}

/// The sum of N squares, in f64 where it is not to be trusted in f32.
template <class T, int N>
__device__ inline double sound_squares(const T (&x)[N]) {
  T sum = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) sum += square(x[n]);
  if (std::is_same_v<T, double> || algorithms::is_sound_sum_of_squares(static_cast<double>(sum))) {
    return static_cast<double>(sum);
  }
  double total = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) total += square(static_cast<double>(x[n]));
  return total;
}

/// 1 where a direction has the gradient's sign, else 0: docs/algorithms.md, equation (3).  Signs are compared, since a
/// product of tiny numbers is 0.
template <class T>
__device__ inline T agreeing(T direction, T gradient) {
  return (direction > T{0} && gradient > T{0}) || (direction < T{0} && gradient < T{0}) ? T{1} : T{0};
}

/// theta - (decay theta + move) : (4).  A change of 0 keeps even the sign of a zero.
template <class T>
__device__ inline T moved(T old, T decay, T move) {
  return old - (decay != T{0} ? fused(decay, old, move) : T{0} + move);
}

}  // namespace came::cuda
