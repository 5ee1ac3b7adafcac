// Rules that tie options to tensors and to the plan that was made with other options.
#include "core/fit.hpp"

#include <limits>
#include <string>
#include <unordered_map>

#include "core/dtype.hpp"
#include "core/message.hpp"
#include "core/optimizers/descriptor.hpp"
#include "core/options.hpp"
#include "core/step.hpp"

namespace came::core {
namespace {

/// Options that decide what state there is, which phases run and what they reduce.
struct Fixed {
  const char* name;
  int32_t came_options::*field;
};
constexpr Fixed kFixed[] = {{"algorithm", &came_options::algorithm},
                            {"view", &came_options::view},
                            {"momentum_dtype", &came_options::momentum_dtype},
                            {"second_moment_dtype", &came_options::second_moment_dtype},
                            {"confidence_1d", &came_options::confidence_1d},
                            {"cautious", &came_options::cautious},
                            {"scale_parameter", &came_options::scale_parameter}};

/// Do these decide alike what a plan is?
void check_alike(const Plan& plan, const came_options& own, const came_options& given, const std::string& what) {
  for (const Fixed& fixed : kFixed) {
    if (own.*fixed.field == given.*fixed.field) continue;
    invalid(what, ": ", fixed.name, " is ", given.*fixed.field, ", expected ", own.*fixed.field,
            " as in the plan, which it decides");
  }
  const bool may_lack_momentum = plan.algorithm == Algorithm::adafactor || plan.algorithm == Algorithm::sm3;
  if (may_lack_momentum && (own.beta1 > 0) != (given.beta1 > 0)) {
    invalid(what, ": beta1 is ", given.beta1, ", expected ", own.beta1 > 0 ? "> 0" : "0",
            " as in the plan, which it decides");
  }
  if (given.max_grad_norm > 0 && plan.find(PhaseKind::norm) < 0) {
    invalid(what, ": max_grad_norm is ", given.max_grad_norm, ", expected 0: no group of the plan clips");
  }
  if (given.stochastic_rounding > own.stochastic_rounding && !plan.has_distinct_ids) {
    invalid(what, ": stochastic_rounding is 1, expected 0 as in the plan: some of its tensors share an id");
  }
}

}  // namespace

void check_epsilons(const came_options& o, const Tensor& t) {
  const double least = t.dtype == DType::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  const auto check = [&](const char* name, double eps, double beta) {
    if (eps > 0 && eps * (1 - beta) < least) {
      invalid(t.label, ": ", name, " is ", eps, ", expected at least ", least / (1 - beta), " for ",
              dtype_name(t.dtype), " parameters: statistics would round to 0");
    }
  };
  check("eps1", o.eps1, o.beta2);
  if (o.algorithm == CAME_ALGORITHM_CAME) check("eps2", o.eps2, o.beta3);
}

bool check_ids(const Plan& plan) {
  std::unordered_map<uint64_t, const Tensor*> users;
  std::unordered_map<uint64_t, const Tensor*> rounded;
  for (const Tensor& t : plan.tensors) {
    users.emplace(t.id, &t);
    const came_options& o = plan.options(t);
    const bool narrow = t.dtype == DType::bf16 || t.dtype == DType::f16 || o.momentum_dtype == CAME_DTYPE_BF16;
    // The codes of a second moment are always drawn.
    if ((o.stochastic_rounding == 0 || !narrow) && !has_codes(o.second_moment_dtype, t)) continue;
    const auto [user, first] = rounded.emplace(t.id, &t);
    if (!first) {
      invalid(t.label, ": id is ", t.id, " as that of ", user->second->label,
              ", expected one of its own for stochastic rounding");
    }
  }
  return users.size() == plan.tensors.size();
}

void check_step_options(const Plan& plan, const came_options* options) {
  static const std::string what = "options";  // made once: a step allocates nothing
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    const came_options& given = options[group];
    try {
      check_struct(given.struct_size, sizeof(came_options), what, "options");
      check_alike(plan, plan.groups[group], given, what);
      validate_options(given, what);
    } catch (const Error& error) {
      fail(error.status(), "step: group ", group, ": ", error.what());
    }
  }
  for (const Tensor& t : plan.tensors) check_epsilons(options[t.group], t);
}

}  // namespace came::core
