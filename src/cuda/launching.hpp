// A launch in plain C++: any compiler reads it, and every launch says how it stands to others.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/tables.hpp"

namespace came::cuda {

/// Where launches go: to a stream of the caller, or nowhere.  Then the device is asked whether it would take them, so
/// that a plan is refused and not the second half of a step.
struct Queue {
  cudaStream_t stream = nullptr;
  bool asks = false;
};

/// How a launch runs: after the one before it, beside it, or with all of its own blocks at the same time.
enum class Manner { after, beside, together };

struct Blocks {
  int64_t count;
  int threads;
  size_t bytes;  ///< Shared memory of each.
  Manner manner = Manner::after;
  size_t most = bytes;  ///< In any plan: what is asked for, so that all plans ask for the same.
};

/// Loads a kernel, allows its blocks the memory they need, and throws if the device has no room for one.
void ask_for(const void* kernel, const Blocks& blocks);

/// Has the device cooperative launches, and does the environment (CAME_CUDA_RESIDENT, read once) leave them on?
bool has_cooperative_launches();

/// What CUDA says to a launch.
template <class... Parameters, class... Arguments>
cudaError_t try_kernel(void (*kernel)(Parameters...), const Blocks& blocks, const Queue& queue,
                       const Arguments&... arguments) {
  if (queue.asks) {
    ask_for(reinterpret_cast<const void*>(kernel), blocks);
    return cudaSuccess;
  }
  cudaLaunchAttribute attribute{};
  if (blocks.manner == Manner::beside) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  } else {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks.count));
  config.blockDim = dim3(static_cast<unsigned>(blocks.threads));
  config.dynamicSmemBytes = blocks.bytes;
  config.stream = queue.stream;
  config.attrs = &attribute;
  config.numAttrs = blocks.manner == Manner::after ? 0 : 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class... Parameters, class... Arguments>
void run_kernel(void (*kernel)(Parameters...), const Blocks& blocks, const Queue& queue,
                const Arguments&... arguments) {
  check(try_kernel(kernel, blocks, queue, arguments...), "step: a launch failed");
}

/// Launches all blocks at the same time; false: there is no room for them, as on a stream that has a part of the device
/// for itself (a green context), and nothing was launched.
template <class... Parameters, class... Arguments>
bool run_together(void (*kernel)(Parameters...), Blocks blocks, const Queue& queue, const Arguments&... arguments) {
  blocks.manner = Manner::together;
  const cudaError_t error = try_kernel(kernel, blocks, queue, arguments...);
  if (error == cudaErrorCooperativeLaunchTooLarge || error == cudaErrorNotSupported) {
    cudaGetLastError();  // answered, and not the caller's
    return false;
  }
  check(error, "step: a launch failed");
  return true;
}

}  // namespace came::cuda
