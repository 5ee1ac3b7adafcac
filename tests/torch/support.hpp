// What the tests of the libtorch adapter share: a small model that learns, optimizers by their word, and a twin that
// takes the same steps through the core alone.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <came/came.hpp>
#include <came/torch.hpp>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

// Outside of came, where `torch` would be came::torch.
namespace torch_test {

using came::DType, came::Error, came::Plan, came::StateSpec, came::Step, came::TensorSpec, came::TensorView;
using Settings = std::vector<std::pair<std::string, std::string>>;
using torch::optim::OptimizerParamGroup;

inline const std::vector<std::string>& all_words() {
  static const std::vector<std::string> words = came::algorithm_words();
  return words;
}

/// Options of the optimizer with this word.
template <class OptionsType>
std::unique_ptr<came::torch::Options> make_options_of(const Settings& settings) {
  auto options = std::make_unique<OptionsType>();
  for (const auto& [name, value] : settings) options->set(name, value);
  return options;
}
std::unique_ptr<came::torch::Options> make_options(const std::string& word, const Settings& settings);

/// The optimizer with this word.
std::unique_ptr<came::torch::Optimizer> make_optimizer(const std::string& word,
                                                       const std::vector<OptimizerParamGroup>& groups,
                                                       const Settings& settings);

/// A convolution, a block of attention and a head: parameters of 4, 2, 1 and 0 dimensions.
struct ModelImpl : torch::nn::Module {
  explicit ModelImpl(uint64_t seed = 1, at::ScalarType dtype = at::kFloat);
  at::Tensor forward(at::Tensor images);
  /// The loss on batch `k` of a fixed set of random images.
  at::Tensor loss(int k);

  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  at::Tensor gain, images_, labels_;
};
TORCH_MODULE(Model);

/// Clears gradients and computes those of batch `k`; returns the loss.
double compute_gradients(Model& model, int k);

/// Whether two tensors have the same dtype, shape and bits.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// The message of the came::Error that `act` throws; a failure if it throws none.
template <class Act>
std::string error_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no came::Error was thrown";
  return "";
}

/// The same steps through came::Plan, on copies of the parameters and state of its own.
class Twin {
 public:
  /// Copies the parameters; `groups` says which options each has.
  Twin(const std::vector<at::Tensor>& params, const std::vector<came::Options>& options,
       const std::vector<int>& groups);
  /// One step with the gradients that `params` have now; rates as in `options` unless given.
  void step(const std::vector<at::Tensor>& params, const std::vector<double>& rates);
  /// Fails the test unless parameters, state and counters of the optimizer have the same bits.
  void expect_equal(const std::vector<at::Tensor>& params, const came::torch::Optimizer& optimizer) const;

 private:
  std::vector<at::Tensor> params_;
  std::unique_ptr<Plan> plan_;
  std::vector<StateSpec> specs_;
  std::vector<std::vector<uint64_t>> states_;
  std::vector<int64_t> steps_;
  std::vector<double> workspace_, reductions_;
};

}  // namespace torch_test
