// The optimizers: one class of options each, with the options of came_options that it has.
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "came/torch/optimizer.hpp"
#include "came/torch/options.hpp"

namespace came::torch {

/// Options of CAME.
struct CAMEOptions : OptionsOf<CAMEOptions, Algorithm::came> {
  /// From nothing, or from a learning rate.
  using OptionsOf::OptionsOf;
  CAME_TORCH_ARG(double, beta1);           ///< Decay of the momentum.
  CAME_TORCH_ARG(double, beta2);           ///< Decay of the second moment.
  CAME_TORCH_ARG(double, beta3);           ///< Decay of the instability.
  CAME_TORCH_ARG(double, eps1);            ///< Added to the squared gradient.
  CAME_TORCH_ARG(double, eps2);            ///< Added to the instability.
  CAME_TORCH_ARG(double, clip_threshold);  ///< Largest RMS of an update.
  CAME_TORCH_ARG(bool, bias_correction);   ///< Corrects the cold start; false: the paper's Algorithm 2 exactly.
  CAME_TORCH_ARG(bool, confidence_1d);     ///< Confidence factor also for 1-D and 0-D tensors.
  CAME_TORCH_ARG(View, view);              ///< How N-D tensors become matrices.
  /// beta1, beta2 and beta3.
  CAMEOptions& betas(const std::tuple<double, double, double>& all) {
    return beta1(std::get<0>(all)).beta2(std::get<1>(all)).beta3(std::get<2>(all));
  }
  /// beta1, beta2 and beta3.
  [[nodiscard]] std::tuple<double, double, double> betas() const { return {beta1(), beta2(), beta3()}; }
};

/// Options of Adafactor.
struct AdafactorOptions : OptionsOf<AdafactorOptions, Algorithm::adafactor> {
  /// From nothing, or from a learning rate.
  using OptionsOf::OptionsOf;
  CAME_TORCH_ARG(double, beta1);           ///< Decay of the momentum.
  CAME_TORCH_ARG(double, beta2);           ///< Decay of the second moment.
  CAME_TORCH_ARG(double, beta2_decay);     ///< beta2 is 1 - step^beta2_decay; 0: constant.
  CAME_TORCH_ARG(double, eps1);            ///< Added to the squared gradient.
  CAME_TORCH_ARG(double, eps2);            ///< Least parameter scale.
  CAME_TORCH_ARG(double, clip_threshold);  ///< Largest RMS of an update.
  CAME_TORCH_ARG(bool, relative_step);     ///< min(1e-2, 1/sqrt(step)) instead of lr.
  CAME_TORCH_ARG(bool, warmup_init);       ///< With relative_step: 1e-6 * step instead of 1e-2.
  CAME_TORCH_ARG(bool, scale_parameter);   ///< Multiplies the rate by max(eps2, RMS(parameter)).
  CAME_TORCH_ARG(bool, lr_in_momentum);    ///< Momentum of rate * update, as in the original.
  CAME_TORCH_ARG(View, view);              ///< How N-D tensors become matrices.
};

/// Options that Adam, AdamW and LAMB share.
template <class Self, Algorithm which>
struct MomentsOptions : OptionsOf<Self, which> {
  /// From nothing, or from a learning rate.
  using OptionsOf<Self, which>::OptionsOf;
  /// The class whose setters return *this.
  using typename OptionsOf<Self, which>::Derived;
  CAME_TORCH_ARG(double, beta1);               ///< Decay of the momentum.
  CAME_TORCH_ARG(double, beta2);               ///< Decay of the second moment.
  CAME_TORCH_ARG(double, eps);                 ///< Added to the root.
  CAME_TORCH_ARG(DType, second_moment_dtype);  ///< Storage of the second moment: automatic or i8.
  /// beta1 and beta2.
  Derived& betas(const std::tuple<double, double>& all) { return beta1(std::get<0>(all)).beta2(std::get<1>(all)); }
  /// beta1 and beta2.
  [[nodiscard]] std::tuple<double, double> betas() const { return {beta1(), beta2()}; }
};

/// Options of Adam.
struct AdamOptions : MomentsOptions<AdamOptions, Algorithm::adam> {
  /// From nothing, or from a learning rate.
  using MomentsOptions::MomentsOptions;
};

/// Options of AdamW.
struct AdamWOptions : MomentsOptions<AdamWOptions, Algorithm::adamw> {
  /// From nothing, or from a learning rate.
  using MomentsOptions::MomentsOptions;
};

/// Options of LAMB.
struct LAMBOptions : MomentsOptions<LAMBOptions, Algorithm::lamb> {
  /// From nothing, or from a learning rate.
  using MomentsOptions::MomentsOptions;
  CAME_TORCH_ARG(bool, bias_correction);  ///< Corrects both moments for their start at zero.
};

/// Options of SM3.
struct SM3Options : OptionsOf<SM3Options, Algorithm::sm3> {
  /// From nothing, or from a learning rate.
  using OptionsOf::OptionsOf;
  CAME_TORCH_ARG(double, beta1);  ///< Decay of the momentum.
  CAME_TORCH_ARG(double, eps);    ///< Under the root.
  CAME_TORCH_ARG(View, view);     ///< How N-D tensors become matrices.
};

/// The options of every optimizer, in the order of came_algorithm.
using AllOptions = std::tuple<CAMEOptions, AdafactorOptions, AdamOptions, AdamWOptions, LAMBOptions, SM3Options>;

/// Calls visit with the default options of each optimizer.
template <class Visit>
void for_each_options(const Visit& visit) {
  std::apply([&](const auto&... options) { (visit(options), ...); }, AllOptions());
}

/// The optimizer that has these options.
template <class OptionsType>
class OptimizerOf : public Optimizer {
 public:
  /// An optimizer over param groups; what a group's options were not given comes from `defaults`.
  explicit OptimizerOf(const std::vector<::torch::optim::OptimizerParamGroup>& groups, OptionsType defaults = {})
      : Optimizer(groups, std::make_unique<OptionsType>(std::move(defaults))) {}
  /// An optimizer with one param group.
  explicit OptimizerOf(std::vector<at::Tensor> params, OptionsType defaults = {})
      : OptimizerOf(std::vector<::torch::optim::OptimizerParamGroup>{{std::move(params)}}, std::move(defaults)) {}
};

/// CAME, Luo et al. 2023.
using CAME = OptimizerOf<CAMEOptions>;
/// Adafactor, with momentum as in the CAME paper or as in the original.
using Adafactor = OptimizerOf<AdafactorOptions>;
/// Adam; weight decay is added to the gradient.
using Adam = OptimizerOf<AdamOptions>;
/// Adam with decoupled weight decay.
using AdamW = OptimizerOf<AdamWOptions>;
/// LAMB, You et al. 2020.
using LAMB = OptimizerOf<LAMBOptions>;
/// SM3-II, Anil et al. 2019.
using SM3 = OptimizerOf<SM3Options>;

}  // namespace came::torch
