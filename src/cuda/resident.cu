// CAME on matrices that stay on the chip: each block takes a piece of a matrix through all three visits and keeps its
// gradient, then its momentum, in shared memory and registers.  Bytes per parameter: G + 2M + 2P.
// docs/algorithms.md, equations (5) to (13); docs/performance.md, "Matrices that stay on the chip".
//
// Blocks of one matrix run side by side and wait for each other twice per reduction: once until every piece has left
// its sums per column, once until every piece has finished its share of the columns.  Waves of matrices take turns in
// the visits that stream momentum and parameters, so that one wave moves bytes while the others wait.
//
// Where blocks cannot run side by side, the same functions run one after the other, a launch each, and read again what
// they would have kept: the same bits.
#include <algorithm>

#include "cuda/device/residents.cuh"
#include "cuda/launching.hpp"

namespace came::cuda {
namespace {

constexpr Stage kStages[] = {Stage::statistics, Stage::squares, Stage::momentum, Stage::instability, Stage::apply};

template <class W>
void stream_stages(const ResidentArgs& run, const Queue& queue) {
  const auto launch = [&](int blocks, int wave, int large) {
    for (const Stage stage : kStages) {
      run_kernel(streaming_kernel<W>, {blocks, kThreads, kBytes, Manner::after}, queue, run, wave, large, stage);
    }
  };
  for (int k = 0; k < run.large_count; ++k) launch(kTeams * kMostPieces, 0, k);
  for (int wave = 0; wave < run.waves; wave += kTeams) {
    launch((run.waves - wave < kTeams ? run.waves - wave : kTeams) * kMostPieces, wave, -1);
  }
}

}  // namespace

bool fits_the_chip() {
  ResidentArgs any{};
  any.large_count = any.waves = 1;
  const Queue nowhere{.asks = true};
  for (const bool side_by_side : {false, true}) {
    for (const bool aligned : {false, true}) run_resident(any, side_by_side, aligned, nowhere);
  }
  int device = 0;
  int multiprocessors = 0;
  int cooperative = 0;
  int blocks = 0;
  int of_large = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), "cooperative launch");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, resident_kernel<Where<true>>, kThreads, kBytes),
        "occupancy");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_large, large_kernel<Where<true>>, kThreads, kBytes),
        "occupancy");
  return cooperative != 0 && std::min(blocks, of_large) * multiprocessors >= kTeams * kMostPieces;
}

void run_resident(const ResidentArgs& run, bool side_by_side, bool aligned, const Queue& queue) {
  if (!aligned) return stream_stages<Where<false>>(run, queue);
  if (!side_by_side) return stream_stages<Where<true>>(run, queue);
  const Blocks blocks{kTeams * kMostPieces, kThreads, kBytes, Manner::together};
  if (run.large_count > 0) run_kernel(large_kernel<Where<true>>, blocks, queue, run);
  if (run.waves > 0) run_kernel(resident_kernel<Where<true>>, blocks, queue, run);
}

}  // namespace came::cuda
