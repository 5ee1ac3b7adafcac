// CAME on resident matrices: each block takes a piece of a matrix through all three passes and keeps its
// gradient, then its momentum, in shared memory and registers.  Bytes per parameter: G + 2M + 2P.
// docs/algorithms.md, equations (5) to (13); docs/cuda.md, "Resident matrices".
//
// Blocks of one matrix run side by side and wait for each other twice per reduction: once until every piece has left
// its sums per column, once until every piece has finished its share of the columns.  Waves of matrices take turns in
// the passes that stream momentum and parameters, so that one wave moves bytes while the others wait.
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
void stream_stages(const ResidentArgs& run, int blocks, int wave, int large, const Queue& queue) {
  for (const Stage stage : kStages) {
    run_kernel(streaming_kernel<W>, {blocks, kThreads, kBytes, Manner::after}, queue, run, wave, large, stage);
  }
}
template <class W>
void stream_large(const ResidentArgs& run, int large, const Queue& queue) {
  stream_stages<W>(run, kWavesAtOnce * kMostPieces, 0, large, queue);
}
/// As many waves from this one on as are under way at the same time.
template <class W>
void stream_waves(const ResidentArgs& run, int wave, const Queue& queue) {
  stream_stages<W>(run, std::min(kWavesAtOnce, run.waves - wave) * kMostPieces, wave, -1, queue);
}

}  // namespace

bool fits_the_chip() {
  ResidentArgs any{};
  any.large_count = any.waves = 1;
  const Queue nowhere{.asks = true};
  for (const bool side_by_side : {false, true}) run_resident(any, side_by_side, nowhere);
  stream_large<Where<false>>(any, 0, nowhere);
  int device = 0;
  int sms = 0;
  int blocks = 0;
  int of_large = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "SMs");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, resident_kernel<Where<true>>, kThreads, kBytes),
        "occupancy");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_large, large_kernel<Where<true>>, kThreads, kBytes),
        "occupancy");
  return has_cooperative_launches() && std::min(blocks, of_large) * sms >= kWavesAtOnce * kMostPieces;
}

bool run_resident(const ResidentArgs& run, bool side_by_side, const Queue& queue) {
  bool all = side_by_side;
  const auto runs = [&](auto kernel) {
    const bool taken = side_by_side && run_together(kernel, {kWavesAtOnce * kMostPieces, kThreads, kBytes}, queue, run);
    all = all && taken;
    return taken;
  };
  if (run.large_count > 0 && !runs(large_kernel<Where<true>>)) {
    for (int k = 0; k < run.large_count; ++k) stream_large<Where<true>>(run, k, queue);
  }
  if (run.waves > 0 && !runs(resident_kernel<Where<true>>)) {
    for (int wave = 0; wave < run.waves; wave += kWavesAtOnce) stream_waves<Where<true>>(run, wave, queue);
  }
  return all;
}

void run_unaligned_resident(const ResidentArgs& run, int member, const Queue& queue) {
  if (member < run.large_count) return stream_large<Where<false>>(run, member, queue);
  stream_waves<Where<false>>(run, member - run.large_count, queue);
}

}  // namespace came::cuda
