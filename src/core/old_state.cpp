// docs/algorithms.md, equations (30) and (31): every code is read as it was meant.
#include "core/old_state.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "algorithms/quantize.hpp"
#include "core/dtype.hpp"
#include "core/optimizers/descriptor.hpp"
#include "core/step.hpp"

namespace came::core {
namespace {

using algorithms::kMomentumBlock;

void check_list(const NamedTensor& given, int64_t elements, DType dtype) {
  check_tensor(given.tensor, "state '" + given.name + "'", "tensor", &elements, 1, dtype, CAME_DEVICE_CPU, 0);
}

/// Checks codes and scales of a vector or scalar and writes their values.
void decode(const Tensor& t, const NamedTensor& codes, const NamedTensor& scales, bool second, const Cells& values) {
  const int64_t count = t.view.elements();
  const auto stored = static_cast<DType>(codes.tensor.dtype);
  const bool pairs = !second && stored == DType::u8;
  if (pairs) {
    check_list(codes, (count + 1) / 2, DType::u8);
  } else {
    check_tensor(codes.tensor, "state '" + codes.name + "'", "tensor", t.shape.data(),
                 static_cast<int64_t>(t.shape.size()), second ? DType::u8 : DType::i8, CAME_DEVICE_CPU, 0);
  }
  check_list(scales, (count + kMomentumBlock - 1) / kMomentumBlock, DType::f32);
  const Cells cells(codes.tensor.data, stored);
  for (int64_t k = 0; k < count; ++k) {
    const float scale = static_cast<const float*>(scales.tensor.data)[k / kMomentumBlock];
    const int code = static_cast<int>(cells.get(pairs ? k / 2 : k));
    float value = 0;
    if (second) {
      value = algorithms::decode_second_moment(code, scale);
    } else if (pairs) {
      value = algorithms::decode(algorithms::unpack_int4(static_cast<uint8_t>(code), k % 2 != 0), scale,
                                 algorithms::kLevelsInt4);
    } else {
      value = algorithms::decode(code, scale, algorithms::kLevelsInt8);
    }
    values.set(k, static_cast<double>(value));
  }
}

}  // namespace

LoadedState decode_vectors(const Plan& plan, const std::vector<NamedTensor>& given) {
  LoadedState loaded{given, {}};
  std::vector<bool> read(given.size(), false);
  std::unordered_map<std::string, size_t> known;
  for (size_t k = 0; k < given.size(); ++k) known.emplace(given[k].name, k);
  for (const Tensor& t : plan.tensors) {
    if (t.shape.size() > 1) continue;
    for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
      const auto codes = known.find(t.name + "." + moment);
      const auto scales = known.find(t.name + "." + moment + "_scale");
      if (codes == known.end() || scales == known.end()) continue;
      NamedTensor& one = loaded.tensors[codes->second];
      if (one.tensor.dtype != CAME_DTYPE_I8 && one.tensor.dtype != CAME_DTYPE_U8) continue;
      loaded.memory.emplace_back(static_cast<size_t>(std::max<int64_t>(1, t.view.elements())));
      const Cells values(loaded.memory.back().data(), statistics_dtype(t));
      decode(t, one, given[scales->second], std::string(moment) == "exp_avg_sq", values);
      one.tensor = TensorView(values.data(), t.shape, values.dtype());
      read[scales->second] = true;
    }
  }
  size_t next = 0;
  std::erase_if(loaded.tensors, [&](const NamedTensor&) { return read[next++]; });
  return loaded;
}

}  // namespace came::core
