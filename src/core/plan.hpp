// The plan: a pure function from options, shapes, dtypes and a tiling to everything a step needs to know: views,
// state layout, phases, tiles, reduction tree, workspace.  Immutable once made.
//
// Reduction tree: every tile writes one block of partial results; blocks are combined in f64 in tile order into the
// slot of their tensor; slots of sharded tensors come first, so that ranks all-reduce one contiguous run per phase.
// A slot holds, per matrix, `rows` vectors over its rows, `cols` vectors over its columns, and scalars.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "came/plan.hpp"
#include "core/phase.hpp"
#include "core/view.hpp"

namespace came::core {

struct Backend;

/// One state tensor of a parameter.
struct State {
  const char* name;
  DType dtype;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

/// Where the results of one phase for one tensor lie in the reduction buffer.
struct Slot {
  ReductionShape shape;
  int64_t offset = 0;  ///< In doubles from the start of the buffer.
};

/// Everything known of one parameter.
struct Tensor {
  std::string label;  ///< "tensor 3 'encoder.weight'": how messages name it.
  std::string name;
  std::vector<int64_t> shape;        ///< Whole.
  std::vector<int64_t> local_shape;  ///< What this rank holds.
  int64_t local_elements = 0;
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  int32_t group = 0;
  uint64_t id = 0;
  bool sharded = false;
  bool factored = false;
  Owner owner = Owner::none;
  MatrixView view;
  Local local;
  std::vector<State> states;
  int64_t first_state = 0;   ///< Index of states[0] among all states of the plan.
  int64_t first_matrix = 0;  ///< Index of its first local matrix among all local matrices of the plan.
  std::vector<Slot> slots;   ///< One per phase.
};

/// A block of one matrix, in the rank's own row and column numbers.
struct Tile {
  int64_t tensor = 0;
  int64_t batch = 0;
  Range rows;
  Range cols;
  int64_t partial = 0;  ///< Offset of its block in the workspace, in doubles.
};

/// One phase and the reduction after it.
struct Phase {
  PhaseKind kind = PhaseKind::apply;
  came_reduce_op op = CAME_REDUCE_SUM;
  int64_t offset = 0;        ///< In doubles.
  int64_t shared_count = 0;  ///< Doubles of sharded tensors, at the front.
  int64_t count = 0;         ///< Doubles of all tensors.
};

/// The largest tile a backend takes.  Owned rows or columns are never cut.
struct Tiling {
  int64_t elements = 0;
  int64_t cols = 0;
};

struct Plan {
  const Backend* backend = nullptr;
  Algorithm algorithm = Algorithm::came;
  std::vector<came_options> groups;
  std::vector<Tensor> tensors;
  std::vector<Tile> tiles;
  std::vector<Phase> phases;
  int64_t state_count = 0;
  int64_t derived_offset = 0;  ///< In the workspace, in doubles: kDerived per local matrix.
  came_memory memory{};
  bool sharded = false;

  [[nodiscard]] const came_options& options(const Tensor& tensor) const {
    return groups[static_cast<size_t>(tensor.group)];
  }
  /// Index of a phase; -1 if the plan has none of that kind.
  [[nodiscard]] int find(PhaseKind kind) const;
};

/// Doubles of workspace per local matrix in which a backend keeps what follows from a reduction.
inline constexpr int64_t kDerived = 3;

/// Makes a plan; `tiling` overrides the backend's (for tests).
Plan make_plan(const std::vector<came_options>& groups, const std::vector<TensorSpec>& specs, const Backend& backend,
               const Tiling* tiling = nullptr);

/// Combines the tiles' blocks of a phase in host memory into the reduction buffer: in tile order, in f64.
void combine_partials(const Plan& plan, int phase, const double* workspace, double* reductions);

}  // namespace came::core
