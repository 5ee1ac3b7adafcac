// Fewer blocks than on a device: each thread of one is a fiber.  Fewer sums at once, so that there are several rounds.
#pragma once

namespace came::cuda {

inline constexpr int kMostPieces = 6;
inline constexpr int kWavesAtOnce = 2;
inline constexpr int kMostSharing = 6;
inline constexpr int kFewPieces = 3;
inline constexpr int kSumsAtOnce = 1;

}  // namespace came::cuda
