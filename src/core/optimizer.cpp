// Lays out one allocation for all state, then hands pointers to the same steps a framework would run.
#include "core/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "core/backend.hpp"
#include "core/checked.hpp"
#include "core/dtype.hpp"
#include "core/fit.hpp"
#include "core/message.hpp"
#include "core/old_state.hpp"
#include "core/step.hpp"

namespace came::core {
namespace {

constexpr size_t kCacheLine = 64 / sizeof(uint64_t);

/// FNV-1a: the same on every machine, unlike std::hash.
uint64_t hash(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325ULL;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

std::vector<TensorSpec> specs_of(const std::vector<Parameter>& parameters) {
  std::vector<TensorSpec> specs;
  std::unordered_set<std::string> names;
  for (const Parameter& p : parameters) {
    const std::string label = "parameter " + std::to_string(specs.size()) + " '" + p.name + "'";
    if (p.name.empty() || !names.insert(p.name).second) {
      invalid(label, ": name is ", p.name.empty() ? "empty" : "used twice", ", expected one of its own");
    }
    check_struct(p.param.struct_size, sizeof(came_tensor), label, "param");
    check_readable(p.param.shape, p.param.ndim, label, "param");
    TensorSpec spec;
    spec.name = p.name;
    spec.shape.assign(p.param.shape, p.param.shape + p.param.ndim);
    spec.dtype = static_cast<DType>(p.param.dtype);
    spec.grad_dtype = static_cast<DType>(p.grad.dtype);
    spec.group = p.group;
    spec.id = hash(p.name);  // so that a parameter rounds alike wherever it stands in the list
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

Optimizer::Optimizer(const std::vector<came_options>& groups, const std::vector<Parameter>& parameters,
                     const Backend& backend)
    : plan_(make_plan(groups, specs_of(parameters), backend)), options_(groups) {
  if (backend.device != CAME_DEVICE_CPU) {
    fail(Status::unsupported, "backend: ", backend.name, " works on ", device_name(backend.device),
         " memory, expected one for host memory");
  }
  counters_.assign(parameters.size(), 0);
  parameter_count_ = static_cast<int64_t>(parameters.size());
  counter_view_ = TensorView(counters_.data(), {&parameter_count_, 1});
  workspace_.resize(static_cast<size_t>(plan_.memory.workspace_bytes) / sizeof(double));
  reductions_.resize(static_cast<size_t>(plan_.memory.reduction_bytes) / sizeof(double));

  std::vector<size_t> places;
  size_t words = 0;
  for (const Tensor& t : plan_.tensors) {
    for (const State& state : t.states) {
      places.push_back(words);
      const size_t needed = (static_cast<size_t>(state.bytes) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
      words += (needed + kCacheLine - 1) / kCacheLine * kCacheLine;
    }
  }
  storage_.assign(words, 0);

  for (size_t k = 0; k < plan_.tensors.size(); ++k) {
    const Tensor& t = plan_.tensors[k];
    params_.push_back(parameters[k].param);
    grads_.push_back(parameters[k].grad);
    params_.back().shape = t.shape.data();  // the caller's array of sizes need not outlive this call
    for (const State& state : t.states) {
      const TensorView view(storage_.data() + places[states_.size()], state.shape, state.dtype);
      states_.push_back(view);
      exports_.push_back({t.name + "." + state.name, view, state.bytes});
    }
    exports_.push_back({t.name + ".step", TensorView(&counters_[k]), sizeof(int64_t)});
  }
  validate_step(plan_, make_step());
  for (size_t k = 0; k < plan_.tensors.size(); ++k) grads_[k].shape = plan_.tensors[k].shape.data();
}

came_step Optimizer::make_step() const {
  came_step step = CAME_STEP_INIT;
  step.tensor_count = static_cast<int64_t>(params_.size());
  step.params = params_.data();
  step.grads = grads_.data();
  step.state_count = static_cast<int64_t>(states_.size());
  step.states = states_.data();
  step.step = &counter_view_;
  step.options = options_.data();
  step.workspace = const_cast<double*>(workspace_.data());
  step.workspace_bytes = plan_.memory.workspace_bytes;
  step.reductions = const_cast<double*>(reductions_.data());
  step.reduction_bytes = plan_.memory.reduction_bytes;
  return step;
}

void Optimizer::step(const double* grad_scale, const double* found_inf) {
  const TensorView scale(grad_scale);
  const TensorView inf(found_inf);
  came_step step = make_step();
  step.grad_scale = grad_scale != nullptr ? &scale : nullptr;
  step.found_inf = found_inf != nullptr ? &inf : nullptr;
  run_step(plan_, step);
}

void Optimizer::set_grad(int64_t parameter, const came_tensor& grad) {
  if (parameter < 0 || parameter >= static_cast<int64_t>(grads_.size())) {
    invalid("parameter: ", parameter, " given, expected 0 to ", static_cast<int64_t>(grads_.size()) - 1);
  }
  const Tensor& t = plan_.tensors[static_cast<size_t>(parameter)];
  check_tensor(grad, t.label, "grad", t.shape.data(), static_cast<int64_t>(t.shape.size()), t.grad_dtype,
               CAME_DEVICE_CPU, 0);
  grads_[static_cast<size_t>(parameter)].data = grad.data;
}

void Optimizer::check_group(int32_t group) const {
  const auto count = static_cast<int64_t>(options_.size());
  if (group < 0 || group >= count) invalid("group: ", group, " given, expected 0 to ", count - 1);
}

void Optimizer::set_options(int32_t group, const came_options& options) {
  check_group(group);
  std::vector<came_options> changed = options_;
  changed[static_cast<size_t>(group)] = options;
  check_step_options(plan_, changed.data());
  options_ = std::move(changed);
}

void Optimizer::set_lr(int32_t group, double lr) {
  check_group(group);
  if (!std::isfinite(lr) || lr < 0) invalid("lr: ", lr, " given, expected a finite number >= 0");
  options_[static_cast<size_t>(group)].lr = lr;
}

std::vector<size_t> Optimizer::match(const std::vector<NamedTensor>& states) const {
  std::unordered_map<std::string, size_t> known;
  for (size_t k = 0; k < exports_.size(); ++k) known.emplace(exports_[k].name, k);
  std::vector<size_t> places;
  std::vector<bool> seen(exports_.size(), false);
  for (const NamedTensor& given : states) {
    const auto found = known.find(given.name);
    if (found == known.end()) invalid("state '", given.name, "': unknown to this optimizer");
    if (seen[found->second]) invalid("state '", given.name, "': given twice");
    seen[found->second] = true;
    const came_tensor& own = exports_[found->second].tensor;
    check_tensor(given.tensor, "state '" + given.name + "'", "tensor", own.shape, own.ndim,
                 static_cast<DType>(own.dtype), CAME_DEVICE_CPU, 0);
    places.push_back(found->second);
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    invalid("state '", exports_[static_cast<size_t>(missing - seen.begin())].name, "': missing");
  }
  return places;
}

void Optimizer::load_state(const std::vector<NamedTensor>& saved) {
  const LoadedState loaded = decode_vectors(plan_, saved);
  const std::vector<NamedTensor>& states = loaded.tensors;
  const std::vector<size_t> places = match(states);
  for (size_t k = 0; k < states.size(); ++k) {
    const came_tensor& own = exports_[places[k]].tensor;
    const auto* given = static_cast<const uint64_t*>(states[k].tensor.data);
    if (static_cast<DType>(own.dtype) == DType::i64) {
      const int64_t count = *static_cast<const int64_t*>(states[k].tensor.data);
      if (count < 0 || count >= kMostSteps) {
        invalid("state '", states[k].name, "': ", count, " given, expected 0 to ", kMostSteps - 1);
      }
    }
    if (given != own.data && given >= storage_.data() && given < storage_.data() + storage_.size()) {
      invalid("state '", states[k].name, "': tensor.data is another state of this optimizer, expected a copy of it");
    }
  }
  for (size_t k = 0; k < states.size(); ++k) {
    const came_tensor& own = exports_[places[k]].tensor;
    const int64_t bytes = exports_[places[k]].bytes;
    if (bytes > 0) std::memmove(own.data, states[k].tensor.data, static_cast<size_t>(bytes));
  }
}

}  // namespace came::core
