// Plans: what state an optimizer needs for a list of tensors, what it costs, and the phases of its step.
//
// The caller owns all memory.  One device:      plan.step(step).
// A matrix sharded over ranks:                  for each phase: plan.run_phase(k, step); all-reduce plan.reduction(k).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "came/options.hpp"

namespace came {

/// What runs the phases; the same values as came_backend.
enum class Backend : came_backend {
  automatic = CAME_BACKEND_AUTO,       ///< The best one for host memory in this build.
  reference = CAME_BACKEND_REFERENCE,  ///< f64 arithmetic, one thread, straight from the equations.
  cuda = CAME_BACKEND_CUDA,            ///< CUDA devices.
  cpu = CAME_BACKEND_CPU,              ///< SIMD and OpenMP.
};

/// The part of a tensor that this rank holds.
struct Shard {
  uint64_t split_dims = 0;      ///< Bit d: dimension d is split over ranks; the same on every rank.
  std::vector<int64_t> offset;  ///< First index held, per dimension.
  std::vector<int64_t> extent;  ///< How many are held, per dimension; may be 0.
  int reduce_group = 0;         ///< Which set of ranks holds the parts, numbered from 0 by the caller.
  int matrix_group = 0;         ///< Split in the batch and in rows or columns: which holds parts of the same matrices.
};

/// What a plan knows of one parameter.
struct TensorSpec {
  std::string name;                     ///< For messages and exported state.
  std::vector<int64_t> shape;           ///< Sizes of the whole tensor, over all ranks.
  DType dtype = DType::f32;             ///< Element type of the parameter.
  DType grad_dtype = DType::automatic;  ///< Element type of the gradient; automatic: the parameter's.
  int group = 0;                        ///< Index of its options.
  uint64_t id = 0;                      ///< Key of stochastic rounding; give each parameter its own.
  std::optional<Shard> shard = {};      ///< Set if the tensor is sharded over ranks.

  /// The same for the C interface; points into *this.
  [[nodiscard]] came_tensor_spec c() const {
    came_tensor_spec spec = CAME_TENSOR_SPEC_INIT;
    spec.group = group;
    spec.name = name.c_str();
    spec.shape = shape.data();
    spec.ndim = static_cast<int32_t>(shape.size());
    spec.dtype = static_cast<came_dtype>(dtype);
    spec.grad_dtype = static_cast<came_dtype>(grad_dtype);
    spec.id = id;
    if (shard) {
      if (shard->offset.size() != shape.size() || shard->extent.size() != shape.size()) {
        throw Error(Status::invalid_argument, "tensor '" + name + "': shard has " +
                                                  std::to_string(shard->offset.size()) + " offsets and " +
                                                  std::to_string(shard->extent.size()) + " extents, expected " +
                                                  std::to_string(shape.size()) + " of each");
      }
      spec.split_dims = shard->split_dims;
      spec.reduce_group = shard->reduce_group;
      spec.shard_offset = shard->offset.data();
      spec.shard_extent = shard->extent.data();
      spec.matrix_group = shard->matrix_group;
    }
    return spec;
  }
};

/// One state tensor that the caller allocates, filled with zero bytes.
struct StateSpec {
  std::string name;                  ///< Such as "exp_avg_sq_row".
  std::vector<int64_t> shape;        ///< Sizes of what this rank holds.
  DType dtype = DType::f32;          ///< Element type.
  int64_t tensor = 0;                ///< Index of the parameter it belongs to.
  int64_t bytes = 0;                 ///< Size.
  std::vector<int64_t> whole_shape;  ///< Sizes over all ranks.
  std::vector<int64_t> offset;       ///< Where this rank's part begins in it.
  std::vector<int> dims;             ///< Per dimension of the parameter: that of this state which holds it, or -1.
};

/// What one step reads and writes; fields as in came_step.  Point params, grads and states to arrays of TensorView.
struct Step : came_step {
  /// A step over nothing.
  Step() : came_step(CAME_STEP_INIT) {}
  /// Sets parameters and gradients, in the plan's order.
  void set_tensors(std::span<const TensorView> parameters, std::span<const TensorView> gradients) {
    if (parameters.size() != gradients.size()) {
      throw Error(Status::invalid_argument, "grads: " + std::to_string(gradients.size()) + " tensors, expected " +
                                                std::to_string(parameters.size()) + " as in params");
    }
    tensor_count = static_cast<int64_t>(parameters.size());
    params = parameters.data();
    grads = gradients.data();
  }
  /// Sets the state tensors, in the order of Plan::state.
  void set_states(std::span<const TensorView> tensors) {
    state_count = static_cast<int64_t>(tensors.size());
    states = tensors.data();
  }
  /// Sets the scratch and reduction buffers.
  void set_buffers(std::span<double> scratch, std::span<double> sums) {
    workspace = scratch.data();
    workspace_bytes = static_cast<int64_t>(scratch.size_bytes());
    reductions = sums.data();
    reduction_bytes = static_cast<int64_t>(sums.size_bytes());
  }
  /// Sets the options of this step, one per group, which must live until it is done: Plan::check_options.
  void set_options(std::span<const Options> groups) { options = groups.data(); }
};

/// The same structs for the C interface; they point into `tensors`.
inline std::vector<came_tensor_spec> c_specs(const std::vector<TensorSpec>& tensors) {
  std::vector<came_tensor_spec> specs;
  specs.reserve(tensors.size());
  for (const TensorSpec& tensor : tensors) specs.push_back(tensor.c());
  return specs;
}

/// A plan: what a step over a list of tensors does, built once from shapes, dtypes and options.  Immutable.
class Plan {
 public:
  /// Builds a plan for these parameters in these groups.
  Plan(const std::vector<Options>& groups, const std::vector<TensorSpec>& tensors, Backend backend = Backend::automatic,
       int device_index = 0) {
    const std::vector<came_tensor_spec> specs = c_specs(tensors);
    came_plan* plan = nullptr;
    check(came_plan_create(groups.data(), static_cast<int32_t>(groups.size()), specs.data(),
                           static_cast<int64_t>(specs.size()), static_cast<came_backend>(backend), device_index,
                           &plan));
    plan_.reset(plan);
    for (const TensorSpec& tensor : tensors) ndims_.push_back(tensor.shape.size());
  }

  /// The state tensors of all parameters, in the order of Step::states.
  [[nodiscard]] std::vector<StateSpec> state() const {
    int64_t count = 0;
    check(came_plan_state_count(plan_.get(), &count));
    std::vector<StateSpec> specs;
    for (int64_t k = 0; k < count; ++k) {
      came_state_info info = CAME_STATE_INFO_INIT;
      check(came_plan_state(plan_.get(), k, &info));
      specs.push_back({info.name,
                       {info.shape, info.shape + info.ndim},
                       static_cast<DType>(info.dtype),
                       info.tensor,
                       info.bytes,
                       {info.whole_shape, info.whole_shape + info.ndim},
                       {info.offset, info.offset + info.ndim},
                       {info.dims, info.dims + ndims_[static_cast<size_t>(info.tensor)]}});
    }
    return specs;
  }
  /// How a parameter is seen: a batch of matrices.
  [[nodiscard]] came_matrix_view view(int64_t tensor) const {
    came_matrix_view view = CAME_MATRIX_VIEW_INIT;
    check(came_plan_view(plan_.get(), tensor, &view));
    return view;
  }
  /// Number of phases.
  [[nodiscard]] int phases() const {
    int32_t count = 0;
    check(came_plan_phase_count(plan_.get(), &count));
    return count;
  }
  /// What the ranks of a reduce group all-reduce after a phase.
  [[nodiscard]] came_reduction reduction(int phase, int reduce_group = 0) const {
    came_reduction reduction = CAME_REDUCTION_INIT;
    check(came_plan_reduction(plan_.get(), phase, reduce_group, &reduction));
    return reduction;
  }
  /// Bytes of everything the plan needs.
  [[nodiscard]] came_memory memory() const {
    came_memory memory = CAME_MEMORY_INIT;
    check(came_plan_memory(plan_.get(), &memory));
    return memory;
  }
  /// Throws unless a step may bring these options, one per group, in place of the plan's.
  void check_options(const std::vector<Options>& groups) const {
    check(came_plan_check_options(plan_.get(), groups.data(), static_cast<int32_t>(groups.size())));
  }
  /// Runs one phase.
  void run_phase(int phase, const Step& step) const { check(came_plan_run_phase(plan_.get(), phase, &step)); }
  /// Runs all phases; refused for a sharded plan.
  void step(const Step& step) const { check(came_plan_step(plan_.get(), &step)); }

 private:
  struct Destroy {
    void operator()(came_plan* plan) const { came_plan_destroy(plan); }
  };
  std::unique_ptr<came_plan, Destroy> plan_;
  std::vector<size_t> ndims_;  ///< Of the parameters.
};

/// The state tensors of one parameter.
inline std::vector<StateSpec> layout(const Options& options, const TensorSpec& tensor) {
  return Plan({options}, {tensor}).state();
}

/// What a list of shapes and options would cost, before anything is allocated.  Looks at no device.
inline came_memory estimate(const std::vector<Options>& groups, const std::vector<TensorSpec>& tensors,
                            Backend backend = Backend::automatic) {
  const std::vector<came_tensor_spec> specs = c_specs(tensors);
  came_memory memory = CAME_MEMORY_INIT;
  check(came_estimate(groups.data(), static_cast<int32_t>(groups.size()), specs.data(),
                      static_cast<int64_t>(specs.size()), static_cast<came_backend>(backend), &memory));
  return memory;
}

}  // namespace came
