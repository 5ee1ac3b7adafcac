// The plan: a pure function from options, shapes, dtypes and a tiling to everything a step needs to know: views,
// state layout, phases, tiles, reduction tree, workspace.  Immutable once made.
//
// Reduction tree: every tile leaves its partials, which are reduced in f64, in tile order, into the slot of their
// tensor.  Slots of sharded tensors come first, by reduce group: the ranks of a group all-reduce one contiguous run per
// phase, in the first phase behind the group's presence.  A slot holds, per matrix, vectors over its rows, vectors over
// its columns, and scalars; or, where no vectors are reduced, one set of scalars for the whole tensor.  A backend that
// reduces in place needs no slots for tensors that are not sharded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "came/plan.hpp"
#include "core/phase.hpp"
#include "core/reduction.hpp"
#include "core/view.hpp"

namespace came::core {

struct Backend;
struct Tiling;

/// One state tensor of a parameter.
struct State {
  const char* name;
  DType dtype;
  std::vector<int64_t> shape;   ///< What this rank holds.
  std::vector<int64_t> whole;   ///< Over all ranks.
  std::vector<int64_t> offset;  ///< Where `shape` begins in `whole`.
  std::vector<int32_t> dims;    ///< Per dimension of the parameter: that of this state which holds it, or -1.
  int64_t bytes = 0;
};

/// Where the results of one phase for one tensor lie in the reduction buffer.
struct Slot {
  ReductionShape shape;
  int64_t offset = 0;  ///< Vectors and scalars, in doubles from the start of the buffer: local_sets() sets.
  int64_t totals = 0;  ///< Totals, likewise: total_blocks() sets.
};

/// No other rank holds parts of the same matrices.
inline constexpr int32_t kAlone = -1;

/// Everything known of one parameter.
struct Tensor {
  std::string label;  ///< "tensor 3 'encoder.weight'": how messages name it.
  std::string name;
  std::vector<int64_t> shape;        ///< Whole.
  std::vector<int64_t> local_shape;  ///< What this rank holds.
  std::vector<int64_t> offset;       ///< Where it begins in the whole.
  int64_t local_elements = 0;
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  int32_t group = 0;
  uint64_t id = 0;
  bool sharded = false;
  int32_t reduce_group = 0;
  int32_t matrix_group = 0;  ///< Likewise of its matrices' vectors and scalars; kAlone: this rank has all of them.
  bool factored = false;
  Owner owner = Owner::none;
  MatrixView view;
  Local local;
  std::vector<State> states;
  int64_t first_state = 0;           ///< Index of states[0] among all states of the plan.
  int64_t first_matrix_scalars = 0;  ///< Where its matrix scalars begin among those of the plan: local_sets().
  int64_t presence = 0;              ///< Sharded: where "has a gradient" lies in the reduction buffer.
  int64_t column_multipliers = 0;    ///< Where a number per column and local matrix lies in the workspace, in doubles.
  std::vector<Slot> slots;           ///< One per phase.
  Range tiles;                       ///< Among those of the plan: matrix by matrix, rows first.

  [[nodiscard]] bool set_per_matrix() const { return factored && owner != Owner::matrix; }
  /// Local matrices with reductions and scalars of their own: as many as there are, or one for all.
  [[nodiscard]] int64_t local_sets() const { return set_per_matrix() ? local.batch.count : 1; }
  /// Sets of totals: what is not sharded is added up matrix by matrix, and then over all tensors.
  [[nodiscard]] int64_t total_blocks() const { return sharded ? 1 : local_sets(); }
};

/// A rectangle of one matrix, or several whole ones, in the rank's own numbers.
struct Tile {
  int64_t tensor = 0;
  Range batch;
  Range rows;
  Range cols;
  int64_t partial = 0;  ///< Offset of its partials in the workspace, in doubles.
};

/// Doubles that the ranks of a reduce group all-reduce after a phase.
struct SharedRun {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t presence = 0;  ///< How many at its front say which tensors are active: core/presence.hpp.
};

/// One phase and the reduction after it.
struct Phase {
  PhaseKind kind = PhaseKind::apply;
  came_reduce_op op = CAME_REDUCE_SUM;
  int64_t offset = 0;             ///< In doubles.
  int64_t count = 0;              ///< Doubles of all tensors.
  std::vector<SharedRun> shared;  ///< Those of sharded tensors, per reduce group, at the front.
  std::vector<Range> slots;       ///< All doubles but presence.
};

struct Plan {
  const Backend* backend = nullptr;
  int32_t device_index = 0;
  Algorithm algorithm = Algorithm::came;
  std::vector<came_options> groups;
  std::vector<Tensor> tensors;
  std::vector<Tile> tiles;
  std::vector<Phase> phases;
  int64_t state_count = 0;
  int64_t matrix_scalars_offset = 0;  ///< In the workspace, in doubles.
  int64_t extra_offset = 0;           ///< Likewise: what the backend wants for itself.
  came_memory memory{};
  bool sharded = false;
  bool has_distinct_ids = false;       ///< Each tensor one of its own, as stochastic rounding needs.
  std::shared_ptr<const void> tables;  ///< Of the backend, in memory of its device: core::prepare.

  [[nodiscard]] const came_options& options(const Tensor& tensor) const {
    return groups[static_cast<size_t>(tensor.group)];
  }
  /// Index of a phase; -1 if the plan has none of that kind.
  [[nodiscard]] int find(PhaseKind kind) const;
};

/// Doubles of workspace in which a backend keeps what follows from a reduction, per local block of a slot.
inline constexpr int64_t kMatrixScalars = 4;

/// Makes a plan; `tiling` overrides the backend's (for tests).
Plan make_plan(const std::vector<came_options>& groups, const std::vector<TensorSpec>& specs, const Backend& backend,
               int32_t device_index = 0, const Tiling* tiling = nullptr);

}  // namespace came::core
