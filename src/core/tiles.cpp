// One function for each rule by which a tensor is cut.  "Measured" is on one H200: docs/experiments.md.
#include "core/tiles.hpp"

#include <algorithm>

#include "algorithms/quantize.hpp"
#include "core/checked.hpp"
#include "core/dtype.hpp"
#include "core/message.hpp"
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

// A plan lists its tiles; more than this many (some 300 MB) is no plan for a machine that could run it.
constexpr int64_t kMostTiles = int64_t{1} << 22;

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool owns_cols(const Tensor& t) { return t.factored && (t.owner == Owner::columns || t.owner == Owner::matrix); }
bool owns_rows(const Tensor& t) { return t.factored && (t.owner == Owner::rows || t.owner == Owner::matrix); }

/// What a small vector is cut by.  The output bias of a language model has one tile and often stands alone in its
/// launch, so that one thread block held up every phase.  8 was not compared with others.
Tiling cut_finer(const Tensor& t, Tiling tiling) {
  constexpr int64_t kFiner = 8;
  if (tiling.finer_where_small && !t.factored && t.local_elements <= 2 * tiling.elements) {
    tiling.elements = tiling.cols = tiling.elements / kFiner;
  }
  return tiling;
}

/// Columns of a tile.
int64_t cols_of_tile(const Tensor& t, const Tiling& tiling, bool codes) {
  // Elements of the widest vector of a backend: vectors begin at multiples of their size.
  constexpr int64_t kVector = 16;
  const int64_t all = t.local.cols.count;
  const int64_t most = owns_cols(t) ? std::max(tiling.least, tiling.elements / t.local.rows.count) : tiling.cols;
  if (owns_rows(t) || most >= all) return all;
  // A block of codes shares a scale, so it has one writer.
  const int64_t unit = codes ? algorithms::kMomentumBlock : kVector;
  return std::min(all, divide_up(most, unit) * unit);
}

/// Fewest rows of a tile, so that a matrix of few rows is work for several workers.  A matrix of fewer than 512 rows
/// was one or two thread blocks' before.  A convolution of 512 rows and 4608 columns gave four thread blocks work while
/// the rest of the device was idle; as wide, it gives sixteen.
int64_t share_of_rows(const Tensor& t, const Tiling& tiling) {
  constexpr int64_t kWide = 4096;  // columns
  const bool wide = tiling.shorter_where_wide && t.local.cols.count > kWide;
  const int64_t fewest = std::min<int64_t>(wide ? 32 : 64, tiling.least);
  const int64_t tiles = wide ? 4 * tiling.tiles_of_matrix : tiling.tiles_of_matrix;
  return std::clamp(t.local.rows.count / tiles, fewest, tiling.least);
}

/// Fewest rows of a tile, so that one worker can add up what all tiles of a matrix of very many rows leave.  Measured:
/// with 64 tiles the momentum phase of CAME took 564 us, with 32 it took 536.
int64_t rows_where_many(const Tensor& t, const Tiling& tiling) {
  constexpr int64_t kMostTilesOfMatrix = 32;
  constexpr int64_t kTaller = 4;
  return tiling.taller_where_rows_are_many ? std::min(t.local.rows.count / kMostTilesOfMatrix, kTaller * tiling.least)
                                           : 0;
}

/// Rows of a tile of so many columns.
int64_t rows_of_tile(const Tensor& t, const Tiling& tiling, int64_t cols) {
  const int64_t all = t.local.rows.count;
  if (owns_cols(t)) return all;
  const int64_t fewest = t.factored ? std::max(share_of_rows(t, tiling), rows_where_many(t, tiling)) : 1;
  return std::clamp(tiling.elements / cols, std::min(fewest, all), all);
}

/// Matrices of a tile: one, or several small ones.
int64_t matrices_of_tile(const Tensor& t, const Tiling& tiling, int64_t rows, int64_t cols) {
  const bool whole = t.factored && t.owner == Owner::matrix;
  return whole ? std::max<int64_t>(1, tiling.elements / (rows * cols)) : 1;
}

/// Doubles of the partials of n rows and m columns.
int64_t partials_size(const Tensor& t, const ReductionShape& shape, int64_t n, int64_t m, bool reduces_in_place) {
  // Those of different tiles lie on different cache lines.
  constexpr int64_t kLineDoubles = 8;
  if (!reduces_in_place) return shape.size(n, m);
  const int64_t bytes = (shape.rows * n + shape.cols * m) * element_size(statistics_dtype(t));
  return divide_up(shape.numbers() + divide_up(bytes, sizeof(double)), kLineDoubles) * kLineDoubles;
}

/// The most that any phase leaves.
int64_t partials_size(const Tensor& t, const Tile& tile, bool reduces_in_place) {
  int64_t most = 0;
  for (const Slot& slot : t.slots) {
    most = std::max(most, partials_size(t, slot.shape, tile.rows.count, tile.cols.count, reduces_in_place));
  }
  return most;
}

}  // namespace

void add_tiles(Plan& plan, int64_t index, const Tiling& of_backend, int64_t& workspace) {
  Tensor& t = plan.tensors[static_cast<size_t>(index)];
  const Tiling tiling = cut_finer(t, of_backend);
  t.tiles = {static_cast<int64_t>(plan.tiles.size()), 0};
  if (t.local_elements == 0) return;
  const Local& all = t.local;
  const came_options& o = plan.options(t);
  const bool codes = has_codes(o.momentum_dtype, t) || has_codes(o.second_moment_dtype, t);
  const int64_t cols = cols_of_tile(t, tiling, codes);
  const int64_t rows = rows_of_tile(t, tiling, cols);
  const int64_t batch = matrices_of_tile(t, tiling, rows, cols);

  const int64_t count = divide_up(all.batch.count, batch) * divide_up(all.rows.count, rows) *
                        divide_up(all.cols.count, cols);  // at most the elements
  if (count > kMostTiles - static_cast<int64_t>(plan.tiles.size())) {
    fail(Status::unsupported, t.label, ": would be cut into ", count, " tiles, expected at most ", kMostTiles,
         " in a plan");
  }

  const auto range = [](int64_t begin, int64_t most, int64_t end) { return Range{begin, std::min(most, end - begin)}; };
  for (int64_t b = 0; b < all.batch.count; b += batch) {
    for (int64_t i = 0; i < all.rows.count; i += rows) {
      for (int64_t j = 0; j < all.cols.count; j += cols) {
        const Tile tile{.tensor = index,
                        .batch = range(b, batch, all.batch.count),
                        .rows = range(i, rows, all.rows.count),
                        .cols = range(j, cols, all.cols.count),
                        .partial = workspace};
        checked_add(workspace, partials_size(t, tile, tiling.reduces_in_place), t.label);
        plan.tiles.push_back(tile);
        ++t.tiles.count;
      }
    }
  }
}

void add_column_multipliers(Tensor& t, const Descriptor& optimizer, int64_t& workspace) {
  if (!optimizer.column_multipliers || !t.factored || owns_cols(t)) return;
  t.column_multipliers = workspace;
  const int64_t doubles = divide_up(t.local.cols.count * element_size(statistics_dtype(t)), sizeof(double));
  checked_add(workspace, checked_product(t.local.batch.count, doubles, t.label), t.label);
}

}  // namespace came::core
