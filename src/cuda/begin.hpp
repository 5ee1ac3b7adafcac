// What a call of the CUDA backend does before its first phase.
#pragma once

#include "cuda/launching.hpp"

namespace came::cuda {

/// Most words that one launch sends: its arguments may take 32,764 bytes.
inline constexpr int kMostWords = 4032;

/// Addresses and host scalars on their way to the workspace.
struct Message {
  int64_t first = 0;  ///< Number of the first of them in the workspace.
  int32_t count = 0;
  uint64_t word[kMostWords];
};

/// Asks for the kernels of both functions below.
void ask_for_begin(const Args& args);

/// Sends words, and after them a number that lies on the device, if there is one.
void run_bind(const Args& args, const Message& message, const ScalarTable& after, const Queue& queue);

/// May a launch begin before the one before it is over?  Not on older devices, nor where kernels were compiled for
/// them.
bool launches_overlap();

/// Sends the last words, reads scalars, counts the step, and writes what blocks must know of each tensor.
void run_begin(const Args& args, const Message& message, const Queue& queue);

}  // namespace came::cuda
