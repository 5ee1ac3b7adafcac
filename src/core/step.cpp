// Everything that can be wrong with a step is found here, before a backend sees it.  O(tensors) and no allocation.
#include "core/step.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/backend.hpp"
#include "core/checked.hpp"
#include "core/dtype.hpp"
#include "core/fit.hpp"
#include "core/float_mode.hpp"
#include "core/message.hpp"
#include "core/presence.hpp"
#include "core/scalars.hpp"

namespace came::core {
namespace {

/// Of a few dimensions: written out, since a call of memcmp costs more than its work.
bool same_sizes(const int64_t* a, const int64_t* b, int64_t ndim) {
  for (int64_t d = 0; d < ndim; ++d) {
    if (a[d] != b[d]) return false;
  }
  return true;
}

void check_address(const void* data, int64_t alignment, const std::string& label, const char* role) {
  if (data == nullptr) invalid(label, ": ", role, ".data is null, expected the address of its elements");
  if (alignment > 1 && reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0) {
    invalid(label, ": ", role, ".data is ", data, ", expected a multiple of ", alignment, " bytes");
  }
}

/// A scalar argument: so many elements of one of these types, on the host or the plan's device.
void check_scalar(const Plan& plan, const came_tensor* given, const char* role, std::initializer_list<int64_t> counts,
                  std::initializer_list<DType> types) {
  if (given == nullptr) return;
  const std::string label = "step";
  check_struct(given->struct_size, sizeof(came_tensor), label, role);
  if (std::find(types.begin(), types.end(), static_cast<DType>(given->dtype)) == types.end()) {
    std::string expected;
    for (const DType type : types) expected += (expected.empty() ? "" : " or ") + std::string(dtype_name(type));
    invalid(label, ": ", role, " is ", dtype_name(static_cast<DType>(given->dtype)), ", expected ", expected);
  }
  check_readable(given->shape, given->ndim, label, role);
  const int64_t elements = given->ndim == 0 ? 1 : given->ndim == 1 ? given->shape[0] : -1;
  if (std::find(counts.begin(), counts.end(), elements) == counts.end()) {
    std::string expected;
    for (const int64_t count : counts) expected += (expected.empty() ? "" : " or ") + std::to_string(count);
    invalid(label, ": ", role, " has shape ", shape_text(given->shape, given->ndim), ", expected [", expected, "]");
  }
  if (given->device != CAME_DEVICE_CPU && given->device != plan.backend->device) {
    invalid(label, ": ", role, " is on ", device_name(given->device), ", expected cpu or ",
            device_name(plan.backend->device));
  }
  if (given->device != CAME_DEVICE_CPU && given->device_index != plan.device_index) {
    invalid(label, ": ", role, " is on ", device_name(given->device), ":", given->device_index, ", expected device ",
            plan.device_index);
  }
  if (elements > 0) check_address(given->data, element_size(static_cast<DType>(given->dtype)), label, role);
}

/// Values of scalars in host memory; those on a device are data.
void check_scalar_values(const Plan& plan, const came_step& step) {
  const auto on_host = [](const came_tensor* s) { return s != nullptr && s->device == CAME_DEVICE_CPU; };
  for (int64_t k = 0; on_host(step.lr) && k < static_cast<int64_t>(plan.groups.size()); ++k) {
    const double lr = scalar_or(step.lr, k, 0);
    if (!std::isfinite(lr) || lr < 0) invalid("step: lr of group ", k, " is ", lr, ", expected a finite number >= 0");
  }
  if (on_host(step.step)) {
    const bool narrow = static_cast<DType>(step.step->dtype) == DType::f32;
    const double limit = narrow ? 0x1p24 : static_cast<double>(kMostSteps);
    const int64_t counters = step.step->ndim == 0 ? 1 : step.step->shape[0];
    for (int64_t k = 0; k < counters; ++k) {
      const double count = scalar_or(step.step, k, 0);
      if (!(count >= 0 && count < limit) || count != std::floor(count)) {
        invalid("step: step[", k, "] is ", count, ", expected a whole number from 0 to ",
                static_cast<int64_t>(limit) - 1,
                narrow && count == limit ? ": f32 cannot count further, i64 and f64 can" : "");
      }
    }
  }
  const bool skipped = on_host(step.found_inf) && found_inf(step);
  if (on_host(step.grad_scale) && !skipped) {
    const double scale = scalar_or(step.grad_scale, 0, 1);
    if (!std::isfinite(scale) || scale <= 0) {
      invalid("step: grad_scale is ", scale, ", expected a finite number > 0");
    }
  }
}

void check_buffer(const void* given, int64_t given_bytes, int64_t bytes, const char* role) {
  if (bytes == 0) return;
  if (given == nullptr) {
    invalid("step: ", role, " is null, expected a buffer of ", bytes, " bytes (came_plan_memory)");
  }
  if (given_bytes < bytes) invalid("step: ", role, " has ", given_bytes, " bytes, expected at least ", bytes);
  if (reinterpret_cast<uintptr_t>(given) % alignof(double) != 0) {
    invalid("step: ", role, " is ", given, ", expected a multiple of ", alignof(double), " bytes");
  }
}

void check_buffers(const Plan& plan, const came_step& step) {
  check_buffer(step.workspace, step.workspace_bytes, plan.memory.workspace_bytes, "workspace");
  check_buffer(step.reductions, step.reduction_bytes, plan.memory.reduction_bytes, "reductions");
}

/// Scalars and options.
void check_scalars(const Plan& plan, const came_step& step) {
  const auto groups = static_cast<int64_t>(plan.groups.size());
  const auto tensors = static_cast<int64_t>(plan.tensors.size());
  if (step.step == nullptr) invalid("step: step is null, expected 1 or ", tensors, " counters");
  if (step.options != nullptr) check_step_options(plan, step.options);
  if (step.reserved != 0) invalid("step: reserved is ", step.reserved, ", expected 0");
  check_scalar(plan, step.step, "step", {1, tensors}, {DType::i64, DType::f32, DType::f64});
  check_scalar(plan, step.lr, "lr", {groups}, {DType::f32, DType::f64});
  check_scalar(plan, step.grad_scale, "grad_scale", {1}, {DType::f32, DType::f64});
  check_scalar(plan, step.found_inf, "found_inf", {1}, {DType::f32, DType::f64});
  check_scalar_values(plan, step);
}

void check_lists(const Plan& plan, const came_step& step) {
  const auto tensors = static_cast<int64_t>(plan.tensors.size());
  if (step.tensor_count != tensors) {
    invalid("step: tensor_count is ", step.tensor_count, ", expected ", tensors,
            ": the plan was made for another tensor list");
  }
  if (step.state_count != plan.state_count) {
    invalid("step: state_count is ", step.state_count, ", expected ", plan.state_count,
            ": the plan was made for another tensor list");
  }
  if (tensors > 0 && step.params == nullptr) invalid("step: params is null, expected ", tensors, " tensors");
  if (tensors > 0 && step.grads == nullptr) invalid("step: grads is null, expected ", tensors, " tensors");
  if (plan.state_count > 0 && step.states == nullptr) {
    invalid("step: states is null, expected ", plan.state_count, " tensors");
  }
}

void check_tensors(const Plan& plan, const came_step& step) {
  const auto check = [&](const came_tensor& given, const Tensor& t, const char* role, const std::vector<int64_t>& shape,
                         DType dtype) {
    check_tensor(given, t.label, role, shape.data(), static_cast<int64_t>(shape.size()), dtype, plan.backend->device,
                 plan.device_index);
  };
  for (size_t k = 0; k < plan.tensors.size(); ++k) {
    const Tensor& t = plan.tensors[k];
    if (!is_active(step, static_cast<int64_t>(k))) continue;
    check(step.params[k], t, "param", t.local_shape, t.dtype);
    check(step.grads[k], t, "grad", t.local_shape, t.grad_dtype);
    for (size_t s = 0; s < t.states.size(); ++s) {
      const State& state = t.states[s];
      check(step.states[static_cast<size_t>(t.first_state) + s], t, state.name, state.shape, state.dtype);
    }
  }
}

}  // namespace

void check_struct(uint32_t given, size_t expected, const std::string& label, const char* role) {
  if (given != expected) {
    fail(Status::abi_mismatch, label, ": ", role, ".struct_size is ", given, ", expected ", expected,
         given > expected ? ": the caller was built for a newer ABI of libcame" : "");
  }
}

void check_tensor(const came_tensor& given, const std::string& label, const char* role, const int64_t* shape,
                  int64_t ndim, DType dtype, came_device device, int32_t device_index) {
  // A model has thousands of them, all sound: one look, and only then the reasons.
  const auto misaligned = reinterpret_cast<uintptr_t>(given.data) & static_cast<uintptr_t>(element_size(dtype) - 1);
  if (given.struct_size == sizeof(came_tensor) && given.ndim == ndim && given.shape != nullptr &&
      given.dtype == static_cast<came_dtype>(dtype) && given.device == device && given.device_index == device_index &&
      given.reserved == 0 && given.data != nullptr && misaligned == 0 && same_sizes(shape, given.shape, ndim)) {
    return;
  }
  check_struct(given.struct_size, sizeof(came_tensor), label, role);
  check_readable(given.shape, given.ndim, label, role);
  if (given.ndim != ndim || !std::equal(shape, shape + ndim, given.shape)) {
    invalid(label, ": ", role, " has shape ", shape_text(given.shape, given.ndim), ", expected ",
            shape_text(shape, ndim));
  }
  if (given.dtype != static_cast<came_dtype>(dtype)) {
    invalid(label, ": ", role, " is ", dtype_name(static_cast<DType>(given.dtype)), ", expected ", dtype_name(dtype));
  }
  if (given.device != device || given.device_index != device_index) {
    invalid(label, ": ", role, " is on ", device_name(given.device), ":", given.device_index, ", expected ",
            device_name(device), ":", device_index);
  }
  if (given.reserved != 0) invalid(label, ": ", role, ".reserved is ", given.reserved, ", expected 0");
  const bool empty = std::find(shape, shape + ndim, 0) != shape + ndim;
  if (!empty) check_address(given.data, element_size(dtype), label, role);
}

void validate_step(const Plan& plan, const came_step& step, CheckTensors checked) {
  check_lists(plan, step);
  if (checked == CheckTensors::yes) check_tensors(plan, step);
  check_scalars(plan, step);
  check_buffers(plan, step);
}

void run_phase(const Plan& plan, int phase, const came_step& step, CheckTensors checked) {
  if (phase < 0 || static_cast<size_t>(phase) >= plan.phases.size()) {
    invalid("phase: ", phase, " given, expected 0 to ", plan.phases.size() - 1);
  }
  const FloatMode mode;
  if (phase == 0 || checked == CheckTensors::yes) {
    validate_step(plan, step, checked);
  } else {
    check_lists(plan, step);
    check_buffers(plan, step);
  }
  const bool on_host = plan.backend->device == CAME_DEVICE_CPU;  // a device writes its own, and nothing waits for it
  if (on_host && phase > 0) check_presence(plan, step);
  plan.backend->run_phases(plan, {phase, 1}, step);
  if (on_host && phase == 0) write_presence(plan, step);
}

void run_step(const Plan& plan, const came_step& step, CheckTensors checked) {
  if (plan.sharded) {
    const auto sharded =
        std::find_if(plan.tensors.begin(), plan.tensors.end(), [](const Tensor& t) { return t.sharded; });
    invalid(sharded->label,
            ": is sharded, so its reductions need the other ranks; expected a call of "
            "came_plan_run_phase for each phase, with an all-reduce of came_plan_reduction between them");
  }
  const FloatMode mode;
  validate_step(plan, step, checked);
  plan.backend->run_phases(plan, {0, static_cast<int64_t>(plan.phases.size())}, step);
}

}  // namespace came::core
