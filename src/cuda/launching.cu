// What a device is asked before a plan's first step: can it run the kernels, and how much shared memory has a block?
#include "cuda/launching.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/message.hpp"

namespace came::cuda {

void ask_for(const void* kernel, const Blocks& blocks) {
  int device = 0;
  int most = 0;
  cudaFuncAttributes of_kernel{};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaFuncGetAttributes(&of_kernel, kernel), "the device refused a kernel");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory of a block");
  const size_t room = static_cast<size_t>(most) - of_kernel.sharedSizeBytes;
  const auto refuse = [](const char* what, auto wanted, auto limit) {
    core::fail(Status::device, "a kernel needs ", wanted, " ", what, ", the device takes at most ", limit);
  };
  if (blocks.count > std::numeric_limits<int>::max()) {
    refuse("thread blocks", blocks.count, std::numeric_limits<int>::max());
  }
  if (blocks.threads > of_kernel.maxThreadsPerBlock) {
    refuse("threads in a block", blocks.threads, of_kernel.maxThreadsPerBlock);
  }
  if (blocks.bytes > room) refuse("bytes of shared memory in a block", blocks.bytes, room);
  // More than 48 KB must be asked for.  Always the same number: plans of other threads use the kernel meanwhile.
  constexpr size_t kUnasked = 48 << 10;
  if (blocks.most + of_kernel.sharedSizeBytes <= kUnasked) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(std::min(blocks.most, room))),
        "the device refused shared memory of a block");
}

bool has_cooperative_launches() {
  static const bool wanted = [] {
    const char* given = std::getenv("CAME_CUDA_RESIDENT");
    const std::string_view text = given == nullptr ? "" : given;
    if (text != "" && text != "0" && text != "1") core::invalid("CAME_CUDA_RESIDENT is '", text, "', expected 0 or 1");
    return text != "0";
  }();
  int device = 0;
  int there = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&there, cudaDevAttrCooperativeLaunch, device), "cooperative launch");
  return wanted && there != 0;
}

}  // namespace came::cuda
