// The local reduction: the partials of tiles into the slots of their tensors.
#include <algorithm>
#include <cmath>

#include "reference/kernels.hpp"

namespace came::reference {
namespace {

/// Folds `count` numbers of the partials into `into`.  A NaN is never lost.
void fold(came_reduce_op op, const double* from, double* into, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    if (op == CAME_REDUCE_SUM) {
      into[k] += from[k];
    } else if (from[k] > into[k] || std::isnan(from[k])) {
      into[k] = from[k];
    }
  }
}

}  // namespace

void reduce_partials(const core::Plan& plan, int phase, const double* workspace, double* reductions) {
  const core::Phase& p = plan.phases[static_cast<size_t>(phase)];
  std::fill_n(reductions + p.offset, p.count, 0.0);
  for (const Tile& tile : plan.tiles) {
    const core::Tensor& t = plan.tensors[static_cast<size_t>(tile.tensor)];
    const core::Slot& slot = t.slots[static_cast<size_t>(phase)];
    const core::MatrixView& view = t.view;
    const double* from = workspace + tile.partial;
    // The slot counts rows and columns of the whole tensor, the tile those of this rank.
    const int64_t block = t.set_per_matrix() ? tile.batch.begin : 0;
    double* into = reductions + slot.offset + block * slot.shape.matrix_size(view.rows, view.cols);
    for (int64_t v = 0; v < slot.shape.rows; ++v, from += tile.rows.count, into += view.rows) {
      fold(p.op, from, into + t.local.rows.begin + tile.rows.begin, tile.rows.count);
    }
    for (int64_t v = 0; v < slot.shape.cols; ++v, from += tile.cols.count, into += view.cols) {
      fold(p.op, from, into + t.local.cols.begin + tile.cols.begin, tile.cols.count);
    }
    fold(p.op, from, into, slot.shape.scalars);
    double* totals = reductions + slot.totals + (t.sharded ? 0 : block) * slot.shape.totals;
    fold(p.op, from + slot.shape.scalars, totals, slot.shape.totals);
  }
}

}  // namespace came::reference
