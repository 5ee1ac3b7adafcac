// Which blocks take which matrices that stay on the chip, and in which order.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/resident.hpp"

namespace came::cuda {
namespace {

using Wave = std::vector<PieceTable>;

}  // namespace

bool has_room(int device) {
  const auto of_device = [&](cudaDeviceAttr attribute, int unknown) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess) return value;
    cudaGetLastError();
    return unknown;
  };
  constexpr int kReserved = 1024;  // bytes of shared memory that CUDA takes for each block
  constexpr int kNeeded = kTeams * (kPieceBytes + kReserved);
  return of_device(cudaDevAttrCooperativeLaunch, 1) != 0 &&
         of_device(cudaDevAttrMultiProcessorCount, kMostPieces) >= kMostPieces &&
         of_device(cudaDevAttrMaxSharedMemoryPerMultiprocessor, kNeeded) >= kNeeded;
}

// Each matrix goes into the first wave that has room.  Matrices of different waves may be under way at the same time,
// and so has each its own place for results.
std::pair<std::vector<PieceTable>, Residents> waves_of(const std::vector<TensorTable>& tensors) {
  std::vector<PieceTable> all;
  std::vector<Wave> waves;
  Residents residents;
  size_t open = 0;  // all before are full
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const TensorTable& t = tensors[tensor];
    if (!t.resident) continue;
    const auto index = static_cast<int32_t>(tensor);
    const auto pieces = static_cast<int32_t>(pieces_of(t.rows, t.cols));
    const bool large = pieces > kMostPieces;
    const int32_t count = large ? std::min(pieces, kTeams * kMostPieces) : pieces;
    int32_t base = 0;
    if (large) {
      all.push_back({index, 0, count, base, static_cast<int32_t>(residents.results)});
    } else {
      size_t k = open;
      while (k < waves.size() && waves[k].size() + static_cast<size_t>(count) > kMostPieces) ++k;
      if (k == waves.size()) waves.emplace_back();
      base = static_cast<int32_t>(waves[k].size()) + static_cast<int32_t>(k) % kTeams * kMostPieces;
      for (int32_t piece = 0; piece < count; ++piece) {
        waves[k].push_back({index, piece, count, base, static_cast<int32_t>(residents.results)});
      }
      while (open < waves.size() && waves[open].size() == kMostPieces) ++open;
    }
    constexpr int64_t kFloats = sizeof(double) / sizeof(float);
    residents.results += t.cols + count * kScalars * kFloats;
    residents.area = std::max(residents.area, 2 * t.cols);
    residents.blocks = std::max<int64_t>(residents.blocks, base + count);
  }
  residents.large = static_cast<int32_t>(all.size());
  residents.waves = static_cast<int32_t>(waves.size());
  for (Wave& wave : waves) {
    wave.resize(kMostPieces, {-1, 0, 0, 0, 0});
    all.insert(all.end(), wave.begin(), wave.end());
  }
  return {all, residents};
}

}  // namespace came::cuda
