// Equations 2 and 3 of the paper on host memory of any float type; written only after all is validated.
#include "core/factorization.hpp"

#include <cmath>

#include "core/checked.hpp"
#include "core/dtype.hpp"
#include "core/float_mode.hpp"
#include "core/message.hpp"
#include "core/step.hpp"
#include "core/view.hpp"

namespace came::core {
namespace {

/// A float tensor in host memory; returns its elements.
Cells host_cells(const came_tensor& tensor, const char* name, const std::vector<int64_t>& shape) {
  const auto dtype = static_cast<DType>(tensor.dtype);
  if (!is_float(dtype)) invalid(name, ": dtype is ", dtype_name(dtype), ", expected f64, f32, bf16 or f16");
  check_tensor(tensor, name, "tensor", shape.data(), static_cast<int64_t>(shape.size()), dtype, CAME_DEVICE_CPU, 0);
  return {tensor.data, dtype};
}

std::vector<int64_t> shape_of(const came_tensor& tensor, const char* name) {
  check_readable(tensor.shape, tensor.ndim, name);
  return {tensor.shape, tensor.shape + tensor.ndim};
}

}  // namespace

void nmf_rank1(const came_tensor& v, const came_tensor& w, const came_tensor& h) {
  const FloatMode mode;
  const std::vector<int64_t> shape = shape_of(v, "v");
  if (shape.size() != 2) invalid("v: ", shape.size(), " dimensions, expected 2");
  checked_elements(shape, "v");
  const int64_t n = shape[0];
  const int64_t m = shape[1];
  const Cells matrix = host_cells(v, "v", shape);
  const Cells rows = host_cells(w, "w", {n});
  const Cells cols = host_cells(h, "h", {m});
  for (int64_t k = 0; k < n * m; ++k) {
    if (!(matrix.get(k) >= 0) || !std::isfinite(matrix.get(k))) {
      invalid("v: element [", k / m, ", ", k % m, "] is ", matrix.get(k), ", expected a finite number >= 0");
    }
  }
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < m; ++j) sum += matrix.get(i * m + j);
    rows.set(i, sum);
    total += sum;
  }
  for (int64_t j = 0; j < m; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += matrix.get(i * m + j);
    cols.set(j, total > 0 ? sum / total : 0.0);
  }
}

void confidence_update(const came_tensor& m, const came_tensor& u, double eps, const came_tensor& out) {
  const FloatMode mode;
  if (!std::isfinite(eps) || eps <= 0) invalid("eps: ", eps, " given, expected a finite number > 0");
  const std::vector<int64_t> shape = shape_of(m, "m");
  const int64_t elements = checked_elements(shape, "m");
  const Cells momentum = host_cells(m, "m", shape);
  const Cells update = host_cells(u, "u", shape);
  const Cells result = host_cells(out, "out", shape);
  for (int64_t k = 0; k < elements; ++k) {
    const double difference = momentum.get(k) - update.get(k);
    result.set(k, momentum.get(k) / std::sqrt(difference * difference + eps));
  }
}

}  // namespace came::core
