// Element types: sizes, names, and access to elements as f64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/rounding.hpp"
#include "came/tensor.hpp"

namespace came::core {

/// Bytes of one element; 0 for a number that is no element type.
constexpr int64_t element_size(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i8:
    case DType::u8:
      return 1;
    default:
      return 0;
  }
}

constexpr bool is_float(DType dtype) { return dtype >= DType::f64 && dtype <= DType::f16; }

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::automatic:
      return "default";
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i8:
      return "int8";
    case DType::u8:
      return "u8";
    case DType::i4:
      return "int4";
  }
  return "unknown";
}

constexpr const char* device_name(came_device device) {
  return device == CAME_DEVICE_CPU ? "cpu" : device == CAME_DEVICE_CUDA ? "cuda" : "unknown";
}

/// Elements of host memory, read and written as f64.
class Cells {
 public:
  Cells() = default;
  Cells(void* data, DType dtype) : data_(data), dtype_(dtype) {}

  explicit operator bool() const { return data_ != nullptr; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] double get(int64_t i) const {
    switch (dtype_) {
      case DType::f64:
        return static_cast<const double*>(data_)[i];
      case DType::f32:
        return static_cast<double>(static_cast<const float*>(data_)[i]);
      case DType::bf16:
        return static_cast<double>(algorithms::f32_from_bf16(static_cast<const uint16_t*>(data_)[i]));
      case DType::f16:
        return static_cast<double>(algorithms::f32_from_f16(static_cast<const uint16_t*>(data_)[i]));
      case DType::i8:
        return static_cast<double>(static_cast<const int8_t*>(data_)[i]);
      case DType::u8:
        return static_cast<double>(static_cast<const uint8_t*>(data_)[i]);
      default:
        return static_cast<double>(static_cast<const int64_t*>(data_)[i]);
    }
  }

  /// Rounds to nearest.
  void set(int64_t i, double value) const {
    const auto narrow = static_cast<float>(value);
    switch (dtype_) {
      case DType::f64:
        static_cast<double*>(data_)[i] = value;
        break;
      case DType::f32:
        static_cast<float*>(data_)[i] = narrow;
        break;
      case DType::bf16:
        static_cast<uint16_t*>(data_)[i] = algorithms::bf16_from_f32(narrow);
        break;
      case DType::f16:
        static_cast<uint16_t*>(data_)[i] = algorithms::f16_from_f32(narrow);
        break;
      case DType::i8:
        static_cast<int8_t*>(data_)[i] = static_cast<int8_t>(value);
        break;
      case DType::u8:
        static_cast<uint8_t*>(data_)[i] = static_cast<uint8_t>(value);
        break;
      default:
        static_cast<int64_t*>(data_)[i] = static_cast<int64_t>(value);
    }
  }

  /// Rounds 16-bit types stochastically, all others to nearest.
  void set_stochastic(int64_t i, double value, uint32_t random) const {
    const auto narrow = static_cast<float>(value);
    if (dtype_ == DType::bf16) {
      static_cast<uint16_t*>(data_)[i] = algorithms::bf16_from_f32_stochastic(narrow, random);
    } else if (dtype_ == DType::f16) {
      static_cast<uint16_t*>(data_)[i] = algorithms::f16_from_f32_stochastic(narrow, random);
    } else {
      set(i, value);
    }
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
};

}  // namespace came::core
