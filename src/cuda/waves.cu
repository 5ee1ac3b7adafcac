// Which blocks take which resident matrices, and in which order.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/resident.hpp"

namespace came::cuda {
namespace {

/// Matrices that are under way at the same time.
struct Wave {
  std::vector<size_t> tensors;
  int32_t pieces = 0;

  void add(size_t tensor, int32_t count) {
    tensors.push_back(tensor);
    pieces += count;
  }
};

int32_t pieces_in(const TensorTable& t) { return static_cast<int32_t>(pieces_of(t.rows, t.cols)); }

/// A wave that no other would run beside is cut in two.
void cut_last(const std::vector<TensorTable>& tensors, std::vector<Wave>& waves) {
  if (waves.size() % kWavesAtOnce == 0 || waves.back().tensors.size() == 1) return;
  const Wave all = waves.back();
  Wave halves[2];
  for (const size_t tensor : all.tensors) {
    Wave& less = halves[0].pieces <= halves[1].pieces ? halves[0] : halves[1];
    less.add(tensor, pieces_in(tensors[tensor]));
  }
  waves.back() = halves[0];
  waves.push_back(halves[1]);
}

}  // namespace

bool has_room(int device) {
  const auto of_device = [&](cudaDeviceAttr attribute, int unknown) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess) return value;
    cudaGetLastError();
    return unknown;
  };
  constexpr int kReserved = 1024;  // bytes of shared memory that CUDA takes for each block
  constexpr int kNeeded = kWavesAtOnce * (kPieceBytes + kReserved);
  return of_device(cudaDevAttrMultiProcessorCount, kMostPieces) >= kMostPieces &&
         of_device(cudaDevAttrMaxSharedMemoryPerMultiprocessor, kNeeded) >= kNeeded;
}

// Each matrix goes into the first wave that has room, small ones at last, where they fill gaps.  Matrices of different
// waves may be under way at the same time, and so has each its own place for results.
std::pair<std::vector<PieceTable>, Residents> waves_of(const std::vector<TensorTable>& tensors) {
  std::vector<size_t> large;
  std::vector<size_t> others;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    if (!tensors[tensor].resident) continue;
    (pieces_in(tensors[tensor]) > kMostPieces ? large : others).push_back(tensor);
  }
  std::stable_partition(others.begin(), others.end(),
                        [&](size_t tensor) { return pieces_in(tensors[tensor]) >= kMostPieces / 4; });
  std::vector<Wave> waves;
  size_t open = 0;  // all before are full
  for (const size_t tensor : others) {
    const int32_t count = pieces_in(tensors[tensor]);
    size_t k = open;
    while (k < waves.size() && waves[k].pieces + count > kMostPieces) ++k;
    if (k == waves.size()) waves.emplace_back();
    waves[k].add(tensor, count);
    while (open < waves.size() && waves[open].pieces == kMostPieces) ++open;
  }
  cut_last(tensors, waves);

  std::vector<PieceTable> all;
  Residents residents;
  residents.large = static_cast<int32_t>(large.size());
  residents.waves = static_cast<int32_t>(waves.size());
  const auto add = [&](size_t tensor, int32_t pieces, int32_t count, int32_t base) {
    const TensorTable& t = tensors[tensor];
    for (int32_t piece = 0; piece < pieces; ++piece) {
      all.push_back({static_cast<int32_t>(tensor), piece, count, base, static_cast<int32_t>(residents.results)});
    }
    constexpr int64_t kFloats = sizeof(double) / sizeof(float);
    residents.results += t.cols + count * kScalars * kFloats;
    residents.area = std::max(residents.area, 2 * t.cols);
    residents.blocks = std::max<int64_t>(residents.blocks, base + count);
  };
  for (const size_t tensor : large) residents.members.push_back({static_cast<int32_t>(tensor)});
  for (const Wave& wave : waves) residents.members.emplace_back(wave.tensors.begin(), wave.tensors.end());
  for (const size_t tensor : large) add(tensor, 1, std::min(pieces_in(tensors[tensor]), kWavesAtOnce * kMostPieces), 0);
  for (size_t k = 0; k < waves.size(); ++k) {
    int32_t base = static_cast<int32_t>(k) % kWavesAtOnce * kMostPieces;
    for (const size_t tensor : waves[k].tensors) {
      const int32_t count = pieces_in(tensors[tensor]);
      add(tensor, count, count, base);
      base += count;
    }
    all.resize(large.size() + (k + 1) * kMostPieces, {-1, 0, 0, 0, 0});
  }
  return {all, residents};
}

}  // namespace came::cuda
