// Which sharded tensors are active goes to the reduction buffer by value, in a launch's arguments, so that a captured
// graph holds it.  Nothing waits for what the ranks make of it: the caller compares.
#include "cuda/presence.hpp"

#include <algorithm>

#include "core/step.hpp"

namespace came::cuda {
namespace {

constexpr int kBits = 64;

/// A run of tensors of one reduce group.
struct Presences {
  double* with;     ///< Where "has a gradient" of the first of them lies,
  double* without;  ///< and "has none".
  int32_t count;
  uint64_t active[kPresencesOfLaunch / kBits];
};

__global__ void presence_kernel(const __grid_constant__ Presences p) {
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (k >= p.count) return;
  const bool active = (p.active[k / kBits] >> (k % kBits) & 1U) != 0;
  p.with[k] = active ? 1.0 : 0.0;
  p.without[k] = active ? 0.0 : 1.0;
}

void launch(const Presences& presences, const Queue& queue) {
  constexpr int kThreads = 128;
  if (presences.count == 0) return;
  run_kernel(presence_kernel, {(presences.count + kThreads - 1) / kThreads, kThreads, 0, Manner::after}, queue,
             presences);
}

}  // namespace

void ask_for_presence() { launch({nullptr, nullptr, static_cast<int32_t>(kPresencesOfLaunch), {}}, {.asks = true}); }

void write_presence(const core::Plan& plan, const came_step& step, const Queue& queue) {
  auto* reductions = static_cast<double*>(step.reductions);
  for (size_t group = 0; group < plan.phases[0].shared.size(); ++group) {
    const core::SharedRun& run = plan.phases[0].shared[group];
    Presences presences{reductions + run.begin, reductions + run.begin + run.presence / 2, 0, {}};
    for (size_t k = 0; k < plan.tensors.size(); ++k) {
      const core::Tensor& t = plan.tensors[k];
      if (!t.sharded || static_cast<size_t>(t.reduce_group) != group) continue;
      if (core::is_active(step, static_cast<int64_t>(k))) {
        presences.active[presences.count / kBits] |= uint64_t{1} << (presences.count % kBits);
      }
      if (++presences.count < kPresencesOfLaunch) continue;
      launch(presences, queue);
      presences = {presences.with + presences.count, presences.without + presences.count, 0, {}};
    }
    launch(presences, queue);
  }
}

}  // namespace came::cuda
