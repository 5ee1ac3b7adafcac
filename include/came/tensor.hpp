// Views of caller-owned memory: element types, devices, tensors.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "came/came.h"

namespace came {

/// Element type of a tensor; the same values as came_dtype.
enum class DType : came_dtype {
  automatic = CAME_DTYPE_DEFAULT,  ///< In options: f64 beside f64 parameters, f32 beside all others.
  f64 = CAME_DTYPE_F64,            ///< IEEE binary64.
  f32 = CAME_DTYPE_F32,            ///< IEEE binary32.
  bf16 = CAME_DTYPE_BF16,          ///< The upper half of binary32.
  f16 = CAME_DTYPE_F16,            ///< IEEE binary16.
  i64 = CAME_DTYPE_I64,            ///< Step counters.
  i8 = CAME_DTYPE_I8,              ///< 8-bit codes of a momentum.
  u8 = CAME_DTYPE_U8,              ///< Bytes of two 4-bit codes each.
  i4 = CAME_DTYPE_I4,              ///< In options: a momentum of 4-bit codes.
};

/// Where memory lies; the same values as came_device.
enum class Device : came_device {
  cpu = CAME_DEVICE_CPU,    ///< Host memory.
  cuda = CAME_DEVICE_CUDA,  ///< Memory of a CUDA device.
};

/// The DType of a C++ type that has one (float, double, int64_t).
template <class T>
constexpr DType dtype_of() {
  using U = std::remove_const_t<T>;
  static_assert(std::is_same_v<U, float> || std::is_same_v<U, double> || std::is_same_v<U, int64_t>,
                "bf16 and f16 have no C++ type: pass the DType");
  if constexpr (std::is_same_v<U, float>) return DType::f32;
  if constexpr (std::is_same_v<U, double>) return DType::f64;
  return DType::i64;
}

/// A dense, row-major tensor in caller-owned memory.  Neither the data nor the shape is copied: both must outlive it.
struct TensorView : came_tensor {
  /// An f32 tensor of no dimensions at no address.
  TensorView() : came_tensor(CAME_TENSOR_INIT) {}
  /// A view of `data` with this shape and element type.
  TensorView(void* address, std::span<const int64_t> sizes, DType type, Device where = Device::cpu, int index = 0)
      : TensorView() {
    data = address;
    shape = sizes.data();
    ndim = static_cast<int32_t>(sizes.size());
    dtype = static_cast<came_dtype>(type);
    device = static_cast<came_device>(where);
    device_index = index;
  }
  /// A view of typed host memory with this shape.
  template <class T>
  TensorView(T* address, std::span<const int64_t> sizes)
      : TensorView(const_cast<std::remove_const_t<T>*>(address), sizes, dtype_of<T>()) {}
  /// A view of one number on the host.
  template <class T>
  explicit TensorView(T* address) : TensorView(address, {}) {}
};

// Arrays of TensorView are passed to the C interface as they are.
static_assert(sizeof(TensorView) == sizeof(came_tensor));

}  // namespace came
