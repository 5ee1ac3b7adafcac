// Bad input to the libtorch adapter: each error names the argument, what was given and what was expected, and nothing
// has been written by then.
#include "support.hpp"

namespace torch_test {
namespace {

using came::torch::CAME, came::torch::CAMEOptions;

at::Tensor parameter() { return torch::ones({3, 4}).requires_grad_(); }

// What a step over one parameter says to this gradient.
std::string step_error(const at::Tensor& param, const at::Tensor& grad) {
  CAME optimizer(std::vector<at::Tensor>{param});
  param.mutable_grad() = grad;
  const at::Tensor before = param.detach().clone();
  const std::string message = error_of([&] { optimizer.step(); });
  EXPECT_TRUE(same_bits(param, before));
  EXPECT_TRUE(optimizer.state().empty());
  return message;
}

TEST(TorchInput, SparseAndComplexGradientsAreRefused) {
  EXPECT_EQ(step_error(parameter(), torch::ones({3, 4}).to_sparse()),
            "parameter 0 of group 0: its gradient is sparse, expected a dense one");
  EXPECT_EQ(step_error(torch::ones({3}, at::kComplexFloat).requires_grad_(), torch::ones({3}, at::kComplexFloat)),
            "parameter 0 of group 0: it is ComplexFloat, expected Double, Float, BFloat16 or Half");
  // A plan that exists does not let them in either.
  const at::Tensor p = parameter();
  CAME optimizer(std::vector<at::Tensor>{p});
  p.mutable_grad() = torch::ones({3, 4});
  optimizer.step();
  p.mutable_grad() = torch::ones({3, 4}).to_sparse();
  const at::Tensor before = p.detach().clone();
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "parameter 0 of group 0: its gradient is sparse, expected a dense one");
  EXPECT_TRUE(same_bits(p, before));
}

TEST(TorchInput, StorageThatIsTooSmallIsRefusedBeforeAnythingIsWritten) {
  const at::Tensor p = parameter();
  const at::Tensor q = parameter();
  CAME optimizer(std::vector<at::Tensor>{p, q});
  p.mutable_grad() = torch::ones({3, 4});
  q.mutable_grad() = torch::ones({3, 4});
  optimizer.step();
  auto& state = static_cast<came::torch::ParamState&>(*optimizer.state().at(q.unsafeGetTensorImpl()));
  const at::Tensor before = p.detach().clone();
  const auto shrunk = [&](const at::Tensor& tensor) {
    const size_t bytes = tensor.storage().nbytes();
    tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_nbytes(bytes - 1);
    const std::string message = error_of([&] { optimizer.step(); });
    tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_nbytes(bytes);
    EXPECT_TRUE(same_bits(p, before));
    return message;
  };
  EXPECT_EQ(shrunk(q),
            "parameter 1 of group 0: it has a storage of 47 bytes, expected at least 48 for Float [3, 4] on cpu");
  EXPECT_EQ(
      shrunk(q.grad()),
      "parameter 1 of group 0: its gradient has a storage of 47 bytes, expected at least 48 for Float [3, 4] on cpu");
  EXPECT_EQ(
      shrunk(state.at("exp_avg")),
      "parameter 1 of group 0: state exp_avg has a storage of 47 bytes, expected at least 48 for Float [3, 4] on cpu");
}

TEST(TorchInput, StateThatLacksATensorIsRefusedByName) {
  const at::Tensor p = parameter();
  CAME optimizer(std::vector<at::Tensor>{p});
  p.mutable_grad() = torch::ones({3, 4});
  optimizer.step();
  const at::Tensor before = p.detach().clone();
  auto& state = static_cast<came::torch::ParamState&>(*optimizer.state().at(p.unsafeGetTensorImpl()));
  const auto whole = state.tensors;
  for (size_t k = 0; k < whole.size(); ++k) {
    state.tensors = whole;
    state.tensors.erase(state.tensors.begin() + static_cast<int64_t>(k));
    const std::string message = error_of([&] { optimizer.step(); });
    EXPECT_NE(message.find(whole[k].name), std::string::npos) << message;
    EXPECT_TRUE(same_bits(p, before));
  }
}

TEST(TorchInput, OptionsOutOfRangeAreRefusedByName) {
  const auto made = [](const CAMEOptions& options) {
    return error_of([&] { CAME(std::vector<at::Tensor>{parameter()}, options); });
  };
  EXPECT_NE(made(CAMEOptions(-1)).find("lr is -1, expected"), std::string::npos) << made(CAMEOptions(-1));
  EXPECT_NE(made(CAMEOptions().beta2(1.5)).find("beta2 is 1.5, expected"), std::string::npos)
      << made(CAMEOptions().beta2(1.5));
  // Defaults, too, for groups that are yet to come.
  EXPECT_EQ(error_of([] { CAME(std::vector<OptimizerParamGroup>{}, CAMEOptions(-1)); }), made(CAMEOptions(-1)));
  CAME optimizer(std::vector<at::Tensor>{parameter()});
  const OptimizerParamGroup bad{{parameter()}, std::make_unique<CAMEOptions>(CAMEOptions().weight_decay(-2))};
  const std::string message = error_of([&] { optimizer.add_param_group(bad); });
  EXPECT_NE(message.find("weight_decay is -2, expected"), std::string::npos) << message;
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
  const std::string unknown = error_of([] { CAMEOptions().set("momentum", "1"); });
  EXPECT_NE(unknown.find("momentum"), std::string::npos) << unknown;
  // Set later, they are found by the step.
  const at::Tensor& param = optimizer.param_groups()[0].params()[0];
  param.mutable_grad() = torch::ones({3, 4});
  optimizer.param_groups()[0].options().set_lr(-1);
  const std::string late = error_of([&] { optimizer.step(); });
  EXPECT_NE(late.find("lr"), std::string::npos) << late;
  EXPECT_TRUE(same_bits(param, torch::ones({3, 4})));
}

TEST(TorchInput, GroupsOfOtherOptimizersAreRefused) {
  CAME optimizer(std::vector<at::Tensor>{parameter()});
  EXPECT_EQ(error_of([&] {
              optimizer.add_param_group({{parameter()}, std::make_unique<came::torch::LAMBOptions>()});
            }),
            "group 1: options of lamb, expected those of came");
  EXPECT_EQ(error_of([&] {
              optimizer.add_param_group({{parameter()}, std::make_unique<torch::optim::AdamWOptions>()});
            }),
            "group 1: options of another library, expected those of came");
}

TEST(TorchInput, ParametersThatCannotBeTrainedAreRefused) {
  const at::Tensor p = parameter();
  CAME optimizer(std::vector<at::Tensor>{p});
  EXPECT_EQ(error_of([&] {
              optimizer.add_param_group({{parameter(), p}});
            }),
            "parameter 1 of group 1: given before, expected each parameter once");
  EXPECT_EQ(error_of([&] { optimizer.add_param_group({{p * 2}}); }),
            "parameter 0 of group 1: computed from others, expected a leaf tensor");
  EXPECT_EQ(error_of([&] { optimizer.add_param_group({{at::Tensor()}}); }),
            "parameter 0 of group 1: an undefined tensor, expected a parameter");
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
}

TEST(TorchInput, StateThatNoLongerFitsIsRefusedWithAdvice) {
  const at::Tensor p = parameter();
  CAME optimizer(std::vector<at::Tensor>{p});
  p.mutable_grad() = torch::ones({3, 4});
  optimizer.step();
  static_cast<CAMEOptions&>(optimizer.param_groups()[0].options()).momentum_dtype(DType::bf16);
  const at::Tensor before = p.detach().clone();
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "parameter 0 of group 0: state exp_avg is Float [3, 4] on cpu, expected BFloat16 [3, 4] on cpu: set view, "
            "momentum_dtype and other options that decide the state before the first step, or after state().clear(); a "
            "checkpoint must be of the same parameters in the same order");
  EXPECT_TRUE(same_bits(p, before));
  optimizer.state().clear();
  optimizer.step();
  EXPECT_FALSE(same_bits(p, before));
}

}  // namespace
}  // namespace torch_test
