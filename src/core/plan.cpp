// From specs to a plan, in order: tensors (view, owner, state), phases and slots, tiles.  Every total is checked: a
// plan that is made can be counted in int64.
#include "core/plan.hpp"

#include <algorithm>
#include <limits>

#include "core/backend.hpp"
#include "core/checked.hpp"
#include "core/dtype.hpp"
#include "core/fit.hpp"
#include "core/message.hpp"
#include "core/optimizers/descriptor.hpp"
#include "core/options.hpp"

namespace came::core {
namespace {

// An unsharded matrix of few, very wide rows is owned by columns: whole rows would leave most workers idle.  Chosen,
// not measured.
constexpr int64_t kFewRows = 256;
constexpr int64_t kWideRow = int64_t{1} << 14;

constexpr int32_t kMostReduceGroups = 64;

void check_groups(const std::vector<came_options>& groups) {
  if (groups.empty()) invalid("groups: none given, expected at least one");
  for (size_t k = 0; k < groups.size(); ++k) {
    const std::string what = "group " + std::to_string(k);
    validate_options(groups[k], what);
    if (groups[k].algorithm != groups[0].algorithm) {
      invalid(what, ": algorithm is ", descriptor(static_cast<Algorithm>(groups[k].algorithm)).word, ", expected ",
              descriptor(static_cast<Algorithm>(groups[0].algorithm)).word, " as in group 0: one plan, one optimizer");
    }
  }
}

DType checked_float(DType dtype, const std::string& label, const char* which) {
  if (!is_float(dtype)) {
    invalid(label, ": ", which, " is ", dtype_name(dtype), " (", static_cast<came_dtype>(dtype),
            "), expected f64, f32, bf16 or f16");
  }
  return dtype;
}

void check_group(int32_t group, const char* which, const std::string& label) {
  if (group < 0 || group >= kMostReduceGroups) {
    invalid(label, ": ", which, " is ", group, ", expected 0 to ", kMostReduceGroups - 1);
  }
}

void check_shard(const TensorSpec& spec, const std::string& label) {
  const Shard& shard = *spec.shard;
  const size_t n = spec.shape.size();
  check_group(shard.reduce_group, "reduce_group", label);
  if (shard.offset.size() != n || shard.extent.size() != n) {
    invalid(label, ": shard has ", shard.offset.size(), " offsets and ", shard.extent.size(), " extents, expected ", n,
            " of each");
  }
  if (n < 64 && (shard.split_dims >> n) != 0) {
    invalid(label, ": split_dims is ", shard.split_dims, ", expected bits below ", n, " only");
  }
  for (size_t d = 0; d < n; ++d) {
    const int64_t begin = shard.offset[d];
    const int64_t count = shard.extent[d];
    if (begin < 0 || count < 0 || count > spec.shape[d] || begin > spec.shape[d] - count) {
      invalid(label, ": shard of dimension ", d, " is [", begin, ", ", begin, " + ", count,
              "), expected a part of [0, ", spec.shape[d], ")");
    }
    if ((shard.split_dims >> d & 1U) == 0 && count != spec.shape[d]) {
      invalid(label, ": shard holds ", count, " of ", spec.shape[d], " in dimension ", d,
              ", expected all of them or bit ", d, " of split_dims set");
    }
  }
}

/// Places the tensor's shard in its view.  Elementwise optimizers take any view in which it is a range.
void place(Tensor& t, const TensorSpec& spec, View wanted, bool factored) {
  if (!t.sharded) {
    t.view = choose_view(t.shape, wanted, factored);
    t.local = {{0, t.view.batch}, {0, t.view.rows}, {0, t.view.cols}};
    t.local_shape = t.shape;
    t.offset.assign(t.shape.size(), 0);
    return;
  }
  check_shard(spec, t.label);
  t.local_shape = spec.shard->extent;
  t.offset = spec.shard->offset;
  t.reduce_group = spec.shard->reduce_group;
  t.view = choose_view(t.shape, wanted, factored);
  auto local = locate(t.shape, t.view, spec.shard->split_dims, spec.shard->offset, spec.shard->extent);
  if (!local && !factored) {
    t.view = choose_view(t.shape, View::last_two, true);
    local = locate(t.shape, t.view, spec.shard->split_dims, spec.shard->offset, spec.shard->extent);
  }
  if (!local) {
    invalid(t.label, ": shard offset ", shape_text(spec.shard->offset.data(), static_cast<int64_t>(t.shape.size())),
            " extent ", shape_text(spec.shard->extent.data(), static_cast<int64_t>(t.shape.size())), " of shape ",
            shape_text(t.shape.data(), static_cast<int64_t>(t.shape.size())),
            " is no range of rows and columns of its view (", t.view.last_two ? "last_two" : "fold",
            "), expected a split of dimension 0 or another view");
  }
  t.local = *local;
}

Owner choose_owner(const Tensor& t) {
  if (!t.factored) return Owner::none;
  const Local& l = t.local;
  if (!l.splits_rows && !l.splits_cols && t.view.rows * t.view.cols <= kSmallMatrix) return Owner::matrix;
  // Matrices on other ranks are out of sight when the RMS of the whole tensor is taken: one reduction more.
  if (l.splits_batch || (l.splits_rows && l.splits_cols)) return Owner::none;
  if (l.splits_cols) return Owner::columns;
  if (l.splits_rows) return Owner::rows;
  return t.view.rows < kFewRows && t.view.cols >= kWideRow ? Owner::columns : Owner::rows;
}

/// Which ranks need the vectors and scalars of a tensor's matrices.
int32_t matrix_group_of(const Tensor& t, const Shard& shard) {
  if (!t.set_per_matrix() || !t.local.splits_batch) return t.reduce_group;
  if (!t.local.splits_rows && !t.local.splits_cols) return kAlone;
  check_group(shard.matrix_group, "matrix_group", t.label);
  if (shard.matrix_group == shard.reduce_group) {
    invalid(t.label, ": matrix_group is ", shard.matrix_group,
            " as reduce_group, expected another number: matrices are ",
            "split over ranks and lie on different ones, so fewer ranks hold parts of the same");
  }
  return shard.matrix_group;
}

Tensor make_tensor(const TensorSpec& spec, size_t index, const std::vector<came_options>& groups,
                   const Descriptor& optimizer) {
  Tensor t;
  t.label = "tensor " + std::to_string(index) + " '" + spec.name + "'";
  t.name = spec.name;
  check_readable(spec.shape.data(), static_cast<int64_t>(spec.shape.size()), t.label);
  checked_elements(spec.shape, t.label);
  t.shape = spec.shape;
  t.dtype = checked_float(spec.dtype, t.label, "dtype");
  t.grad_dtype = spec.grad_dtype == DType::automatic ? t.dtype : checked_float(spec.grad_dtype, t.label, "grad_dtype");
  if (spec.group < 0 || static_cast<size_t>(spec.group) >= groups.size()) {
    invalid(t.label, ": group is ", spec.group, ", expected 0 to ", groups.size() - 1);
  }
  t.group = spec.group;
  t.id = spec.id;
  t.sharded = spec.shard.has_value();
  const came_options& options = groups[static_cast<size_t>(t.group)];
  t.factored = optimizer.factored && t.shape.size() >= 2;
  place(t, spec, static_cast<View>(options.view), t.factored);
  t.owner = choose_owner(t);
  if (t.sharded) t.matrix_group = matrix_group_of(t, *spec.shard);
  t.local_elements = t.local.batch.count * t.local.rows.count * t.local.cols.count;
  check_epsilons(options, t);
  t.states = optimizer.states(options, t);
  for (State& state : t.states) {
    state.bytes = element_size(state.dtype);
    for (const int64_t size : state.shape) state.bytes *= size;
  }
  return t;
}

/// Two doubles for each tensor that is sharded over a group.
void add_presence(Plan& plan, int32_t group, int64_t& offset) {
  int64_t tensors = 0;
  for (Tensor& t : plan.tensors) {
    if (t.sharded && t.reduce_group == group) t.presence = offset + tensors++;
  }
  offset += 2 * tensors;
}

/// What a group's run, or what lies behind all of them, has of a tensor's slot in the latest phase.
void add_slot(Tensor& t, int32_t group, int64_t& offset) {
  Slot& slot = t.slots.back();
  const ReductionShape& shape = slot.shape;
  if ((t.sharded ? t.matrix_group : kAlone) == group) {
    slot.offset = offset;
    int64_t matrix = checked_product(shape.rows, t.view.rows, t.label);
    checked_add(matrix, checked_product(shape.cols, t.view.cols, t.label), t.label);
    checked_add(matrix, shape.scalars, t.label);
    checked_add(offset, checked_product(t.local_sets(), matrix, t.label), t.label);
  }
  if ((t.sharded ? t.reduce_group : kAlone) == group) {
    slot.totals = offset;
    checked_add(offset, checked_product(t.total_blocks(), shape.totals, t.label), t.label);
  }
}

void add_phases(Plan& plan, const Descriptor& optimizer, bool reduces_in_place) {
  const bool split = std::any_of(plan.tensors.begin(), plan.tensors.end(),
                                 [](const Tensor& t) { return t.factored && t.owner == Owner::none; });
  std::vector<PhaseKind> kinds = optimizer.phases(plan.groups, split);
  const bool clips =
      std::any_of(plan.groups.begin(), plan.groups.end(), [](const came_options& o) { return o.max_grad_norm > 0; });
  if (clips) kinds.insert(kinds.begin(), PhaseKind::norm);

  int32_t reduce_groups = 0;
  for (const Tensor& t : plan.tensors) {
    if (t.sharded) reduce_groups = std::max({reduce_groups, t.reduce_group + 1, t.matrix_group + 1});
  }
  int64_t offset = 0;
  for (const PhaseKind kind : kinds) {
    Phase phase;
    phase.kind = kind;
    phase.op = kind == PhaseKind::cover ? CAME_REDUCE_MAX : CAME_REDUCE_SUM;
    phase.offset = offset;
    for (Tensor& t : plan.tensors) {
      t.slots.push_back(
          {kind == PhaseKind::norm ? ReductionShape{.totals = 1} : optimizer.reduction(plan.options(t), t, kind)});
    }
    for (int32_t group = 0; group <= reduce_groups; ++group) {  // the last: what does not cross
      const bool crosses = group < reduce_groups;
      const int64_t begin = offset;
      if (crosses && kind == kinds.front()) add_presence(plan, group, offset);
      const int64_t slots = offset;
      for (Tensor& t : plan.tensors) {
        if (reduces_in_place && !t.sharded && kind != PhaseKind::norm) continue;
        add_slot(t, crosses ? group : kAlone, offset);
      }
      if (crosses) phase.shared.push_back({begin, offset - begin, slots - begin});
      if (offset > slots) phase.slots.push_back({slots, offset - slots});
    }
    phase.count = offset - phase.offset;
    plan.phases.push_back(phase);
  }
  plan.memory.reduction_bytes = checked_product(offset, sizeof(double), "reductions");
}

}  // namespace

int Plan::find(PhaseKind kind) const {
  for (size_t k = 0; k < phases.size(); ++k) {
    if (phases[k].kind == kind) return static_cast<int>(k);
  }
  return -1;
}

Plan make_plan(const std::vector<came_options>& groups, const std::vector<TensorSpec>& specs, const Backend& backend,
               int32_t device_index, const Tiling* tiling) {
  check_groups(groups);
  if (device_index < 0 || (backend.device == CAME_DEVICE_CPU && device_index != 0)) {
    invalid("device_index: ", device_index, " given, expected ", backend.device == CAME_DEVICE_CPU ? "0" : "0 or more");
  }
  Plan plan;
  plan.backend = &backend;
  plan.device_index = device_index;
  plan.groups = groups;
  plan.algorithm = static_cast<Algorithm>(groups[0].algorithm);
  plan.memory.struct_size = sizeof(came_memory);
  const Descriptor& optimizer = descriptor(plan.algorithm);

  int64_t matrix_scalars = 0;
  for (size_t k = 0; k < specs.size(); ++k) {
    Tensor t = make_tensor(specs[k], k, groups, optimizer);
    t.first_state = plan.state_count;
    t.first_matrix_scalars = matrix_scalars;
    plan.state_count += static_cast<int64_t>(t.states.size());
    matrix_scalars += t.local_sets();
    plan.sharded = plan.sharded || t.sharded;
    checked_add(plan.memory.parameter_bytes, t.local_elements * element_size(t.dtype), t.label);
    checked_add(plan.memory.gradient_bytes, t.local_elements * element_size(t.grad_dtype), t.label);
    for (const State& state : t.states) checked_add(plan.memory.state_bytes, state.bytes, t.label);
    plan.tensors.push_back(std::move(t));
  }
  plan.has_distinct_ids = check_ids(plan);
  const Tiling& cut = tiling != nullptr ? *tiling : backend.tiling;
  add_phases(plan, optimizer, cut.reduces_in_place);

  int64_t workspace = 0;
  for (size_t k = 0; k < plan.tensors.size(); ++k) {
    add_tiles(plan, static_cast<int64_t>(k), cut, workspace);
    if (cut.reduces_in_place) add_column_multipliers(plan.tensors[k], optimizer, workspace);
  }
  plan.matrix_scalars_offset = workspace;
  checked_add(workspace, checked_product(matrix_scalars, kMatrixScalars, "workspace"), "workspace");
  plan.extra_offset = workspace;
  if (backend.extra_workspace != nullptr) checked_add(workspace, backend.extra_workspace(plan), "workspace");
  if (backend.table_bytes != nullptr) plan.memory.table_bytes = backend.table_bytes(plan);
  plan.memory.workspace_bytes = checked_product(workspace, sizeof(double), "workspace");
  for (const int64_t bytes :
       {plan.memory.state_bytes, plan.memory.workspace_bytes, plan.memory.reduction_bytes, plan.memory.table_bytes}) {
    checked_add(plan.memory.peak_bytes, bytes, "peak");
  }
  return plan;
}

}  // namespace came::core
