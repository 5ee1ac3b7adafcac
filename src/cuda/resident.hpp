// Matrices that are resident during a step of CAME: how they are cut into pieces, and in which order blocks take
// those.  Only on a device that has room for all blocks at once; on others nothing stays, and came.cu has all matrices.
#pragma once

#include <utility>
#include <vector>

#include "cuda/blocks.hpp"
#include "cuda/launching.hpp"

namespace came::cuda {

/// Elements of a piece, fewer where rows are narrow: as many as one block keeps.
inline constexpr int64_t kPiece = int64_t{1} << 15;

/// A pass is nearly over when so many blocks of a wave are done with it.
inline constexpr unsigned kNearly = 5;

/// Numbers of f64 that there is room for, for what a block leaves for others: three, and what follows is aligned.
inline constexpr int kScalars = 4;

/// Counters of turns lie so many apart: each in a line of memory of its own.
inline constexpr int kTurnPitch = 32;

/// Rows are folded so many times in two until a thread of the block has one vector of each part.
constexpr int fold_of(int64_t cols) { return cols <= 1024 ? 0 : cols <= 2048 ? 1 : 2; }

constexpr int64_t pieces_of(int64_t rows, int64_t cols) {
  const int64_t each = kPiece / (int64_t{1024} << fold_of(cols));
  return (rows + each - 1) / each;
}

/// Shared memory of a block.
inline constexpr int kPieceBytes = 28 * 1024 * 4 + 1024;

/// What one block takes in one wave; of a large matrix every count-th piece.
struct PieceTable {
  int32_t tensor;   ///< -1: nothing.
  int32_t index;    ///< Of the block among those of the matrix,
  int32_t count;    ///< which has so many.
  int32_t base;     ///< The first of them.
  int32_t results;  ///< Where the matrix's own begin: multipliers of its columns, then scalars of its blocks.
};

/// Waves of matrices, and before them those that all blocks take together.
struct Residents {
  int32_t large = 0;
  int32_t waves = 0;
  int64_t blocks = 0;         ///< That take any.
  int64_t area = 0;           ///< Floats that a block leaves for others of its matrix: two sums per column.
  int64_t results = 0;        ///< Floats of all matrices' results.
  bool side_by_side = false;  ///< In a call that runs the whole step.
  /// Tensors of each large matrix, then of each wave.
  std::vector<std::vector<int32_t>> members;

  /// Floats of workspace that they take.
  [[nodiscard]] int64_t floats() const { return blocks * area + results; }
  /// Counters of turns.
  [[nodiscard]] int64_t turns() const { return 2 * int64_t{waves} * kTurnPitch; }
};

/// What the kernels are given beside all others.
struct ResidentArgs {
  Args a;
  const PieceTable* large;
  const PieceTable* pieces;
  float* areas;
  float* results;
  int64_t area;
  int32_t large_count;
  int32_t waves;
};

/// Parts of a step that are launched one by one where blocks do not run side by side.
enum class Stage : int32_t { statistics, squares, momentum, instability, apply };

/// Has a device room for the blocks of all waves under way side by side?  Without one, as on those that have.  It
/// decides how sums are added up, and so asks for nothing that may change, such as whether blocks may be launched side
/// by side.
bool has_room(int device);

/// Pieces of the resident matrices: large ones, then waves.
std::pair<std::vector<PieceTable>, Residents> waves_of(const std::vector<TensorTable>& tensors);

/// Can the blocks of all waves under way run side by side, and does the environment want it?  Decides how they are
/// launched, not what they compute.  Asks for the kernels of resident matrices, whichever way they are launched.
bool fits_the_chip();

/// All matrices whose addresses are aligned.  Did their blocks run side by side?
bool run_resident(const ResidentArgs& run, bool side_by_side, const Queue& queue);
/// The others of a large matrix, or of as many waves as are under way: the number of the first in Residents::members.
void run_unaligned_resident(const ResidentArgs& run, int member, const Queue& queue);

}  // namespace came::cuda
