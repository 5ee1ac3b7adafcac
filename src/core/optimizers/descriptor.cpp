// Which descriptor is whose, and what they share: state tensors and their shapes.
#include "core/optimizers/descriptor.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "algorithms/quantize.hpp"
#include "core/dtype.hpp"
#include "core/message.hpp"

namespace came::core {

const Descriptor& descriptor(Algorithm algorithm) {
  static constexpr const Descriptor* table[] = {
      &kCameDescriptor, &kAdafactorDescriptor, &kAdamDescriptor, &kAdamwDescriptor, &kLambDescriptor, &kSm3Descriptor,
  };
  return *entry_of(algorithm, table);
}

DType statistics_dtype(const Tensor& tensor) { return tensor.dtype == DType::f64 ? DType::f64 : DType::f32; }

namespace {

/// A state of the parameter's own dimensions.
std::vector<int32_t> all_dims(const Tensor& tensor) {
  std::vector<int32_t> dims(tensor.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

}  // namespace

State full_state(const char* name, const Tensor& tensor, DType dtype) {
  return {name, dtype, tensor.local_shape, tensor.shape, tensor.offset, all_dims(tensor)};
}

namespace {

/// Sizes or offsets of a statistic: those of the folded axis, or of the parameter less the dimension averaged over.
std::vector<int64_t> without(const Tensor& tensor, std::vector<int64_t> sizes, size_t from_end, int64_t folded) {
  if (!tensor.view.last_two) return {folded};
  sizes.erase(sizes.end() - static_cast<std::ptrdiff_t>(from_end));
  return sizes;
}

/// The parameter's dimensions in a statistic without one of its last two.
std::vector<int32_t> dims_without(const Tensor& tensor, size_t from_end) {
  std::vector<int32_t> dims = all_dims(tensor);
  dims[dims.size() - from_end] = -1;
  if (from_end == 2) --dims.back();
  return dims;
}

State axis_state(const char* name, const Tensor& t, size_t from_end, const Range& held, int64_t whole,
                 std::vector<int32_t> folded_dims) {
  return {name,
          statistics_dtype(t),
          without(t, t.local_shape, from_end, held.count),
          without(t, t.shape, from_end, whole),
          without(t, t.offset, from_end, held.begin),
          t.view.last_two ? dims_without(t, from_end) : std::move(folded_dims)};
}

}  // namespace

State row_state(const char* name, const Tensor& tensor) {
  std::vector<int32_t> dims(tensor.shape.size(), -1);
  dims[0] = 0;
  return axis_state(name, tensor, 1, tensor.local.rows, tensor.view.rows, std::move(dims));
}

State col_state(const char* name, const Tensor& tensor) {
  std::vector<int32_t> dims(tensor.shape.size(), 0);
  dims[0] = -1;
  return axis_state(name, tensor, 2, tensor.local.cols, tensor.view.cols, std::move(dims));
}

namespace {

/// A state tensor with `count` elements for a row of the parameter's matrices, `per` columns each.
State per_row_state(const char* name, const Tensor& t, DType dtype, int64_t per) {
  const auto pieces = [&](int64_t cols) { return (cols + per - 1) / per; };
  const auto shape = [&](std::vector<int64_t> sizes, int64_t rows, int64_t cols) {
    if (!t.view.last_two) return std::vector<int64_t>{rows, cols};
    sizes.back() = cols;
    return sizes;
  };
  std::vector<int32_t> dims = all_dims(t);
  if (!t.view.last_two)
    std::replace_if(
        dims.begin(), dims.end(), [](int32_t d) { return d > 1; }, 1);
  return {name,
          dtype,
          shape(t.local_shape, t.local.rows.count, pieces(t.local.cols.count)),
          shape(t.shape, t.view.rows, pieces(t.view.cols)),
          shape(t.offset, t.local.rows.begin, t.local.cols.begin / per),
          std::move(dims)};
}

/// A block of codes has one scale, so it must lie on one rank.
void check_blocks(const Tensor& tensor, const std::string& moment, const char* instead) {
  const Range& cols = tensor.local.cols;
  const int64_t block = algorithms::kMomentumBlock;
  if (cols.begin % block != 0 || (cols.count % block != 0 && cols.begin + cols.count != tensor.view.cols)) {
    invalid(tensor.label, ": shard of columns [", cols.begin, ", ", cols.begin + cols.count, ") cuts a block of the ",
            moment, ", expected a shard of rows, or of columns by multiples of ", block, "; or ", instead);
  }
}

}  // namespace

bool has_codes(came_dtype asked, const Tensor& tensor) {
  return tensor.shape.size() > 1 && (asked == CAME_DTYPE_I8 || asked == CAME_DTYPE_I4);
}

void add_momentum(std::vector<State>& list, const came_options& options, const Tensor& tensor) {
  auto dtype = static_cast<DType>(options.momentum_dtype);
  if (dtype == DType::automatic) dtype = statistics_dtype(tensor);
  if (dtype == DType::f64 && tensor.dtype != DType::f64) {
    invalid(tensor.label, ": momentum_dtype is f64 for a ", dtype_name(tensor.dtype),
            " parameter, expected another type");
  }
  if (!has_codes(options.momentum_dtype, tensor)) {
    const bool codes = dtype == DType::i8 || dtype == DType::i4;
    list.push_back(full_state("exp_avg", tensor, codes ? statistics_dtype(tensor) : dtype));
    return;
  }
  check_blocks(tensor, std::string(dtype_name(dtype)) + " momentum", "momentum_dtype default or bf16");
  list.push_back(dtype == DType::i8 ? full_state("exp_avg", tensor, DType::i8)
                                    : per_row_state("exp_avg", tensor, DType::u8, 2));
  list.push_back(per_row_state("exp_avg_scale", tensor, DType::f32, algorithms::kMomentumBlock));
}

void add_second_moment(std::vector<State>& list, const came_options& options, const Tensor& tensor) {
  if (!has_codes(options.second_moment_dtype, tensor)) {
    list.push_back(full_state("exp_avg_sq", tensor, statistics_dtype(tensor)));
    return;
  }
  check_blocks(tensor, "int8 second moment", "second_moment_dtype default");
  list.push_back(full_state("exp_avg_sq", tensor, DType::u8));
  list.push_back(per_row_state("exp_avg_sq_scale", tensor, DType::f32, algorithms::kMomentumBlock));
}

bool any_group(const std::vector<came_options>& groups, int32_t came_options::*flag) {
  return std::any_of(groups.begin(), groups.end(), [&](const came_options& o) { return o.*flag != 0; });
}

}  // namespace came::core
