// The owning optimizer in the C interface.
#include "core/optimizer.hpp"

#include "c_api/handle.hpp"
#include "core/backend.hpp"

using namespace came::c_api;
namespace core = came::core;

namespace {

came::TensorView view_of(const came_tensor& tensor) {
  came::TensorView view;
  static_cast<came_tensor&>(view) = tensor;
  return view;
}

core::Optimizer& optimizer_of(came_optimizer* optimizer) { return required(optimizer, "optimizer").optimizer; }

const core::Optimizer& optimizer_of(const came_optimizer* optimizer) {
  return required(optimizer, "optimizer").optimizer;
}

}  // namespace

extern "C" {

came_status came_optimizer_create(const came_options* groups, int32_t group_count, const came_parameter* parameters,
                                  int64_t parameter_count, came_backend backend, came_optimizer** optimizer) {
  return guarded([&] {
    required(optimizer, "optimizer");
    if (parameter_count < 0) core::invalid("parameter_count: ", parameter_count, " given, expected at least 0");
    std::vector<came::Parameter> list;
    for (int64_t k = 0; k < parameter_count; ++k) {
      const came_parameter& p = checked_element(parameters, k, "parameters");
      list.push_back({p.name != nullptr ? p.name : "", view_of(p.param), view_of(p.grad), p.group});
    }
    const core::Backend& chosen = core::find_backend(backend);
    *optimizer = new came_optimizer{{copy_groups(groups, group_count), list, chosen}};
  });
}

void came_optimizer_destroy(came_optimizer* optimizer) { delete optimizer; }

came_status came_optimizer_step(came_optimizer* optimizer, const double* grad_scale, const double* found_inf) {
  return guarded([&] { optimizer_of(optimizer).step(grad_scale, found_inf); });
}

came_status came_optimizer_set_grad(came_optimizer* optimizer, int64_t parameter, const came_tensor* grad) {
  return guarded([&] { optimizer_of(optimizer).set_grad(parameter, checked_struct(grad, "grad")); });
}

came_status came_optimizer_set_options(came_optimizer* optimizer, int32_t group, const came_options* options) {
  return guarded([&] { optimizer_of(optimizer).set_options(group, checked_struct(options, "options")); });
}

came_status came_optimizer_set_lr(came_optimizer* optimizer, int32_t group, double lr) {
  return guarded([&] { optimizer_of(optimizer).set_lr(group, lr); });
}

came_status came_optimizer_memory(const came_optimizer* optimizer, came_memory* memory) {
  return guarded([&] { checked_struct(memory, "memory") = optimizer_of(optimizer).memory(); });
}

came_status came_optimizer_state_count(const came_optimizer* optimizer, int64_t* count) {
  return guarded([&] { required(count, "count") = static_cast<int64_t>(optimizer_of(optimizer).exports().size()); });
}

came_status came_optimizer_state(const came_optimizer* optimizer, int64_t index, came_named_tensor* state) {
  return guarded([&] {
    const std::vector<came::NamedTensor>& exports = optimizer_of(optimizer).exports();
    came_named_tensor& out = checked_struct(state, "state");
    const auto count = static_cast<int64_t>(exports.size());
    if (index < 0 || index >= count) core::invalid("index: ", index, " given, expected 0 to ", count - 1);
    const came::NamedTensor& found = exports[static_cast<size_t>(index)];
    out = {sizeof(came_named_tensor), 0, found.name.c_str(), found.tensor, found.bytes};
  });
}

came_status came_optimizer_load_state(came_optimizer* optimizer, const came_named_tensor* states, int64_t count) {
  return guarded([&] {
    if (count < 0) core::invalid("count: ", count, " given, expected at least 0");
    std::vector<came::NamedTensor> list;
    for (int64_t k = 0; k < count; ++k) {
      const came_named_tensor& given = checked_element(states, k, "states");
      if (given.name == nullptr) core::invalid("states[", k, "].name is null, expected an address");
      list.push_back({given.name, view_of(given.tensor), given.bytes});
    }
    optimizer_of(optimizer).load_state(list);
  });
}

}  // extern "C"
