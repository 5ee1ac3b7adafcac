// Optimizers by name: all of the library's, with their options; they learn, and go on from their state.
#include "train/optimizers.hpp"

#include <came/came.hpp>
#include <came/torch.hpp>

#include "error.hpp"
#include "support.hpp"
#include "train/step.hpp"

namespace lab_test {
namespace {

using lab::make_optimizer, lab::optimizer_names, lab::state_bytes, lab::StateEntry;

TEST(LabOptimizer, NamesAreThoseOfTheLibraryAndLibtorchsAdamW) {
  std::vector<std::string> names;
  for (came_algorithm k = 0; came_algorithm_name(k) != nullptr; ++k) names.emplace_back(came_algorithm_name(k));
  ASSERT_FALSE(names.empty());
  names.emplace_back("torch-adamw");
  EXPECT_EQ(optimizer_names(), names);
}

class LabOptimizers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, LabOptimizers, testing::ValuesIn(optimizer_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

double take_steps(Model& model, torch::optim::Optimizer& optimizer, const TrainConfig& config, int64_t first,
                  int64_t last) {
  double loss = 0;
  for (int64_t step = first; step <= last; ++step)
    loss = lab::take_step(model, optimizer, Counting(), config, step, c10::kCPU, false).loss.item<double>();
  return loss;
}

TEST_P(LabOptimizers, LearnAndGoOnFromTheirState) {
  const TrainConfig config = small_config(GetParam());
  const auto model = fresh_model(config), resumed = fresh_model(config);
  const auto optimizer = make_optimizer(config.optimizer, config.lr, {}, *model);
  const double first = take_steps(*model, *optimizer, config, 1, 1);
  take_steps(*model, *optimizer, config, 2, 10);

  const auto other = make_optimizer(config.optimizer, config.lr, {}, *resumed);
  {
    const at::NoGradGuard no_grad;
    for (size_t k = 0; k < model->parameters().size(); ++k) resumed->parameters()[k].copy_(model->parameters()[k]);
  }
  std::vector<StateEntry> copies = state_of(*optimizer, *model);
  for (StateEntry& entry : copies) entry.tensor = entry.tensor.clone();
  std::reverse(copies.begin(), copies.end());  // files have an order of their own
  set_state(*other, *resumed, copies, 10);
  EXPECT_EQ(state_bytes(*other), state_bytes(*optimizer));

  const double last = take_steps(*model, *optimizer, config, 11, 60);
  EXPECT_LT(last, first - 0.3);
  EXPECT_EQ(take_steps(*resumed, *other, config, 11, 60), last);
  for (size_t k = 0; k < model->parameters().size(); ++k)
    EXPECT_TRUE(at::equal(model->parameters()[k], resumed->parameters()[k])) << k;
}

TEST_P(LabOptimizers, MoveAtTheRateTheyWereGiven) {
  const TrainConfig config = small_config(GetParam());
  const auto moved_by = [&](double rate) {
    const auto model = fresh_model(config);
    const auto optimizer = make_optimizer(GetParam(), 1, {}, *model);
    const at::Tensor parameter = model->parameters()[0];
    const at::Tensor before = parameter.detach().clone();
    for (const at::Tensor& each : model->parameters()) each.mutable_grad() = at::ones_like(each);
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate);
    optimizer->step();
    return (parameter - before).norm().item<double>();
  };
  // Parameters of 0.02 or so carry roundings of at most 2^-29, steps of 2^-10 and more: 2^-18 of a step.
  EXPECT_EQ(moved_by(0), 0);
  const double once = moved_by(0x1p-6);
  ASSERT_GT(once, 0);
  EXPECT_NEAR(moved_by(0x1p-5), 2 * once, 0x1p-16 * once);
}

// Without a gradient, decay alone moves a parameter.
TEST_P(LabOptimizers, DecayMatricesAndNoVectors) {
  const TrainConfig config = small_config(GetParam());
  for (const char* decay : {"0", "0.5"}) {
    const auto model = fresh_model(config);
    const auto optimizer = make_optimizer(GetParam(), 1e-3, {{"weight_decay", decay}}, *model);
    std::vector<at::Tensor> before;
    for (const at::Tensor& parameter : model->parameters()) {
      const at::NoGradGuard no_grad;
      if (parameter.dim() < 2) parameter.fill_(0.5);  // biases of 0 would not decay
      parameter.mutable_grad() = at::zeros_like(parameter);
      before.push_back(parameter.detach().clone());
    }
    optimizer->step();
    const bool decays = std::string(decay) != "0";
    for (size_t k = 0; k < before.size(); ++k) {
      const at::Tensor parameter = model->parameters()[k];
      if (!decays || parameter.dim() < 2) {
        EXPECT_TRUE(at::equal(parameter, before[k])) << "parameter " << k << " with decay " << decay;
      } else {
        EXPECT_LT(parameter.norm().item<double>(), before[k].norm().item<double>()) << "parameter " << k;
      }
    }
  }
}

TEST(LabOptimizer, TakesOptionsByName) {
  const auto model = fresh_model(small_config("came"));
  const auto optimizer = make_optimizer("came", 1e-3, {{"weight_decay", "0.5"}, {"beta3", "0.75"}}, *model);
  ASSERT_EQ(optimizer->param_groups().size(), 2U);
  for (const size_t group : {0, 1}) {
    const auto& options = dynamic_cast<came::torch::Options&>(optimizer->param_groups()[group].options()).core();
    EXPECT_EQ(options.lr, 1e-3);
    EXPECT_EQ(options.beta3, 0.75);
    EXPECT_EQ(options.weight_decay, group == 0 ? 0.5 : 0);
    for (const at::Tensor& parameter : optimizer->param_groups()[group].params()) {
      EXPECT_EQ(parameter.dim() > 1, group == 0);
    }
  }
}

TEST(LabOptimizer, RefusesUnknownOptionsByName) {
  const auto model = fresh_model(small_config("came"));
  for (const char* name : {"came", "torch-adamw"}) {
    try {
      (void)make_optimizer(name, 1e-3, {{"beta7", "0.5"}}, *model);
      FAIL() << name;
    } catch (const lab::Error& error) {
      EXPECT_NE(std::string(error.what()).find("beta7"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lab_test
