// Memory of a device, as far as tests need it: gpu/device.cpp has it on CUDA, no_device.cpp answers in builds without.
#pragma once

#include <cstdint>

namespace came::test::device {

// All but the first and `release` throw std::runtime_error when CUDA reports an error, now or from earlier work.

/// Is there a device to run on?
bool present();

void* allocate(int64_t bytes);
void release(void* memory) noexcept;
void upload(void* to, const void* from, int64_t bytes);
void download(void* to, const void* from, int64_t bytes);
void fill(void* to, int byte, int64_t bytes);
/// Waits for all streams.
void synchronize();

}  // namespace came::test::device
