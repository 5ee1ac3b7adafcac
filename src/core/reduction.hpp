// What a phase leaves to reduce, and the name of each of its numbers.  Every backend finds them by these names.
//
// | phase      | per row, per column of a matrix                    | per matrix   | of the whole tensor, options' last
// |
// |------------|----------------------------------------------------|--------------|--------------------------------------|
// | norm       |                                                    |              | kGradientSquares | | statistics |
// kSquares, and kWeightedSquares if an axis is owned | kRowAverages | kUpdateSquares if no vector; option's | | rms |
// |              | kUpdateSquares                       | | momentum   | kInstability | kRowAverages | option's | |
// moments    |                                                    |              | LAMB: two squares; Adam: option's |
// | agreement  |                                                    |              | option's | | cover      | kCovers
// |              |                                      |
//
// Ranks that hold parts of the same matrices need the vectors and scalars of these alone; totals concern all ranks that
// hold the tensor.
#pragma once

#include <cstdint>

#include "algorithms/rounding.hpp"

namespace came::core {

struct Tensor;

/// Per matrix: so many vectors over its rows, over its columns, and scalars.  Of the whole tensor: totals.
struct ReductionShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t scalars = 0;
  int64_t totals = 0;

  /// Scalars of both kinds, which are numbered together: those of a matrix first.
  [[nodiscard]] int64_t numbers() const { return scalars + totals; }
  /// Numbers of a matrix of n rows and m columns, without totals.
  [[nodiscard]] int64_t matrix_size(int64_t n, int64_t m) const { return rows * n + cols * m + scalars; }
  /// Numbers that a tile of n rows and m columns leaves.
  [[nodiscard]] int64_t size(int64_t n, int64_t m) const { return matrix_size(n, m) + totals; }
};

/// What the statistics of a factored matrix leave to reduce.  `weighted` adds what the RMS follows from.
ReductionShape factor_reduction(const Tensor& tensor, bool weighted);

// Vectors over rows or columns.

inline constexpr int kSums = 0;             ///< What moving averages are taken of:
inline constexpr int kSquares = kSums;      ///< squared gradients,
inline constexpr int kInstability = kSums;  ///< CAME's squared difference between update and momentum.
inline constexpr int kWeightedSquares = 1;  ///< Squared gradients over the average of the other axis, which is owned.
inline constexpr int kCovers = 0;           ///< SM3: maxima of the covers.

// Scalars and totals that every tensor of such a phase has.

inline constexpr int kGradientSquares = 0;
inline constexpr int kRowAverages = 0;    ///< Sum of the row averages; of rows held in part, a part of theirs.
inline constexpr int kUpdateSquares = 0;  ///< Sum of the squares of the update before it is clipped.
inline constexpr int kLambParameterSquares = 0;
inline constexpr int kLambUpdateSquares = 1;

// Totals of options come last.  No phase has two of them.

/// How many elements agree with the gradient: `cautious`.
template <class Shape>
CAME_HOST_DEVICE constexpr int agreement_scalar(const Shape& shape) {
  return static_cast<int>(shape.scalars + shape.totals) - 1;
}
/// Sum of the squares of the parameters: Adafactor's `scale_parameter`.
template <class Shape>
CAME_HOST_DEVICE constexpr int parameter_squares_scalar(const Shape& shape) {
  return static_cast<int>(shape.scalars + shape.totals) - 1;
}

}  // namespace came::core
