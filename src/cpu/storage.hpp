// Where a tensor's elements lie and how they are stored: what the kernels of every instruction set read and write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "came/tensor.hpp"

namespace came::cpu {

/// Elements a kernel takes at once from a row: small enough that a few rows of a few tensors stay in the first cache.
/// A multiple of the blocks of codes.
inline constexpr size_t kChunk = 1024;

/// Part of a row: `n` elements from column `col` of local row `row` (rows of all matrices count on).
struct Span {
  int64_t row = 0;
  int64_t col = 0;
  uint64_t whole = 0;  ///< Number of its first element in the whole tensor.
  size_t n = 0;
};

struct Storage {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t cols = 0;            ///< Of a local row.
  float* scales = nullptr;     ///< Of codes, one per block.
  bool second_moment = false;  ///< Codes without sign, always drawn.
  bool stochastic = false;
  uint64_t key = 0;  ///< Of stochastic rounding.

  explicit operator bool() const { return data != nullptr; }
  [[nodiscard]] int64_t at(const Span& span) const { return span.row * cols + span.col; }
};

}  // namespace came::cpu
