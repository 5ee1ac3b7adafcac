// The parameters of an optimizer that lie on one device, with the plan that steps them.  PRIVATE.
//
// A binding lives until a shape, a dtype, the list of parameters or an option that decides the plan changes; addresses
// and other options are written anew at each step, so that parameters, gradients and state may move.
#pragma once

#include <ATen/core/Tensor.h>

#include <came/plan.hpp>
#include <memory>
#include <string>
#include <vector>

#include "came/torch/state.hpp"

namespace came::torch {

/// One parameter and where the optimizer has it.
struct Member {
  at::Tensor param;
  at::Tensor grad;  ///< Not defined: the step passes it over.
  int group;
  int index;            ///< In its group.
  uint64_t id;          ///< Among all parameters of the optimizer: key of stochastic rounding.
  ParamState* state{};  ///< Null before its first gradient.

  /// What messages call it.
  [[nodiscard]] std::string name() const;
};

/// What the core has to know of a member; throws for parameters and gradients that no optimizer can take.
TensorSpec spec_of(const Member& member);

/// Brings state that was put in by hand, or read from a file, into the order of the plan; names it does not know come
/// last.
void put_in_order(ParamState& state, const std::vector<StateSpec>& wanted);
/// State of zeros, or the state given: throws unless it is what the plan of one tensor wants.
void check_state(const Member& member, const ParamState& state, const std::vector<StateSpec>& wanted);

/// A plan for some parameters of one device, with its scratch.
class Binding {
 public:
  /// Makes the plan; `groups` are the options of all groups.
  Binding(const std::vector<came::Options>& groups, const std::vector<Member>& members);

  /// Whether the plan can still step these parameters with these options.
  [[nodiscard]] bool fits(const std::vector<came::Options>& groups, const std::vector<Member>& members) const;
  /// The device of all its parameters.
  [[nodiscard]] c10::Device device() const { return device_; }
  /// State of zeros for member `k`.
  [[nodiscard]] std::unique_ptr<ParamState> new_state(size_t k) const;
  /// One step; `groups` and `rates` have the options and the learning rate of every group.
  void step(const std::vector<came::Options>& groups, const std::vector<Member>& members,
            const std::vector<double>& rates);

 private:
  [[nodiscard]] bool takes(const std::vector<came::Options>& groups) const;

  c10::Device device_;
  std::vector<came::Options> groups_;
  std::vector<TensorSpec> specs_;
  Plan plan_;
  std::vector<std::vector<StateSpec>> states_;  // per member
  at::Tensor workspace_, reductions_;
};

}  // namespace came::torch
