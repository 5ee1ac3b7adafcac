// How a name becomes an optimizer, and one way into the state of both libraries' optimizers.
#include "train/optimizers.hpp"

#include <torch/optim/adamw.h>

#include <algorithm>
#include <came/plan.hpp>
#include <came/torch/optimizer.hpp>
#include <charconv>
#include <utility>

#include "error.hpp"

namespace lab {
namespace {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using OptionTexts = std::map<std::string, std::string>;

constexpr const char* kOfLibtorch = "torch-adamw";

// Matrices with the options as given, the rest without weight decay.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> with_two_groups(std::vector<at::Tensor> matrices,
                                                         std::vector<at::Tensor> others, const Options& options) {
  Options undecayed = options;
  undecayed.weight_decay(0);
  Groups groups;
  groups.emplace_back(std::move(matrices), std::make_unique<Options>(options));
  if (!others.empty()) groups.emplace_back(std::move(others), std::make_unique<Options>(undecayed));
  return std::make_unique<Optimizer>(groups, options);
}

// Options of any optimizer of the library, chosen while the program runs.
class LibraryOptions final : public came::torch::Options {
 public:
  LibraryOptions(const std::string& name, double lr) : Options(algorithm_of(name)) { set_lr(lr); }
  void weight_decay(double value) { give(&came_options::weight_decay, value); }
  [[nodiscard]] std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    auto copy = std::make_unique<LibraryOptions>(*this);
    copy->note_clone();
    return copy;
  }

 private:
  static came::Algorithm algorithm_of(const std::string& name) {
    return static_cast<came::Algorithm>(came::Options(name).algorithm);
  }
};

struct LibraryOptimizer final : came::torch::Optimizer {
  LibraryOptimizer(const Groups& groups, const LibraryOptions& defaults)
      : Optimizer(groups, std::make_unique<LibraryOptions>(defaults)) {}
};

std::unique_ptr<torch::optim::Optimizer> of_the_library(const std::string& name, std::vector<at::Tensor> matrices,
                                                        std::vector<at::Tensor> others, double lr,
                                                        const OptionTexts& texts) {
  LibraryOptions options(name, lr);
  try {
    for (const auto& [option, value] : texts) options.set(option, value);
    options.validate();
  } catch (const came::Error& error) {
    fail("optimizer options: {}", error.what());
  }
  return with_two_groups<LibraryOptimizer>(std::move(matrices), std::move(others), options);
}

constexpr double kBelowOne = 1 - 0x1p-53;
constexpr double kMost = 1e30;  // far inside of f32

// A number from 0 to `most`.
double number(const std::string& name, const std::string& text, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail("optimizer options: {} is \"{}\", expected a number", name, text);
  if (!(value >= 0 && value <= most)) {
    fail("optimizer options: {} is {}, expected {}", name, text,
         most < 1 ? "at least 0 and less than 1" : fmt::format("from 0 to {:g}", most));
  }
  return value;
}

std::unique_ptr<torch::optim::Optimizer> of_libtorch(std::vector<at::Tensor> matrices, std::vector<at::Tensor> others,
                                                     double lr, const OptionTexts& texts) {
  torch::optim::AdamWOptions options(lr);
  for (const auto& [name, text] : texts) {
    if (name == "beta1") {
      options.betas({number(name, text, kBelowOne), std::get<1>(options.betas())});
    } else if (name == "beta2") {
      options.betas({std::get<0>(options.betas()), number(name, text, kBelowOne)});
    } else if (name == "eps") {
      options.eps(number(name, text, kMost));
    } else if (name == "weight_decay") {
      options.weight_decay(number(name, text, kMost));
    } else {
      fail("optimizer options: {} has no {}; it has beta1, beta2, eps, weight_decay", kOfLibtorch, name);
    }
  }
  return with_two_groups<torch::optim::AdamW>(std::move(matrices), std::move(others), options);
}

void expect_known(const std::string& name) {
  const auto& names = optimizer_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail("no optimizer {}; there are {}", name, fmt::join(names, ", "));
}

// Calls visit(name, tensor) for each tensor of one parameter's state; returns its counter.
template <class Visit>
int64_t visit_state(const torch::optim::OptimizerParamState& state, Visit&& visit) {
  if (const auto* ours = dynamic_cast<const came::torch::ParamState*>(&state)) {
    for (const auto& [name, tensor] : ours->tensors) visit(name, tensor);
    return ours->step;
  }
  const auto& theirs = dynamic_cast<const torch::optim::AdamWParamState&>(state);
  visit("exp_avg", theirs.exp_avg());
  visit("exp_avg_sq", theirs.exp_avg_sq());
  return theirs.step();
}

using Entries = std::map<std::string, at::Tensor>;

// Takes an entry out; throws an Error that names it where it is missing or another one.
at::Tensor take(Entries& entries, const std::string& name, at::ScalarType dtype, at::IntArrayRef shape) {
  const auto found = entries.find(name);
  if (found == entries.end()) fail("{} is missing", name);
  at::Tensor tensor = std::move(found->second);
  entries.erase(found);
  if (tensor.scalar_type() != dtype || tensor.sizes() != shape) {
    fail("{} is {} [{}], expected {} [{}]", name, at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
         at::toString(dtype), fmt::join(shape, ", "));
  }
  return tensor;
}

// What the library knows of the group that a parameter is in; null for an optimizer of libtorch's own.
const came::Options* options_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& other : group.params()) {
      if (!other.is_same(parameter)) continue;
      const auto* options = dynamic_cast<const came::torch::Options*>(&group.options());
      return options == nullptr ? nullptr : &options->core();
    }
  }
  return nullptr;
}

// libtorch's name for what the library stores state in.
at::ScalarType torch_dtype(came::DType dtype) {
  switch (dtype) {
    case came::DType::f64:
      return at::kDouble;
    case came::DType::f32:
      return at::kFloat;
    case came::DType::bf16:
      return at::kBFloat16;
    case came::DType::f16:
      return at::kHalf;
    case came::DType::i64:
      return at::kLong;
    case came::DType::i8:
      return at::kChar;
    default:
      return at::kByte;
  }
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (came_algorithm k = 0; came_algorithm_name(k) != nullptr; ++k) made.emplace_back(came_algorithm_name(k));
    made.emplace_back(kOfLibtorch);
    return made;
  }();
  return names;
}

double default_rate(const std::string& optimizer) {
  // The best of a coarse search on models of a million parameters.
  static const std::map<std::string, double> searched = {{"adafactor", 2e-3}, {"adam", 2e-3}, {"adamw", 2e-3},
                                                         {"lamb", 1e-2},      {"sm3", 2e-2},  {kOfLibtorch, 2e-3}};
  expect_known(optimizer);
  const auto found = searched.find(optimizer);
  return found != searched.end() ? found->second : came::Options(optimizer).lr;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, double lr, const OptionTexts& options,
                                                        torch::nn::Module& module) {
  expect_known(name);
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& parameter : module.parameters())
    (parameter.dim() > 1 ? matrices : others).push_back(parameter);
  if (name == kOfLibtorch) return of_libtorch(std::move(matrices), std::move(others), lr, options);
  return of_the_library(name, std::move(matrices), std::move(others), lr, options);
}

std::vector<StateEntry> state_of(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  std::vector<StateEntry> entries;
  for (const auto& parameter : module.named_parameters()) {
    const auto found = optimizer.state().find(parameter.value().unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const int64_t step = visit_state(*found->second, [&](const std::string& name, const at::Tensor& tensor) {
      entries.push_back({parameter.key() + "/" + name, tensor});
    });
    entries.push_back({parameter.key() + "/step", at::scalar_tensor(step, at::kLong)});
  }
  return entries;
}

void set_state(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
               const std::vector<StateEntry>& entries, int64_t steps) {
  Entries given;
  for (const StateEntry& entry : entries) {
    if (!given.emplace(entry.name, entry.tensor).second) fail("{} is there twice", entry.name);
  }
  std::remove_cvref_t<decltype(optimizer.state())> states;
  // Every parameter has a gradient at every step.
  for (const auto& parameter : module.named_parameters()) {
    if (steps == 0) break;
    const std::string owner = parameter.key() + "/";
    const auto count = take(given, owner + "step", at::kLong, {}).item<int64_t>();
    if (count < 1 || count > steps) fail("{}step is {}, expected 1 to {}", owner, count, steps);
    const auto tensor = [&](const std::string& name, at::ScalarType dtype, at::IntArrayRef shape) {
      return take(given, owner + name, dtype, shape).to(parameter.value().device());
    };
    auto& state = states[parameter.value().unsafeGetTensorImpl()];
    if (const came::Options* options = options_of(optimizer, parameter.value())) {
      auto filled = std::make_unique<came::torch::ParamState>();
      filled->step = count;
      came::TensorSpec whole;
      whole.name = parameter.key();
      whole.shape = parameter.value().sizes().vec();
      for (const came::StateSpec& spec : came::layout(*options, whole))
        filled->tensors.push_back({spec.name, tensor(spec.name, torch_dtype(spec.dtype), spec.shape)});
      state = std::move(filled);
    } else {
      auto filled = std::make_unique<torch::optim::AdamWParamState>();
      filled->step(count);
      filled->exp_avg(tensor("exp_avg", at::kFloat, parameter.value().sizes()));
      filled->exp_avg_sq(tensor("exp_avg_sq", at::kFloat, parameter.value().sizes()));
      state = std::move(filled);
    }
  }
  if (!given.empty()) fail("{} is no state of this model and optimizer after {} steps", given.begin()->first, steps);
  optimizer.state() = std::move(states);
}

int64_t state_bytes(const torch::optim::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& [parameter, state] : optimizer.state()) {
    visit_state(*state, [&](const std::string&, const at::Tensor& tensor) {
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    });
  }
  return bytes;
}

}  // namespace lab
