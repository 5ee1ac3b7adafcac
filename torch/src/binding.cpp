// A plan bound to libtorch's tensors: which plan, which state, one step.
#include "binding.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "came/torch/options.hpp"
#include "tensors.hpp"

namespace came::torch {
namespace {

[[noreturn]] void refuse(const Member& member, const std::string& given, const std::string& expected) {
  throw Error(Status::invalid_argument, member.name() + ": " + given + ", expected " + expected);
}

void check_dense(const Member& member, const char* what, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) {
    refuse(member, std::string(what) + " is " + (tensor.is_sparse() ? "sparse" : "not strided"), "a dense one");
  }
  if (!is_trainable(tensor.scalar_type())) {
    refuse(member, std::string(what) + " is " + c10::toString(tensor.scalar_type()), "Double, Float, BFloat16 or Half");
  }
}

// Storage can be resized below what a tensor needs: nothing else would stop the core there.
void check_memory(const Member& member, const std::string& what, const at::Tensor& tensor) {
  const size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                                         static_cast<size_t>(tensor.storage_offset()));
  const size_t held = tensor.storage().nbytes();
  if (tensor.numel() > 0 && held < needed) {
    refuse(member, what + " has a storage of " + std::to_string(held) + " bytes",
           "at least " + std::to_string(needed) + " for " + describe(tensor));
  }
}

// Rows and columns are those of the logical tensor, whatever order its memory has.
bool lies_in_rows(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_neg(); }

at::Tensor zeros(int64_t bytes, c10::Device device) {
  return at::zeros({(bytes + 7) / 8}, at::TensorOptions().dtype(at::kDouble).device(device));
}

// What a step leaves to do after the core has run: copies of strided parameters go back, autograd is told.
void finish(const std::vector<Member>& members, const std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
  for (const auto& [param, copy] : copies) param.copy_(copy);
  for (const Member& member : members) {
    if (member.grad.defined()) member.param.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

std::string Member::name() const { return "parameter " + std::to_string(index) + " of group " + std::to_string(group); }

TensorSpec spec_of(const Member& member) {
  const at::Tensor& param = member.param;
  if (!param.device().is_cpu() && !param.device().is_cuda()) {
    refuse(member, "it is on " + param.device().str(), "cpu or cuda");
  }
  check_dense(member, "it", param);
  TensorSpec spec;
  spec.name = member.name();
  spec.shape = param.sizes().vec();
  spec.dtype = *core_dtype(param.scalar_type());
  spec.grad_dtype = spec.dtype;
  spec.group = member.group;
  spec.id = member.id;
  if (member.grad.defined()) {
    check_dense(member, "its gradient", member.grad);
    spec.grad_dtype = *core_dtype(member.grad.scalar_type());
  }
  return spec;
}

void put_in_order(ParamState& state, const std::vector<StateSpec>& wanted) {
  const auto in_order = [&] {
    for (size_t k = 0; k < std::min(wanted.size(), state.tensors.size()); ++k) {
      if (state.tensors[k].name != wanted[k].name) return false;
    }
    return true;
  };
  if (in_order()) return;
  const auto place = [&](const ParamState::Entry& entry) {
    return std::find_if(wanted.begin(), wanted.end(), [&](const StateSpec& want) { return want.name == entry.name; });
  };
  std::stable_sort(state.tensors.begin(), state.tensors.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

void check_state(const Member& member, const ParamState& state, const std::vector<StateSpec>& wanted) {
  const char* advice =
      ": set view, momentum_dtype and other options that decide the state before the first step, or after "
      "state().clear(); a checkpoint must be of the same parameters in the same order";
  const size_t count = std::min(wanted.size(), state.tensors.size());
  for (size_t k = 0; k < count; ++k) {
    const auto& [name, tensor] = state.tensors[k];
    const StateSpec& want = wanted[k];
    const at::ScalarType dtype = torch_dtype(want.dtype);
    if (name != want.name) refuse(member, "state " + name, want.name + advice);
    if (!tensor.defined() || tensor.scalar_type() != dtype || tensor.sizes() != at::IntArrayRef(want.shape) ||
        tensor.device() != member.param.device()) {
      refuse(member, "state " + name + " is " + (tensor.defined() ? describe(tensor) : "not defined"),
             describe(c10::toString(dtype), want.shape, member.param.device()) + advice);
    }
    if (!lies_in_rows(tensor)) refuse(member, "state " + name + " is not contiguous", "a contiguous tensor");
    check_memory(member, "state " + name, tensor);
  }
  if (count < wanted.size()) refuse(member, "no state " + wanted[count].name, "one" + std::string(advice));
  if (count < state.tensors.size()) refuse(member, "state " + state.tensors[count].name, std::string("none") + advice);
}

Binding::Binding(const std::vector<came::Options>& groups, const std::vector<Member>& members)
    : device_(members.front().param.device()),
      groups_(groups),
      specs_([&] {
        std::vector<TensorSpec> specs;
        specs.reserve(members.size());
        for (const Member& member : members) specs.push_back(spec_of(member));
        return specs;
      }()),
      plan_(groups_, specs_, device_.is_cpu() ? Backend::automatic : Backend::cuda,
            device_.is_cpu() ? 0 : device_.index()),
      states_(specs_.size()) {
  for (StateSpec& state : plan_.state()) states_[static_cast<size_t>(state.tensor)].push_back(std::move(state));
  const came_memory memory = plan_.memory();
  workspace_ = zeros(memory.workspace_bytes, device_);
  reductions_ = zeros(memory.reduction_bytes, device_);
}

bool Binding::takes(const std::vector<came::Options>& groups) const {
  if (std::equal(groups.begin(), groups.end(), groups_.begin(), Options::same)) return true;
  try {
    plan_.check_options(groups);
  } catch (const Error&) {
    return false;
  }
  return true;
}

bool Binding::fits(const std::vector<came::Options>& groups, const std::vector<Member>& members) const {
  if (groups.size() != groups_.size() || members.size() != specs_.size() || !takes(groups)) return false;
  for (size_t k = 0; k < members.size(); ++k) {
    const Member& member = members[k];
    const TensorSpec& spec = specs_[k];
    if (member.id != spec.id || member.group != spec.group || member.param.sizes() != at::IntArrayRef(spec.shape) ||
        core_dtype(member.param.scalar_type()) != spec.dtype || member.param.layout() != at::kStrided) {
      return false;
    }
    if (member.grad.defined() &&
        (core_dtype(member.grad.scalar_type()) != spec.grad_dtype || member.grad.layout() != at::kStrided)) {
      return false;
    }
  }
  return true;
}

std::unique_ptr<ParamState> Binding::new_state(size_t k) const {
  auto state = std::make_unique<ParamState>();
  for (const StateSpec& want : states_[k]) {
    const auto options = at::TensorOptions().dtype(torch_dtype(want.dtype)).device(device_);
    state->tensors.push_back({want.name, at::zeros(want.shape, options)});
  }
  return state;
}

void Binding::step(const std::vector<came::Options>& groups, const std::vector<Member>& members,
                   const std::vector<double>& rates) {
  const c10::DeviceGuard guard(device_);
  std::vector<TensorView> params, grads, states;
  std::vector<int64_t> steps;
  std::vector<uint8_t> active;
  std::vector<at::Tensor> kept;                           // contiguous gradients
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // strided parameters, and what the core steps for them
  kept.reserve(members.size());
  copies.reserve(members.size());
  for (size_t k = 0; k < members.size(); ++k) {
    const Member& member = members[k];
    put_in_order(*member.state, states_[k]);
    check_state(member, *member.state, states_[k]);
    for (const auto& entry : member.state->tensors) states.push_back(view_of(entry.tensor));
    steps.push_back(member.state->step);
    active.push_back(member.grad.defined() ? 1 : 0);
    if (!member.grad.defined()) {
      params.push_back(view_of(member.param));
      TensorView none = view_of(member.param);
      none.data = nullptr;
      none.dtype = static_cast<came_dtype>(specs_[k].grad_dtype);
      grads.push_back(none);
      continue;
    }
    check_memory(member, "it", member.param);
    check_memory(member, "its gradient", member.grad);
    const bool in_rows = lies_in_rows(member.param);
    if (!in_rows) copies.emplace_back(member.param, member.param.resolve_neg().contiguous());
    params.push_back(view_of(in_rows ? member.param : copies.back().second));
    const bool grad_in_rows = lies_in_rows(member.grad);
    if (!grad_in_rows) kept.push_back(member.grad.resolve_neg().contiguous());
    grads.push_back(view_of(grad_in_rows ? member.grad : kept.back()));
  }

  const int64_t count = static_cast<int64_t>(members.size()), group_count = static_cast<int64_t>(rates.size());
  const TensorView lr(rates.data(), {&group_count, 1}), counters(steps.data(), {&count, 1});
  Step call;
  call.set_tensors(params, grads);
  call.set_states(states);
  call.step = &counters;
  call.lr = &lr;
  call.set_options(groups);
  call.active = active.data();
  call.workspace = workspace_.data_ptr();
  call.workspace_bytes = workspace_.numel() * 8;
  call.reductions = reductions_.data_ptr();
  call.reduction_bytes = reductions_.numel() * 8;
  call.stream = current_stream(device_);
  plan_.step(call);
  for (size_t k = 0; k < members.size(); ++k) members[k].state->step = steps[k];
  finish(members, copies);
}

}  // namespace came::torch
