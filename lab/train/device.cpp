#include "train/device.hpp"

#include <ATen/autocast_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>
#include <torch/cuda.h>

#include <exception>

#include "error.hpp"

namespace lab {

c10::Device device_of(const std::string& name) {
  c10::Device device(c10::kCPU);
  try {
    device = c10::Device(name);
  } catch (const std::exception&) {  // libtorch's, or the standard library's for a number that is none
    fail("device is {}, expected cpu, cuda or cuda:N", name);
  }
  if (device.is_cpu() && device.index() <= 0) return {c10::kCPU};
  if (!device.is_cuda()) fail("device is {}, expected cpu, cuda or cuda:N", name);
  if (!torch::cuda::is_available())
    fail("device is {}, but this libtorch finds no CUDA device; take --device cpu, or a libtorch built with CUDA",
         name);
  const auto devices = static_cast<int64_t>(torch::cuda::device_count());
  if (device.index() >= devices) fail("device is {}, but there are {} CUDA devices, counted from 0", name, devices);
  return {c10::kCUDA, device.has_index() ? device.index() : c10::DeviceIndex{0}};
}

void wait_for(c10::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

int64_t peak_memory(c10::Device device) {
  if (device.is_cuda()) {
    const auto stats = c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index());
    return stats.allocated_bytes[0].peak;  // over all of its pools
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

Precision::Precision(c10::Device device, bool bf16) : type_(device.type()), bf16_(bf16) {
  if (!bf16_) return;
  at::autocast::set_autocast_enabled(type_, true);
  at::autocast::set_autocast_dtype(type_, at::kBFloat16);
  at::autocast::increment_nesting();
}

Precision::~Precision() {
  if (!bf16_) return;
  // Copies of weights in bf16 would outlive the step that changes the weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, false);
}

}  // namespace lab
