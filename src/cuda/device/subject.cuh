// One tensor of one step as a kernel sees it: places, scalars, blocks of partial results, and what was derived.
#pragma once

#include "cuda/device/storage.cuh"
#include "cuda/device/team.cuh"
#include "cuda/tables.hpp"

namespace came::cuda {

/// What a kernel is compiled for: arithmetic, storages, columns per thread.
template <class T_, class P_, class M_, int N_>
struct Types {
  using T = T_;
  using Param = P_;  ///< And gradient.
  using Momentum = M_;
  static constexpr int N = N_;
};

template <Kind kind>
struct TypesOf;
template <>
struct TypesOf<Kind::f32_f32> : Types<float, F32, F32, 4> {};
template <>
struct TypesOf<Kind::f32_bf16> : Types<float, F32, BF16, 4> {};
template <>
struct TypesOf<Kind::f32_codes> : Types<float, F32, Codes, 4> {};
template <>
struct TypesOf<Kind::bf16_f32> : Types<float, BF16, F32, 8> {};
template <>
struct TypesOf<Kind::bf16_bf16> : Types<float, BF16, BF16, 8> {};
template <>
struct TypesOf<Kind::bf16_codes> : Types<float, BF16, Codes, 8> {};
template <>
struct TypesOf<Kind::any32> : Types<float, Any<float>, Any<float>, 4> {};
template <>
struct TypesOf<Kind::any64> : Types<double, Any<double>, Any<double>, 4> {};

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
template <int N>
struct Frame {
  int64_t first_row;
  uint64_t whole;  ///< Number of its first element in the whole tensor.
  int64_t whole_cols;
  bool vectors;
  int lanes;

  /// Columns from j on of row i, `room` of them left, or none if the row is not there.
  [[nodiscard]] __device__ Where where(int64_t i, int64_t j, int64_t room, bool there = true) const {
    const int count = !there || room <= 0 ? 0 : room < N ? static_cast<int>(room) : N;
    return {first_row + i, j, whole + static_cast<uint64_t>(i * whole_cols + j), count, vectors && count == N, lanes};
  }
};

template <class T>
struct Subject {
  const Args& a;
  const TensorTable& t;
  const came_options& o;
  const Scalars& k;
  int64_t index;

  __device__ Subject(const Args& args, int64_t tensor)
      : a(args),
        t(args.tensors[tensor]),
        o(args.groups[args.tensors[tensor].group]),
        k(args.scalars[tensor]),
        index(tensor) {}

  [[nodiscard]] __device__ char* pointer(int8_t at) const {
    return at == 0 ? nullptr : reinterpret_cast<char*>(a.words[t.pointers + at]);
  }
  template <class U = T>
  [[nodiscard]] __device__ U* state(int8_t at) const {
    return reinterpret_cast<U*>(pointer(at));
  }
  [[nodiscard]] __device__ Place param() const {
    const bool draws = o.stochastic_rounding != 0;
    return {reinterpret_cast<char*>(a.words[t.pointers]), nullptr, t.cols, t.dtype, false, draws, k.keys[1]};
  }
  [[nodiscard]] __device__ Place grad() const {
    return {reinterpret_cast<char*>(a.words[t.pointers + 1]), nullptr, t.cols, t.grad_dtype, false, false, 0};
  }
  [[nodiscard]] __device__ Place momentum() const {
    const bool draws = o.stochastic_rounding != 0;
    return {pointer(t.states.momentum), state<float>(t.states.momentum_scale), t.cols, t.momentum_dtype, false, draws,
            k.keys[2]};
  }
  [[nodiscard]] __device__ Place second() const {
    return {pointer(t.states.second), state<float>(t.states.second_scale), t.cols, t.second_dtype, true, false,
            k.keys[3]};
  }
  /// A statistic per element, of full precision.
  [[nodiscard]] __device__ Place full(int8_t at) const {
    return {pointer(at), nullptr, t.cols, sizeof(T) == 8 ? DType::f64 : DType::f32, false, false, 0};
  }

  [[nodiscard]] __device__ T factor() const { return static_cast<T>(k.factor); }
  [[nodiscard]] __device__ Derived& derived(int64_t b) const { return a.derived[t.block + (t.per_matrix ? b : 0)]; }
  [[nodiscard]] __device__ int64_t row_at(int64_t b, int64_t i) const { return b * t.rows + i; }
  [[nodiscard]] __device__ int64_t col_at(int64_t b, int64_t j) const { return b * t.cols + j; }

  /// Matrix b, in which `lanes` threads of a warp stand side by side.
  template <int N>
  [[nodiscard]] __device__ Frame<N> frame(int64_t b, int lanes) const {
    constexpr int kMost = static_cast<int>(kMomentumBlock) / N;
    const int64_t whole = ((t.first_batch + b) * t.whole_rows + t.first_row) * t.whole_cols + t.first_col;
    return {b * t.rows, static_cast<uint64_t>(whole), t.whole_cols, k.vectors != 0, lanes < kMost ? lanes : kMost};
  }

  [[nodiscard]] __device__ const SlotTable& slot(int phase) const { return t.slots[phase]; }
  [[nodiscard]] __device__ double* scalars(const Part& part) const { return a.workspace + part.partial; }
  /// Vector v of a tile's partial results over rows, and over columns.
  [[nodiscard]] __device__ T* rows(const Part& tile, int v) const {
    return reinterpret_cast<T*>(scalars(tile) + t.front) + v * tile.rows;
  }
  [[nodiscard]] __device__ T* cols(const Part& tile, int phase, int v) const {
    return reinterpret_cast<T*>(scalars(tile) + t.front) + slot(phase).rows * tile.rows + v * tile.cols;
  }
  /// The number per column that waits in the workspace for all tiles; null where a block owns the columns.
  [[nodiscard]] __device__ T* column_factors(int64_t b) const {
    if (!t.factored || t.owner == Owner::matrix || t.owner == Owner::columns) return nullptr;
    const int64_t doubles = (t.cols * static_cast<int64_t>(sizeof(T)) + 7) / 8;
    return reinterpret_cast<T*>(a.workspace + t.column_factors + b * doubles);
  }
  [[nodiscard]] __device__ Range tiles_of(int64_t b) const { return {t.tile + (t.per_matrix ? b * t.tiles : 0), t.tiles}; }
  /// The whole slot of local matrix b, all-reduced; sharded tensors only.
  [[nodiscard]] __device__ double* reduced(int phase, int64_t b) const {
    const SlotTable& s = slot(phase);
    const int64_t block = t.per_matrix ? t.first_batch + b : 0;
    return a.reductions + s.offset + block * (s.rows * t.whole_rows + s.cols * t.whole_cols + s.scalars);
  }
};

/// Exponential moving average with rate = 1 - beta.
template <class T>
__device__ inline T blend(T old, T rate, T value) {
  return old + rate * (value - old);
}

template <class T>
__device__ inline T square(T x) {
  return x * x;
}

/// 1 where a direction has the gradient's sign, else 0.
template <class T>
__device__ inline T agreeing(T direction, T gradient) {
  return direction * gradient > T{0} ? T{1} : T{0};
}

/// theta - (decay theta + move) : (4)
template <class T>
__device__ inline T moved(T old, T decay, T move) {
  const T shrinkage = decay != T{0} ? decay * old : T{0};
  return old - (shrinkage + move);
}

}  // namespace came::cuda
