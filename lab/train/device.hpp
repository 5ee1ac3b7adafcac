// Where a model runs: its device by name, bf16 products there, waiting for it, and the memory it takes.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace lab {

/// "cpu", "cuda" or "cuda:1"; throws an Error where there is no such device.
[[nodiscard]] c10::Device device_of(const std::string& name);
/// Waits until a device has done all it was given.
void wait_for(c10::Device device);
/// Bytes in use at most so far: of the CUDA allocator, or the process's own.
[[nodiscard]] int64_t peak_memory(c10::Device device);

/// While one lives, matrix products run in bf16 if asked to; parameters and sums stay f32.
class Precision {
 public:
  Precision(c10::Device device, bool bf16);
  ~Precision();
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  c10::DeviceType type_;
  bool bf16_;
};

}  // namespace lab
