// What the optimizers share as torch::optim::Optimizer: param groups, steps, archives.
#pragma once

#include <torch/optim/optimizer.h>
#include <came/options.hpp>
#include <memory>
#include <string>
#include <vector>

#include "came/torch/options.hpp"
#include "came/torch/state.hpp"

namespace came::torch {

class Binding;

/// Base of the optimizers in optimizers.hpp.  Errors are came::Error.
class Optimizer : public ::torch::optim::Optimizer {
 public:
  /// Takes over groups and state.
  Optimizer(Optimizer&& other) noexcept;
  /// Takes over groups and state.
  Optimizer& operator=(Optimizer&& other) noexcept;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  ~Optimizer() override;

  /// Adds a param group; what its options were not given comes from defaults().  Call it on this type: the base's own
  /// is not virtual, and from libtorch 2.12 on replaces the group's options, which the next step then refuses.
  void add_param_group(const ::torch::optim::OptimizerParamGroup& group);

  /// One step over all parameters that have a gradient, after the closure, if there is one; returns its loss.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Writes options, state and counters of all parameters.
  void save(::torch::serialize::OutputArchive& archive) const override;
  /// Reads what save wrote, whatever was there before; unless all of it fits, nothing changes.
  void load(::torch::serialize::InputArchive& archive) override;

  /// How many plans were made so far: one per device, and again when shapes, dtypes, options other than lr, or the set
  /// of parameters that have had a gradient change.
  [[nodiscard]] int64_t plans_made() const { return plans_made_; }

 protected:
  Optimizer(const std::vector<::torch::optim::OptimizerParamGroup>& groups, std::unique_ptr<Options> defaults);

 private:
  struct Place;

  [[nodiscard]] const Options& options_of(size_t group) const;
  [[nodiscard]] std::vector<Place> places() const;
  void update();
  Binding& bind(const std::vector<came::Options>& groups, Place& place);

  std::vector<std::unique_ptr<Binding>> bindings_;  // one per device
  int64_t plans_made_ = 0;
};

}  // namespace came::torch
