// The phases of one optimizer on the device.  One file each, beside this one.
#pragma once

#include "cuda/launching.hpp"

namespace came::cuda {

struct Kernels {
  /// Phase args.phase_kind over one launch's parts.
  void (*run)(const Args& args, const Launch& launch, const Queue& queue);
  /// What follows, for every sharded tensor, from the all-reduced results of phase args.phase_kind.
  void (*finish)(const Args& args, const Queue& queue);
};

const Kernels& came_kernels();
const Kernels& adafactor_kernels();
const Kernels& adam_kernels();
const Kernels& lamb_kernels();
const Kernels& sm3_kernels();

/// `statistics` and CAME's `momentum`, in strips.
void run_strips(const Args& args, const Launch& launch, const Queue& queue);
/// CAME: all phases of vectors, perhaps beside the launch before, which must not be the first of the step.  Blocks that
/// share one wait for each other.
void run_vectors(const Args& args, const VectorTable* vectors, int64_t count, bool beside, const Queue& queue);
/// The same in a cooperative launch; false: there is no room for all blocks at once, and nothing was launched.
bool run_vectors_together(const Args& args, const VectorTable* vectors, int64_t count, const Queue& queue);
/// Has the device room for so many blocks at once?
bool vectors_fit(int64_t count);
void run_norm(const Args& args, const Launch& launch, const Queue& queue);
/// CAME and Adafactor: statistics of the squared gradient, and `rms`.
void run_statistics(const Args& args, const Launch& launch, const Queue& queue);

}  // namespace came::cuda
