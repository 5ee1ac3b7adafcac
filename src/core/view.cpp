// Shapes into matrices; boxes of a shape into ranges of matrices, rows and columns.
#include "core/view.hpp"

#include <limits>

#include "core/message.hpp"

namespace came::core {
namespace {

int64_t product(const std::vector<int64_t>& shape, size_t first, size_t last) {
  int64_t value = 1;
  for (size_t d = first; d < last; ++d) value *= shape[d];
  return value;
}

/// The indices that the box covers in the row-major flattening of dimensions [first, last), if they are one range:
/// up to one dimension a single index each, after it whole dimensions.
std::optional<Range> flatten(const std::vector<int64_t>& shape, const std::vector<int64_t>& offset,
                             const std::vector<int64_t>& extent, size_t first, size_t last) {
  Range range{0, 1};
  bool wide = false;
  bool one_range = true;
  for (size_t d = first; d < last; ++d) {
    if (wide && extent[d] != shape[d]) one_range = false;
    wide = wide || extent[d] != 1;
    range.begin = range.begin * shape[d] + offset[d];
    range.count *= extent[d];
  }
  if (range.count == 0) return Range{0, 0};
  if (!one_range) return std::nullopt;
  return range;
}

}  // namespace

int64_t checked_elements(const std::vector<int64_t>& shape, const std::string& what) {
  // Sixteen bytes per element bounds every byte count the library computes.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;
  int64_t elements = 1;
  int64_t nonzero = 1;  // also bounds the folded view of an empty tensor
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      invalid(what, ": shape[", d, "] is ", shape[d], ", expected at least 0");
    }
    if (shape[d] > 0 && nonzero > kMost / shape[d]) {
      invalid(what, ": shape ", shape_text(shape.data(), static_cast<int64_t>(shape.size())),
              " has more elements than int64 can count in bytes");
    }
    nonzero *= shape[d] > 0 ? shape[d] : 1;
    elements *= shape[d];
  }
  return elements;
}

MatrixView choose_view(const std::vector<int64_t>& shape, View wanted, bool factored) {
  const size_t n = shape.size();
  if (n < 2) return {1, 1, product(shape, 0, n), false};
  const MatrixView fold{1, shape[0], product(shape, 1, n), false};
  const MatrixView last_two{product(shape, 0, n - 2), shape[n - 2], shape[n - 1], true};
  if (n == 2 || !factored) return fold;
  if (wanted == View::fold) return fold;
  if (wanted == View::last_two) return last_two;
  const int64_t fold_state = fold.rows + fold.cols;
  const int64_t last_two_state = last_two.batch * (last_two.rows + last_two.cols);
  return last_two_state < fold_state ? last_two : fold;
}

std::optional<Local> locate(const std::vector<int64_t>& shape, const MatrixView& view, uint64_t split_dims,
                            const std::vector<int64_t>& offset, const std::vector<int64_t>& extent) {
  const size_t n = shape.size();
  // Dimensions [0, a) are the batch, [a, b) the rows, [b, n) the columns.
  const size_t a = view.last_two ? n - 2 : 0;
  const size_t b = n < 2 ? 0 : view.last_two ? n - 1 : 1;
  const auto batch = flatten(shape, offset, extent, 0, a);
  const auto rows = flatten(shape, offset, extent, a, b);
  const auto cols = flatten(shape, offset, extent, b, n);
  if (!batch || !rows || !cols) return std::nullopt;
  Local local{*batch, *rows, *cols};
  for (size_t d = 0; d < n; ++d) {
    if ((split_dims >> d & 1U) == 0) continue;
    (d < a ? local.splits_batch : d < b ? local.splits_rows : local.splits_cols) = true;
  }
  return local;
}

}  // namespace came::core
