// What a call of the CUDA backend does before its first phase.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tables.hpp"

namespace came::cuda {

/// Most words that one launch sends: its arguments may take 32,764 bytes.
inline constexpr int kMostWords = 4056;

/// Sends words to the workspace, and after them a number that lies on the device, if there is one.
void run_bind(uint64_t* to, const uint64_t* words, int count, const ScalarTable& after, cudaStream_t stream);

/// May a launch begin before the one before it is over?  Not on older devices, nor where kernels were compiled for
/// them.
bool launches_overlap();

/// Reads scalars, counts the step, and writes what blocks must know of each tensor.
void run_begin(const Args& args, cudaStream_t stream);

}  // namespace came::cuda
