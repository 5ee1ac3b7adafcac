// Plans in the C interface.
#include "core/plan.hpp"

#include <memory>

#include "c_api/handle.hpp"
#include "core/backend.hpp"
#include "core/checked.hpp"
#include "core/fit.hpp"
#include "core/step.hpp"

using namespace came::c_api;
namespace core = came::core;

namespace {

came::TensorSpec copy_spec(const came_tensor_spec& given, const std::string& label) {
  came::TensorSpec spec;
  spec.name = given.name != nullptr ? given.name : "";
  const std::string what = label + " '" + spec.name + "'";
  core::check_readable(given.shape, given.ndim, what);
  if (given.reserved != 0) core::invalid(what, ": reserved is ", given.reserved, ", expected 0");
  spec.shape.assign(given.shape, given.shape + given.ndim);
  spec.dtype = static_cast<came::DType>(given.dtype);
  spec.grad_dtype = static_cast<came::DType>(given.grad_dtype);
  spec.group = given.group;
  spec.id = given.id;
  const bool boxed = given.shard_offset != nullptr && given.shard_extent != nullptr;
  if (given.split_dims != 0 && !boxed) {
    core::invalid(what, ": shard_offset or shard_extent is null, expected both with split_dims");
  }
  if (given.split_dims == 0 && (given.shard_offset != nullptr || given.shard_extent != nullptr)) {
    core::invalid(what, ": split_dims is 0 beside a shard, expected the dimensions that are split over ranks");
  }
  if (given.split_dims != 0) {
    spec.shard = came::Shard{given.split_dims,
                             {given.shard_offset, given.shard_offset + given.ndim},
                             {given.shard_extent, given.shard_extent + given.ndim},
                             given.reduce_group,
                             given.matrix_group};
  }
  return spec;
}

core::Plan build(const came_options* groups, int32_t group_count, const came_tensor_spec* tensors, int64_t tensor_count,
                 came_backend backend, int32_t device_index) {
  return core::make_plan(copy_groups(groups, group_count), copy_specs(tensors, tensor_count),
                         core::find_backend(backend), device_index);
}

const core::Plan& plan_of(const came_plan* plan) { return required(plan, "plan").plan; }

}  // namespace

std::vector<came::TensorSpec> came::c_api::copy_specs(const came_tensor_spec* specs, int64_t count) {
  if (count < 0) core::invalid("tensor_count: ", count, " given, expected at least 0");
  std::vector<TensorSpec> copy;
  for (int64_t k = 0; k < count; ++k) {
    copy.push_back(copy_spec(checked_element(specs, k, "tensors"), "tensor " + std::to_string(k)));
  }
  return copy;
}

extern "C" {

came_status came_plan_create(const came_options* groups, int32_t group_count, const came_tensor_spec* tensors,
                             int64_t tensor_count, came_backend backend, int32_t device_index, came_plan** plan) {
  return guarded([&] {
    required(plan, "plan");
    auto made = std::make_unique<came_plan>();
    made->plan = build(groups, group_count, tensors, tensor_count, backend, device_index);
    core::prepare(made->plan);
    *plan = made.release();
  });
}

void came_plan_destroy(came_plan* plan) { delete plan; }

came_status came_plan_state_count(const came_plan* plan, int64_t* count) {
  return guarded([&] { required(count, "count") = plan_of(plan).state_count; });
}

came_status came_plan_state(const came_plan* plan, int64_t index, came_state_info* info) {
  return guarded([&] {
    const core::Plan& p = plan_of(plan);
    came_state_info& out = checked_struct(info, "info");
    if (index < 0 || index >= p.state_count) {
      core::invalid("index: ", index, " given, expected 0 to ", p.state_count - 1);
    }
    size_t tensor = p.tensors.size() - 1;
    while (p.tensors[tensor].first_state > index) --tensor;
    const core::State& state = p.tensors[tensor].states[static_cast<size_t>(index - p.tensors[tensor].first_state)];
    out.dtype = static_cast<came_dtype>(state.dtype);
    out.name = state.name;
    out.shape = state.shape.data();
    out.ndim = static_cast<int32_t>(state.shape.size());
    out.tensor = static_cast<int64_t>(tensor);
    out.bytes = state.bytes;
    out.whole_shape = state.whole.data();
    out.offset = state.offset.data();
    out.dims = state.dims.data();
  });
}

came_status came_plan_view(const came_plan* plan, int64_t tensor, came_matrix_view* view) {
  return guarded([&] {
    const core::Plan& p = plan_of(plan);
    came_matrix_view& out = checked_struct(view, "view");
    const auto count = static_cast<int64_t>(p.tensors.size());
    if (tensor < 0 || tensor >= count) core::invalid("tensor: ", tensor, " given, expected 0 to ", count - 1);
    const core::Tensor& t = p.tensors[static_cast<size_t>(tensor)];
    out = {sizeof(came_matrix_view), t.factored ? 1 : 0, t.view.batch, t.view.rows, t.view.cols};
  });
}

came_status came_plan_phase_count(const came_plan* plan, int32_t* count) {
  return guarded([&] { required(count, "count") = static_cast<int32_t>(plan_of(plan).phases.size()); });
}

came_status came_plan_reduction(const came_plan* plan, int32_t phase, int32_t reduce_group, came_reduction* reduction) {
  return guarded([&] {
    const core::Plan& p = plan_of(plan);
    came_reduction& out = checked_struct(reduction, "reduction");
    const auto count = static_cast<int32_t>(p.phases.size());
    if (phase < 0 || phase >= count) core::invalid("phase: ", phase, " given, expected 0 to ", count - 1);
    if (reduce_group < 0) core::invalid("reduce_group: ", reduce_group, " given, expected at least 0");
    const core::Phase& found = p.phases[static_cast<size_t>(phase)];
    core::SharedRun run{found.offset, 0, 0};  // a group that shares nothing
    if (static_cast<size_t>(reduce_group) < found.shared.size()) run = found.shared[static_cast<size_t>(reduce_group)];
    out = {sizeof(came_reduction), found.op, core::phase_name(found.kind), run.begin, run.count, run.presence};
  });
}

came_status came_plan_memory(const came_plan* plan, came_memory* memory) {
  return guarded([&] { checked_struct(memory, "memory") = plan_of(plan).memory; });
}

came_status came_plan_check_options(const came_plan* plan, const came_options* groups, int32_t group_count) {
  return guarded([&] {
    const core::Plan& p = plan_of(plan);
    const std::vector<came_options> given = copy_groups(groups, group_count);
    if (given.size() != p.groups.size()) {
      core::invalid("group_count: ", group_count, " given, expected ", p.groups.size(), " as in the plan");
    }
    core::check_step_options(p, given.data());
  });
}

came_status came_plan_run_phase(const came_plan* plan, int32_t phase, const came_step* step) {
  return guarded([&] {
    const core::Plan& p = plan_of(plan);
    core::run_phase(p, phase, checked_struct(step, "step"));
  });
}

came_status came_plan_step(const came_plan* plan, const came_step* step) {
  return guarded([&] {
    const core::Plan& p = plan_of(plan);
    core::run_step(p, checked_struct(step, "step"));
  });
}

came_status came_estimate(const came_options* groups, int32_t group_count, const came_tensor_spec* tensors,
                          int64_t tensor_count, came_backend backend, came_memory* memory) {
  return guarded([&] {
    came_memory& out = checked_struct(memory, "memory");
    out = build(groups, group_count, tensors, tensor_count, backend, 0).memory;
  });
}

}  // extern "C"
