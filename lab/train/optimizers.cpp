// Which class a name stands for, and one way into the state of both libraries' optimizers.
#include "train/optimizers.hpp"

#include <torch/optim/adamw.h>

#include <came/torch/optimizers.hpp>
#include <charconv>
#include <functional>
#include <utility>

#include "error.hpp"

namespace lab {
namespace {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using OptionTexts = std::map<std::string, std::string>;

struct Named {
  const char* name;
  double rate;  // the best of a coarse search on models of a million parameters
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<at::Tensor> matrices, std::vector<at::Tensor> others, double lr, const OptionTexts& options)>
      make;
};

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

template <class Options>
auto of_the_library() {
  return [](std::vector<at::Tensor> matrices, std::vector<at::Tensor> others, double lr, const OptionTexts& texts) {
    Options options(lr);
    try {
      for (const auto& [name, value] : texts) options.set(name, value);
      options.validate();
    } catch (const came::Error& error) {
      fail("optimizer options: {}", error.what());
    }
    return with_two_groups<came::torch::OptimizerOf<Options>>(std::move(matrices), std::move(others), options);
  };
}

double number(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail("optimizer options: {} is \"{}\", expected a number", name, text);
  return value;
}

std::unique_ptr<torch::optim::Optimizer> of_libtorch(std::vector<at::Tensor> matrices, std::vector<at::Tensor> others,
                                                     double lr, const OptionTexts& texts) {
  torch::optim::AdamWOptions options(lr);
  for (const auto& [name, text] : texts) {
    const double value = number(name, text);
    if (name == "beta1") {
      options.betas({value, std::get<1>(options.betas())});
    } else if (name == "beta2") {
      options.betas({std::get<0>(options.betas()), value});
    } else if (name == "eps") {
      options.eps(value);
    } else if (name == "weight_decay") {
      options.weight_decay(value);
    } else {
      fail("optimizer options: torch-adamw has no {}; it has beta1, beta2, eps, weight_decay", name);
    }
  }
  return with_two_groups<torch::optim::AdamW>(std::move(matrices), std::move(others), options);
}

const std::vector<Named>& table() {
  static const std::vector<Named> all = {
      {"came", 5e-4, of_the_library<came::torch::CAMEOptions>()},
      {"adafactor", 2e-3, of_the_library<came::torch::AdafactorOptions>()},
      {"adam", 2e-3, of_the_library<came::torch::AdamOptions>()},
      {"adamw", 2e-3, of_the_library<came::torch::AdamWOptions>()},
      {"lamb", 1e-2, of_the_library<came::torch::LAMBOptions>()},
      {"sm3", 2e-2, of_the_library<came::torch::SM3Options>()},
      {"torch-adamw", 2e-3, of_libtorch},
  };
  return all;
}

const Named& find(const std::string& name) {
  for (const Named& entry : table()) {
    if (name == entry.name) return entry;
  }
  fail("no optimizer {}; there are {}", name, fmt::join(optimizer_names(), ", "));
}

// Calls visit(word, tensor) for each tensor of one parameter's state.
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

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const Named& entry : table()) made.emplace_back(entry.name);
    return made;
  }();
  return names;
}

double default_rate(const std::string& optimizer) { return find(optimizer).rate; }

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, double lr, const OptionTexts& options,
                                                        torch::nn::Module& module) {
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& parameter : module.parameters())
    (parameter.dim() > 1 ? matrices : others).push_back(parameter);
  return find(name).make(std::move(matrices), std::move(others), lr, options);
}

std::vector<StateEntry> state_of(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  std::vector<StateEntry> entries;
  for (const auto& parameter : module.named_parameters()) {
    const auto found = optimizer.state().find(parameter.value().unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const int64_t step = visit_state(*found->second, [&](const std::string& word, const at::Tensor& tensor) {
      entries.push_back({parameter.key() + "/" + word, tensor});
    });
    entries.push_back({parameter.key() + "/step", at::scalar_tensor(step, at::kLong)});
  }
  return entries;
}

void set_state(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
               const std::vector<StateEntry>& entries) {
  const auto parameters = module.named_parameters();
  const bool ours = dynamic_cast<came::torch::Optimizer*>(&optimizer) != nullptr;
  for (const StateEntry& entry : entries) {
    const size_t slash = entry.name.rfind('/');
    const std::string owner = entry.name.substr(0, slash), word = entry.name.substr(slash + 1);
    const at::Tensor* parameter = parameters.find(owner);
    if (slash == std::string::npos || parameter == nullptr)
      fail("state of {}, which the model does not have; take the checkpoint of this model", entry.name);
    auto& state = optimizer.state()[parameter->unsafeGetTensorImpl()];
    if (ours) {
      if (!state) state = std::make_unique<came::torch::ParamState>();
      auto& filled = static_cast<came::torch::ParamState&>(*state);
      if (word == "step") {
        filled.step = entry.tensor.item<int64_t>();
      } else {
        filled.tensors.push_back({word, entry.tensor.to(parameter->device())});
      }
    } else {
      if (!state) state = std::make_unique<torch::optim::AdamWParamState>();
      auto& filled = static_cast<torch::optim::AdamWParamState&>(*state);
      if (word == "step") {
        filled.step(entry.tensor.item<int64_t>());
      } else if (word == "exp_avg") {
        filled.exp_avg(entry.tensor.to(parameter->device()));
      } else if (word == "exp_avg_sq") {
        filled.exp_avg_sq(entry.tensor.to(parameter->device()));
      } else {
        fail("state {}, which torch-adamw does not have; take a checkpoint of torch-adamw", entry.name);
      }
    }
  }
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
