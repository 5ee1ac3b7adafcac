// Where elements lie: N columns of a row at a time, read and written in vectors where everything is aligned.
#pragma once

#include <cstdint>

#include "algorithms/quantize.hpp"
#include "algorithms/rounding.hpp"
#include "came/tensor.hpp"

namespace came::cuda {

using algorithms::kMomentumBlock;

/// Where a tensor or a state of it lies, for one of its matrices: from its first element on, or, where one number says
/// where elements are, from the first of the block's part.
struct Place {
  char* data;
  float* scales;  ///< Of codes.
  int64_t cols;
  DType dtype;
  bool second;  ///< A second moment: codes without sign, drawn.
  bool stochastic;
  uint64_t key;
  uint64_t whole;  ///< Number that row 0, column 0 would have in the whole tensor if it went on as this matrix does,
  int64_t whole_cols;  ///< with so many columns.

  [[nodiscard]] __device__ explicit operator bool() const { return data != nullptr; }
};

/// N columns of a row, `count` of which are there.
template <bool Plain>
struct Where {
  static constexpr bool kPlain = false;
  int64_t row;  ///< Counted over all matrices.
  int64_t col;
  int count;
  bool aligned;
  int lanes;  ///< Lanes that hold a block of codes together.

  [[nodiscard]] __device__ bool has(int n) const { return n < count; }
  [[nodiscard]] __device__ bool any() const { return count > 0; }
  [[nodiscard]] __device__ int64_t at(const Place& p) const { return row * p.cols + col; }
  [[nodiscard]] __device__ int64_t pair_at(const Place& p) const { return row * ((p.cols + 1) / 2) + col / 2; }
  [[nodiscard]] __device__ int64_t block_at(const Place& p) const {
    return row * ((p.cols + kMomentumBlock - 1) / kMomentumBlock) + col / kMomentumBlock;
  }
  [[nodiscard]] __device__ bool begins_block() const { return col % kMomentumBlock == 0; }
  [[nodiscard]] __device__ uint32_t random(const Place& p, int n) const {
    return algorithms::random_bits(p.key, p.whole + static_cast<uint64_t>(row * p.whole_cols + col + n));
  }
  /// The same columns as pairs.
  [[nodiscard]] __device__ Where halved() const {
    Where half = *this;
    half.count = (count + 1) / 2;
    return half;
  }
  /// The same columns, so many rows further down, if those are there.
  [[nodiscard]] __device__ Where below(int rows, int64_t, bool there) const {
    Where next = *this;
    next.row += rows;
    next.count = there ? count : 0;
    next.aligned = aligned && there;
    return next;
  }
};

/// The same where nothing is in the way: all N or none are there, all is aligned, rows are held whole, and codes begin
/// no block within one.  Then one number says it all, counted from where the part of the block begins.
template <>
struct Where<true> {
  static constexpr bool kPlain = true;
  static constexpr int lanes = 32;
  uint32_t first;
  bool there;

  [[nodiscard]] __device__ bool has(int) const { return true; }
  [[nodiscard]] __device__ bool any() const { return there; }
  [[nodiscard]] __device__ uint32_t at(const Place&) const { return first; }
  [[nodiscard]] __device__ uint32_t pair_at(const Place&) const { return first / 2; }
  [[nodiscard]] __device__ uint32_t block_at(const Place&) const {
    return first / static_cast<uint32_t>(kMomentumBlock);
  }
  [[nodiscard]] __device__ bool begins_block() const { return first % static_cast<uint32_t>(kMomentumBlock) == 0; }
  [[nodiscard]] __device__ uint32_t random(const Place& p, int n) const {
    return algorithms::random_bits(p.key, p.whole + first + static_cast<uint32_t>(n));
  }
  [[nodiscard]] __device__ Where halved() const { return *this; }
  [[nodiscard]] __device__ Where below(int rows, int64_t cols, bool next_there) const {
    return {first + static_cast<uint32_t>(rows) * static_cast<uint32_t>(cols), there && next_there};
  }
};

/// N elements of type U.
template <class U, int N>
struct alignas(sizeof(U) * N >= 16 ? 16 : sizeof(U) * N) Vector {
  U v[N];
};

template <class U, int N, class W, class At>
__device__ inline Vector<U, N> load_vector(const void* data, At at, const W& w) {
  const U* from = static_cast<const U*>(data) + at;
  __builtin_assume(__isGlobal(from));
  Vector<U, N> x{};
  if constexpr (W::kPlain) {
    if (w.there) x = *reinterpret_cast<const Vector<U, N>*>(from);
  } else if (w.aligned) {
    x = *reinterpret_cast<const Vector<U, N>*>(from);
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (n < w.count) x.v[n] = from[n];
    }
  }
  return x;
}

template <class U, int N, class W, class At>
__device__ inline void store_vector(void* data, At at, const W& w, const Vector<U, N>& x) {
  U* to = static_cast<U*>(data) + at;
  __builtin_assume(__isGlobal(to));
  if constexpr (W::kPlain) {
    if (w.there) *reinterpret_cast<Vector<U, N>*>(to) = x;
  } else if (w.aligned) {
    *reinterpret_cast<Vector<U, N>*>(to) = x;
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (n < w.count) to[n] = x.v[n];
    }
  }
}

}  // namespace came::cuda
