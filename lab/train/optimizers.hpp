// Optimizers by name: those of the library with all their options, and libtorch's own AdamW to compare with.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lab {

/// Those of the library by their names there, and "torch-adamw".
[[nodiscard]] const std::vector<std::string>& optimizer_names();
/// A learning rate to begin with on small models; throws an Error that lists the names for another one.
[[nodiscard]] double default_rate(const std::string& optimizer);

/// An optimizer of all parameters of a module; options by their names in came_options as text.  Weight decay leaves out
/// what is no matrix: biases and norms.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, double lr,
                                                                      const std::map<std::string, std::string>& options,
                                                                      torch::nn::Module& module);

/// One tensor of an optimizer's state, or a counter.
struct StateEntry {
  std::string name;   ///< Of the parameter, then the word of the state: "wte.weight/exp_avg".
  at::Tensor tensor;  ///< A counter: int64 with no dimensions on the CPU.
};

/// The state of all parameters of a module, in their order; parameters without a step so far have none.
[[nodiscard]] std::vector<StateEntry> state_of(const torch::optim::Optimizer& optimizer,
                                               const torch::nn::Module& module);
/// Puts back what state_of gave after so many steps, to the parameters' devices.  Throws an Error that names the entry,
/// and changes nothing, unless all of the state is there, nothing else, and of the right shapes and dtypes.
void set_state(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
               const std::vector<StateEntry>& entries, int64_t steps);
/// Bytes of all state tensors.
[[nodiscard]] int64_t state_bytes(const torch::optim::Optimizer& optimizer);

}  // namespace lab
