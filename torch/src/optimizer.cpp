// Param groups and steps: which parameters go together, and when a plan is made anew.
#include "came/torch/optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "binding.hpp"

namespace came::torch {

using ::torch::optim::OptimizerParamGroup;

/// Parameters of one device that have a gradient, or have had one.
struct Optimizer::Place {
  c10::Device device;
  std::vector<Member> members;
};

Optimizer::Optimizer(const std::vector<OptimizerParamGroup>& groups, std::unique_ptr<Options> defaults)
    : ::torch::optim::Optimizer(std::vector<OptimizerParamGroup>{}, std::move(defaults)) {
  auto& own = static_cast<Options&>(*defaults_);
  own.validate();
  own.defaults_ = true;
  own.replaced_ = false;
  for (const OptimizerParamGroup& group : groups) add_param_group(group);
}

Optimizer::Optimizer(Optimizer&& other) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&& other) noexcept = default;
Optimizer::~Optimizer() = default;

void Optimizer::add_param_group(const OptimizerParamGroup& group) {
  const std::string place = "group " + std::to_string(param_groups_.size());
  const auto& defaults = static_cast<const Options&>(*defaults_);
  std::unique_ptr<::torch::optim::OptimizerOptions> copy =
      group.has_options() ? group.options().clone() : defaults_->clone();
  auto* options = dynamic_cast<Options*>(copy.get());
  if (options == nullptr || options->core().algorithm != defaults.core().algorithm) {
    throw Error(Status::invalid_argument, place + ": options of " +
                                              (options == nullptr ? "another library" : options->core().word()) +
                                              ", expected those of " + defaults.core().word());
  }
  options->inherit(defaults);
  options->defaults_ = options->replaced_ = false;
  options->validate();

  std::unordered_set<const void*> seen;
  for (const OptimizerParamGroup& other : param_groups_) {
    for (const at::Tensor& param : other.params()) seen.insert(param.unsafeGetTensorImpl());
  }
  for (size_t k = 0; k < group.params().size(); ++k) {
    const at::Tensor& param = group.params()[k];
    const std::string name = "parameter " + std::to_string(k) + " of " + place;
    if (!param.defined()) throw Error(Status::invalid_argument, name + ": an undefined tensor, expected a parameter");
    if (!param.is_leaf())
      throw Error(Status::invalid_argument, name + ": computed from others, expected a leaf tensor");
    if (!seen.insert(param.unsafeGetTensorImpl()).second) {
      throw Error(Status::invalid_argument, name + ": given before, expected each parameter once");
    }
  }
  param_groups_.emplace_back(group.params(), std::move(copy));
}

const Options& Optimizer::options_of(size_t group) const {
  const auto& wanted = static_cast<const Options&>(*defaults_);
  const auto* options = dynamic_cast<const Options*>(&param_groups_[group].options());
  const std::string place = "group " + std::to_string(group);
  if (options == nullptr || options->core().algorithm != wanted.core().algorithm) {
    throw Error(Status::invalid_argument,
                place + ": options of another optimizer, expected those of " + wanted.core().word());
  }
  if (options->replaced_) {
    throw Error(Status::invalid_argument,
                place +
                    ": added through torch::optim::Optimizer, which drops options of classes that it does not know; "
                    "expected add_param_group of the came::torch optimizer itself");
  }
  return *options;
}

at::Tensor Optimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const at::NoGradGuard no_gradients;
  update();
  return loss;
}

std::vector<Optimizer::Place> Optimizer::places() const {
  std::vector<Place> places;
  uint64_t id = 0;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& params = param_groups_[g].params();
    for (size_t k = 0; k < params.size(); ++k, ++id) {
      const at::Tensor& param = params[k];
      const auto state = state_.find(param.unsafeGetTensorImpl());
      const bool has_state = state != state_.end() && state->second != nullptr;
      const at::Tensor& grad = param.grad();
      if (!grad.defined() && !has_state) continue;
      auto place =
          std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.device == param.device(); });
      if (place == places.end()) place = places.insert(place, {param.device(), {}});
      place->members.push_back({param, grad, static_cast<int>(g), static_cast<int>(k), id,
                                has_state ? static_cast<ParamState*>(state->second.get()) : nullptr});
    }
  }
  return places;
}

Binding& Optimizer::bind(const std::vector<came::Options>& groups, Place& place) {
  auto old =
      std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) { return b->device() == place.device; });
  if (old == bindings_.end() || !(*old)->fits(groups, place.members)) {
    auto made = std::make_unique<Binding>(groups, place.members);
    ++plans_made_;
    old = old == bindings_.end() ? bindings_.insert(old, std::move(made)) : (*old = std::move(made), old);
  }
  for (size_t k = 0; k < place.members.size(); ++k) {
    Member& member = place.members[k];
    if (member.state != nullptr) continue;
    std::unique_ptr<ParamState> state = (*old)->new_state(k);
    member.state = state.get();
    state_[member.param.unsafeGetTensorImpl()] = std::move(state);
  }
  return **old;
}

void Optimizer::update() {
  std::vector<came::Options> groups;
  std::vector<double> rates;
  bool clips = false;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    groups.push_back(options_of(g).core());
    rates.push_back(groups.back().lr);
    clips = clips || groups.back().max_grad_norm > 0;
    groups.back().lr = 0;  // Not the plan's: the step has it.
  }
  std::vector<Place> all = places();
  if (clips && all.size() > 1) {
    throw Error(Status::invalid_argument, "max_grad_norm: the norm is over all parameters, which are on " +
                                              std::to_string(all.size()) + " devices, expected one");
  }
  for (Place& place : all) {
    const bool any = std::any_of(place.members.begin(), place.members.end(),
                                 [](const Member& member) { return member.grad.defined(); });
    if (any) bind(groups, place).step(groups, place.members, rates);
  }
}

}  // namespace came::torch
