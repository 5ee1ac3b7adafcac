// Fewer blocks than on a device: each thread of one is a fiber.
#pragma once

namespace came::cuda {

inline constexpr int kMostPieces = 6;
inline constexpr int kTeams = 2;

}  // namespace came::cuda
