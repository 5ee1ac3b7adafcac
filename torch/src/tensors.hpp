// libtorch's tensors as the core sees them: dtypes, devices, views, the current stream.  PRIVATE.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <came/error.hpp>
#include <came/tensor.hpp>
#include <optional>
#include <string>

namespace came::torch {

/// The core's name of a dtype; none for those it does not store.
inline std::optional<DType> core_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::f64;
    case at::kFloat:
      return DType::f32;
    case at::kBFloat16:
      return DType::bf16;
    case at::kHalf:
      return DType::f16;
    case at::kLong:
      return DType::i64;
    case at::kChar:
      return DType::i8;
    case at::kByte:
      return DType::u8;
    default:
      return std::nullopt;
  }
}

/// libtorch's name of a dtype that a plan asks for.
inline at::ScalarType torch_dtype(DType type) {
  switch (type) {
    case DType::f64:
      return at::kDouble;
    case DType::f32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::f16:
      return at::kHalf;
    case DType::i64:
      return at::kLong;
    case DType::i8:
      return at::kChar;
    default:
      return at::kByte;
  }
}

/// Whether parameters and gradients may have this dtype.
inline bool is_trainable(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

/// The memory of a dense, row-major tensor; none if there is none.  The tensor must outlive the view.
inline TensorView view_of(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  const bool on_host = device.is_cpu();
  return {tensor.data_ptr(),
          {tensor.sizes().data(), tensor.sizes().size()},
          *core_dtype(tensor.scalar_type()),
          on_host ? Device::cpu : Device::cuda,
          on_host ? 0 : device.index()};
}

/// The stream in which libtorch works on a device; null on the host.  By an interface that every build of libtorch has,
/// so that no CUDA header is needed.
inline void* current_stream(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

/// "float32 [3, 4] on cpu", for messages.
inline std::string describe(const char* dtype, at::IntArrayRef shape, c10::Device device) {
  std::string text = std::string(dtype) + " [";
  for (size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "] on " + device.str();
}

/// The same of a tensor.
inline std::string describe(const at::Tensor& tensor) {
  return describe(c10::toString(tensor.scalar_type()), tensor.sizes(), tensor.device());
}

}  // namespace came::torch
