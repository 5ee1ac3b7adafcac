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
  using OptionsOf::OptionsOf;
  CAME_TORCH_ARG(double, beta1)
  CAME_TORCH_ARG(double, beta2)
  CAME_TORCH_ARG(double, beta3)
  CAME_TORCH_ARG(double, eps1)
  CAME_TORCH_ARG(double, eps2)
  CAME_TORCH_ARG(double, clip_threshold)
  CAME_TORCH_ARG(bool, bias_correction)
  CAME_TORCH_ARG(bool, confidence_1d)
  CAME_TORCH_ARG(View, view)
  /// beta1, beta2 and beta3.
  CAMEOptions& betas(const std::tuple<double, double, double>& all) {
    return beta1(std::get<0>(all)).beta2(std::get<1>(all)).beta3(std::get<2>(all));
  }
  /// beta1, beta2 and beta3.
  [[nodiscard]] std::tuple<double, double, double> betas() const { return {beta1(), beta2(), beta3()}; }
};

/// Options of Adafactor.
struct AdafactorOptions : OptionsOf<AdafactorOptions, Algorithm::adafactor> {
  using OptionsOf::OptionsOf;
  CAME_TORCH_ARG(double, beta1)
  CAME_TORCH_ARG(double, beta2)
  CAME_TORCH_ARG(double, beta2_decay)
  CAME_TORCH_ARG(double, eps1)
  CAME_TORCH_ARG(double, eps2)
  CAME_TORCH_ARG(double, clip_threshold)
  CAME_TORCH_ARG(bool, relative_step)
  CAME_TORCH_ARG(bool, warmup_init)
  CAME_TORCH_ARG(bool, scale_parameter)
  CAME_TORCH_ARG(bool, lr_in_momentum)
  CAME_TORCH_ARG(View, view)
};

/// Options that Adam, AdamW and LAMB share.
template <class Self, Algorithm which>
struct MomentsOptions : OptionsOf<Self, which> {
  using OptionsOf<Self, which>::OptionsOf;
  using typename OptionsOf<Self, which>::Derived;
  CAME_TORCH_ARG(double, beta1)
  CAME_TORCH_ARG(double, beta2)
  CAME_TORCH_ARG(double, eps)
  CAME_TORCH_ARG(DType, second_moment_dtype)
  /// beta1 and beta2.
  Derived& betas(const std::tuple<double, double>& all) { return beta1(std::get<0>(all)).beta2(std::get<1>(all)); }
  /// beta1 and beta2.
  [[nodiscard]] std::tuple<double, double> betas() const { return {beta1(), beta2()}; }
};

/// Options of Adam.
struct AdamOptions : MomentsOptions<AdamOptions, Algorithm::adam> {
  using MomentsOptions::MomentsOptions;
};

/// Options of AdamW.
struct AdamWOptions : MomentsOptions<AdamWOptions, Algorithm::adamw> {
  using MomentsOptions::MomentsOptions;
};

/// Options of LAMB.
struct LAMBOptions : MomentsOptions<LAMBOptions, Algorithm::lamb> {
  using MomentsOptions::MomentsOptions;
  CAME_TORCH_ARG(bool, bias_correction)
};

/// Options of SM3.
struct SM3Options : OptionsOf<SM3Options, Algorithm::sm3> {
  using OptionsOf::OptionsOf;
  CAME_TORCH_ARG(double, beta1)
  CAME_TORCH_ARG(double, eps)
  CAME_TORCH_ARG(View, view)
};

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
