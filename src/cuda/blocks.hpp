// How many blocks take resident matrices.
#pragma once

namespace came::cuda {

/// Blocks of a wave, and pieces of a matrix that it takes.
inline constexpr int kMostPieces = 128;

/// Waves under way at the same time: as many as an SM holds blocks.
inline constexpr int kWavesAtOnce = 2;

/// Blocks that share vectors and wait for each other, in a launch of others that do not: far fewer than a device has
/// room for, so that several streams may have such launches under way.
inline constexpr int kMostSharing = 32;

/// Columns of a matrix of fewer pieces are finished thread by thread.
inline constexpr int kFewPieces = 8;

/// Sums of pieces that a thread fetches at once.
inline constexpr int kSumsAtOnce = 16;

}  // namespace came::cuda
