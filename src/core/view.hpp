// How a tensor is seen as a batch of matrices, and which part of them a rank holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "came/options.hpp"

namespace came::core {

/// Part of an index range: [begin, begin + count).
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

/// A tensor as `batch` matrices of rows x cols, over all ranks.
struct MatrixView {
  int64_t batch = 1;
  int64_t rows = 1;
  int64_t cols = 1;
  bool last_two = false;  ///< Batch over the last two dimensions; otherwise one matrix [dim0, rest].

  [[nodiscard]] int64_t elements() const { return batch * rows * cols; }
};

/// A matrix of at most so many elements is small: one worker takes it whole.
inline constexpr int64_t kSmallMatrix = 4096;

/// Which statistics a worker can finish alone, because it holds all they are taken over.
enum class Owner {
  rows,     ///< Whole rows: row statistics are local, column statistics are reduced.
  columns,  ///< Whole columns: the other way round.
  matrix,   ///< Whole small matrices: nothing but scalars of the whole tensor is reduced.
  none,     ///< None of these; both are reduced.
};

/// The part of a view that this rank holds.
struct Local {
  Range batch;
  Range rows;
  Range cols;
  bool splits_batch = false;
  bool splits_rows = false;
  bool splits_cols = false;
};

/// The view of a shape.  `factored` optimizers choose by state elements; others fold.
MatrixView choose_view(const std::vector<int64_t>& shape, View wanted, bool factored);

/// The part of `view` that a shard box covers; nothing if it is not a range of matrices, rows and columns.
std::optional<Local> locate(const std::vector<int64_t>& shape, const MatrixView& view, uint64_t split_dims,
                            const std::vector<int64_t>& offset, const std::vector<int64_t>& extent);

/// Product of sizes; throws, naming `what`, for a negative size or beyond int64.
int64_t checked_elements(const std::vector<int64_t>& shape, const std::string& what);

}  // namespace came::core
