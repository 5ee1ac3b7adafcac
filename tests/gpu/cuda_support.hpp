// What the tests need of the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace came::test {

/// Throws what a call of the runtime complains of.
inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

}  // namespace came::test
