// A node of the graph that stands for a whole layer.
#include "models/checkpoint.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <memory>
#include <mutex>
#include <utility>

#include "models/precision.hpp"

namespace lab {
namespace {

using torch::autograd::AutogradContext;

// The states of the generators that a layer on `device` may draw from.
class RandomState {
 public:
  explicit RandomState(at::Device device) {
    generators_.push_back(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) generators_.push_back(at::globalContext().defaultGenerator(device));
    for (at::Generator& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }

  void restore() {
    for (size_t k = 0; k < generators_.size(); ++k) {
      const std::lock_guard lock(generators_[k].mutex());
      generators_[k].set_state(states_[k]);
    }
  }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

// What forward leaves for backward besides tensors.
struct Recipe : torch::CustomClassHolder {
  Recipe(Layer run, size_t count, at::Device device) : layer(std::move(run)), inputs(count), random(device) {}

  Layer layer;
  size_t inputs;
  RandomState random;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  // `tensors`: the inputs, then the parameters.
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<Recipe>& recipe, at::TensorList tensors) {
    ctx->saved_data["recipe"] = c10::IValue::make_capsule(recipe);
    ctx->save_for_backward(tensors.vec());
    return recipe->layer({tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(recipe->inputs)});
  }

  static torch::autograd::variable_list backward(AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    auto recipe = c10::static_intrusive_pointer_cast<Recipe>(ctx->saved_data["recipe"].toCapsule());
    std::vector<at::Tensor> tensors = ctx->get_saved_variables(), wanted;
    std::vector<size_t> places;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const bool learns = tensors[k].requires_grad();
      // Inputs are cut off from the graph before the layer; parameters are its leaves already.
      if (k < recipe->inputs) tensors[k] = tensors[k].detach().requires_grad_(learns);
      if (!learns) continue;
      wanted.push_back(tensors[k]);
      places.push_back(k);
    }
    RandomState now(grads[0].device());
    recipe->random.restore();
    at::Tensor output;
    {
      const at::AutoGradMode learn(true);
      const NoAutocast explicit_formats(grads[0].device().type());
      output = recipe->layer({tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(recipe->inputs)});
    }
    now.restore();
    const auto found = torch::autograd::grad({output}, wanted, {grads[0]});
    // The recipe itself has no gradient.
    torch::autograd::variable_list result(1 + tensors.size());
    for (size_t k = 0; k < places.size(); ++k) result[1 + places[k]] = found[k];
    return result;
  }
};

}  // namespace

at::Tensor checkpointed(const Layer& layer, const std::vector<at::Tensor>& inputs,
                        const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  const auto recipe = c10::make_intrusive<Recipe>(layer, inputs.size(), inputs[0].device());
  return Checkpoint::apply(recipe, at::TensorList(tensors));
}

at::Tensor run_layer(const ModelConfig& config, const Layer& layer, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters) {
  const bool keeps_little = config.activation_checkpoints && at::GradMode::is_enabled();
  return keeps_little ? checkpointed(layer, inputs, parameters) : layer(inputs);
}

}  // namespace lab
