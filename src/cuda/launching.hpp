// A launch in plain C++: any compiler reads it, and every launch says how it stands to others.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/tables.hpp"

namespace came::cuda {

/// How a launch runs: after the one before it, beside it, or with all of its own blocks at the same time.
enum class Manner { after, beside, together };

struct Blocks {
  int64_t count;
  int threads;
  size_t bytes;  ///< Shared memory of each.
  cudaStream_t stream;
  Manner manner;
};

template <class... Parameters, class... Arguments>
void run_kernel(void (*kernel)(Parameters...), const Blocks& blocks, const Arguments&... arguments) {
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
  config.stream = blocks.stream;
  config.attrs = &attribute;
  config.numAttrs = blocks.manner == Manner::after ? 0 : 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "step: a launch failed");
}

}  // namespace came::cuda
