// How a plan's tensors are cut into tiles, and the room that their partials take.
#pragma once

#include <cstdint>

namespace came::core {

struct Descriptor;
struct Plan;
struct Tensor;

/// A backend's policy: how large tiles are, and which rules hold for it.  What a worker owns is never cut.
struct Tiling {
  int64_t elements = 0;             ///< Most elements of a tile,
  int64_t cols = 0;                 ///< and most columns,
  int64_t least = 1;                ///< but so many rows (columns) where they are owned: partials count the other axis.
  int64_t tiles_of_matrix = 1;      ///< Fewer rows than `least`, so that a matrix has so many tiles.
  bool shorter_where_wide = false;  ///< Wide rows: four times as many tiles.
  bool taller_where_rows_are_many = false;  ///< Very many rows: more than `least` to a tile.
  bool finer_where_small = false;           ///< A small tensor that is not factored is cut into more tiles.
  /// Partials lie in the statistics' type behind their scalars, tensors that are not sharded have slots for `norm`
  /// alone, and there is room for column multipliers: docs/architecture.md, "The plan".
  bool reduces_in_place = false;
};

/// Appends the tiles of a tensor to the plan, and gives each its partials in the workspace, which has so many doubles
/// so far.
void add_tiles(Plan& plan, int64_t index, const Tiling& of_backend, int64_t& workspace);

/// Where no worker owns the columns, a number that follows from each column's statistics waits for all tiles.
void add_column_multipliers(Tensor& tensor, const Descriptor& optimizer, int64_t& workspace);

}  // namespace came::core
