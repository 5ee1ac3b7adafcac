// Which blocks take which matrices that stay on the chip, and in which order.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/resident.hpp"

namespace came::cuda {
namespace {

struct Wave {
  std::vector<PieceTable> pieces;
  int64_t cols = 0;
};

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

// Each matrix goes into the first wave that has room.
std::pair<std::vector<PieceTable>, Residents> waves_of(const std::vector<TensorTable>& tensors) {
  std::vector<PieceTable> all;
  std::vector<Wave> waves;
  size_t open = 0;  // all before are full
  int64_t widest = 0;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const TensorTable& t = tensors[tensor];
    if (!t.resident) continue;
    const auto index = static_cast<int32_t>(tensor);
    const auto count = static_cast<int32_t>(pieces_of(t.rows, t.cols));
    widest = std::max(widest, t.cols);
    if (count > kMostPieces) {
      all.push_back({index, 0, std::min(count, kTeams * kMostPieces), 0, 0});
      continue;
    }
    size_t k = open;
    while (k < waves.size() && waves[k].pieces.size() + static_cast<size_t>(count) > kMostPieces) ++k;
    if (k == waves.size()) waves.emplace_back();
    const auto team = static_cast<int32_t>(k) % kTeams;
    const auto base = static_cast<int32_t>(waves[k].pieces.size()) + team * kMostPieces;
    for (int32_t piece = 0; piece < count; ++piece) {
      waves[k].pieces.push_back({index, piece, count, base, static_cast<int32_t>(waves[k].cols)});
    }
    waves[k].cols += t.cols;
    while (open < waves.size() && waves[open].pieces.size() == kMostPieces) ++open;
  }
  int64_t most = widest;
  for (const Wave& wave : waves) most = std::max(most, wave.cols);
  if (widest == 0) return {};
  const Residents residents{static_cast<int32_t>(all.size()), static_cast<int32_t>(waves.size()),
                            2 * (widest + kScalars), most, false};
  for (size_t k = 0; k < waves.size(); ++k) {
    const auto team = static_cast<int32_t>(k) % kTeams;
    for (PieceTable& piece : waves[k].pieces) piece.root += team * static_cast<int32_t>(most);
    waves[k].pieces.resize(kMostPieces, {-1, 0, 0, 0, 0});
    all.insert(all.end(), waves[k].pieces.begin(), waves[k].pieces.end());
  }
  return {all, residents};
}

}  // namespace came::cuda
