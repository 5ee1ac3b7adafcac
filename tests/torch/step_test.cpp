// Steps of the libtorch adapter: the bits of the core, whatever else a training loop does.
#include "support.hpp"

namespace torch_test {
namespace {

struct Case {
  std::string name, word;
  Settings settings;
  at::ScalarType dtype = at::kFloat;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& word : all_words()) all.push_back({word, word, {{"lr", "0.002"}}});
  for (const std::string& word : all_words()) {
    all.push_back(
        {word + "_bf16", word, {{"lr", "0.002"}, {"stochastic_rounding", "true"}, {"seed", "7"}}, at::kBFloat16});
  }
  for (const char* dtype : {"bf16", "int8", "int4"}) {
    all.push_back({std::string("came_momentum_") + dtype, "came", {{"lr", "0.002"}, {"momentum_dtype", dtype}}});
  }
  all.push_back({"adamw_int8", "adamw", {{"momentum_dtype", "int8"}, {"second_moment_dtype", "int8"}}});
  all.push_back({"adamw_f64", "adamw", {{"max_grad_norm", "0.5"}, {"weight_decay", "0.1"}}, at::kDouble});
  all.push_back({"came_clipped",
                 "came",
                 {{"max_grad_norm", "0.1"}, {"cautious", "true"}, {"bias_correction", "false"}, {"view", "last_two"}}});
  return all;
}

class TorchBits : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, TorchBits, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(TorchBits, AreThoseOfTheCoreOver100StepsOfAModel) {
  const Case& c = GetParam();
  Model model(1, c.dtype);
  const auto params = model->parameters();
  const auto optimizer = make_optimizer(c.word, {{params}}, c.settings);
  const came::Options options = make_options(c.word, c.settings)->core();
  Twin twin(params, {options}, std::vector<int>(params.size(), 0));
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const double loss = compute_gradients(model, step);
    if (step < 4) first += loss;
    if (step >= 96) last += loss;
    twin.step(params, {options.lr});
    optimizer->step();
  }
  twin.expect_equal(params, *optimizer);
  EXPECT_LT(last, first) << "the model does not learn, so the steps were none of a real model";
  EXPECT_EQ(optimizer->plans_made(), 1);
}

// Both do the same in another order of operations.  With u = 2^-53, per step and element: the momentum carries an error
// of at most 20 u max|g|, since each step adds 2 u and 0.9 forgets; the root of the second moment 150 u of itself, and
// the bias corrections 1000 u, from 1 - 0.999^t.  The second moment is an average with weights of at least 0.9 / 100,
// so that |update| and max|g| / root are below 10.6.  That is less than 1.25e4 u lr per step and side; storing p adds 4
// u |p|.
TEST(TorchAdamW, FollowsTheOneOfLibtorch) {
  constexpr double kRoundoff = 0x1p-53, kRate = 1e-2;
  Model model(2, at::kDouble), other(2, at::kDouble);
  came::torch::AdamW optimizer(model->parameters(), came::torch::AdamWOptions(kRate).weight_decay(0.1));
  torch::optim::AdamW theirs(other->parameters(), torch::optim::AdamWOptions(kRate).weight_decay(0.1));
  const auto mine = model->parameters(), others = other->parameters();
  double largest = 0;
  for (int step = 0; step < 100; ++step) {
    compute_gradients(model, step);
    for (size_t k = 0; k < mine.size(); ++k) others[k].mutable_grad() = mine[k].grad().clone();
    optimizer.step();
    theirs.step();
    for (const at::Tensor& p : mine) largest = std::max(largest, p.abs().max().item<double>());
  }
  const double bound = 100 * kRoundoff * (2 * 1.25e4 * kRate + 4 * largest);
  for (size_t k = 0; k < mine.size(); ++k) {
    EXPECT_LE((mine[k] - others[k]).abs().max().item<double>(), bound) << "parameter " << k;
  }
}

TEST(TorchSteps, ReturnTheLossOfTheClosureAndStepOnItsGradients) {
  Model model, same;
  came::torch::CAME optimizer(model->parameters()), plain(same->parameters());
  const double loss = compute_gradients(same, 0);
  plain.step();
  const torch::NoGradGuard outside;  // The closure needs gradients all the same.
  const at::Tensor returned = optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor value = model->loss(0);
    value.backward();
    return value;
  });
  EXPECT_EQ(returned.item<double>(), loss);
  for (size_t k = 0; k < model->parameters().size(); ++k) {
    EXPECT_TRUE(same_bits(model->parameters()[k], same->parameters()[k])) << k;
  }
  EXPECT_FALSE(optimizer.step().defined());
}

TEST(TorchSteps, PassOverParametersWithoutGradient) {
  for (const std::string& word : all_words()) {
    SCOPED_TRACE(word);
    Model model;
    const auto params = model->parameters();
    const auto optimizer = make_optimizer(word, {{params}}, {});
    optimizer->step();  // No gradients at all: nothing happens.
    EXPECT_TRUE(optimizer->state().empty());
    const came::Options options = make_options(word, {})->core();
    Twin twin(params, {options}, std::vector<int>(params.size(), 0));
    const auto train = [&](int batch, std::vector<size_t> without) {
      compute_gradients(model, batch);
      for (const size_t k : without) params[k].mutable_grad().reset();
      twin.step(params, {options.lr});
      optimizer->step();
    };
    train(0, {0, 3});
    EXPECT_EQ(optimizer->state().count(params[0].unsafeGetTensorImpl()), 0U);
    train(1, {3});
    train(2, {0, 1, 3});
    train(3, {});
    twin.expect_equal(params, *optimizer);
  }
}

TEST(TorchSteps, RaiseVersionCountersOfWhatTheyWrite) {
  Model model;
  const auto params = model->parameters();
  came::torch::SM3 optimizer(params);
  compute_gradients(model, 0);
  optimizer.step();
  params[1].mutable_grad().reset();
  const auto before = params[0]._version(), idle = params[1]._version();
  optimizer.step();
  EXPECT_GT(params[0]._version(), before);
  EXPECT_EQ(params[1]._version(), idle);
  // So that autograd notices a graph whose inputs have changed.
  const at::Tensor loss = (params[0] * params[0]).sum();
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(TorchSteps, TakeParametersAndGradientsOfAnyStrides) {
  for (const std::string& word : all_words()) {
    SCOPED_TRACE(word);
    torch::manual_seed(3);
    const at::Tensor data = torch::randn({5, 7});
    const at::Tensor plain = data.clone().requires_grad_();
    const at::Tensor strided = torch::empty({7, 5}).t().copy_(data).requires_grad_();
    const at::Tensor strided_grad = data.clone().requires_grad_();
    ASSERT_FALSE(strided.is_contiguous());
    std::vector<std::unique_ptr<came::torch::Optimizer>> optimizers;
    for (const at::Tensor& p : {plain, strided, strided_grad}) optimizers.push_back(make_optimizer(word, {{{p}}}, {}));
    for (int step = 0; step < 5; ++step) {
      const at::Tensor grad = torch::randn({5, 7});
      plain.mutable_grad() = grad;
      strided.mutable_grad() = grad.clone();
      strided_grad.mutable_grad() = grad.t().contiguous().t();
      ASSERT_FALSE(strided_grad.grad().is_contiguous());
      for (const auto& optimizer : optimizers) optimizer->step();
    }
    EXPECT_TRUE(same_bits(plain, strided));
    EXPECT_TRUE(same_bits(plain, strided_grad));
    EXPECT_FALSE(strided.is_contiguous()) << "the parameter itself must not move";
  }
}

TEST(TorchSteps, LeaveParametersAndStateAtTheirAddresses) {
  // No copies: parameters and state stay at their addresses.
  Model model;
  came::torch::CAME optimizer(model->parameters());
  const auto addresses = [&] {
    std::vector<void*> all;
    for (const at::Tensor& p : model->parameters()) {
      all.push_back(p.data_ptr());
      const auto found = optimizer.state().find(p.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      for (const auto& entry : static_cast<came::torch::ParamState&>(*found->second).tensors) {
        all.push_back(entry.tensor.data_ptr());
      }
    }
    return all;
  };
  compute_gradients(model, 0);
  optimizer.step();
  const auto before = addresses();
  for (int step = 1; step < 4; ++step) {
    compute_gradients(model, step);
    optimizer.step();
  }
  EXPECT_EQ(addresses(), before);
  EXPECT_EQ(optimizer.plans_made(), 1);
}

TEST(TorchSteps, MakeAPlanAnewOnlyWhenSomethingItKnowsChanges) {
  Model model;
  const auto params = model->parameters();
  came::torch::CAME optimizer(params);
  auto& options = static_cast<came::torch::CAMEOptions&>(optimizer.param_groups()[0].options());
  const auto plans_after = [&](int batch) {
    compute_gradients(model, batch);
    optimizer.step();
    return optimizer.plans_made();
  };
  EXPECT_EQ(plans_after(0), 1);
  options.lr(1e-4);
  EXPECT_EQ(plans_after(1), 1) << "the rate is no part of a plan";
  options.weight_decay(0.1).betas({0.8, 0.99, 0.999});
  EXPECT_EQ(plans_after(2), 1) << "what decides no plan";
  options.cautious(true);
  EXPECT_EQ(plans_after(2), 2);
  const at::Tensor more = torch::randn({4, 3}).requires_grad_();
  optimizer.add_param_group({{more}});
  EXPECT_EQ(plans_after(3), 3) << "another group";
  more.mutable_grad() = torch::randn({4, 3});
  optimizer.step();
  EXPECT_EQ(optimizer.plans_made(), 4) << "its first gradient";
  more.mutable_grad().reset();
  optimizer.step();
  EXPECT_EQ(optimizer.plans_made(), 4) << "a missing gradient is no reason";
}

}  // namespace
}  // namespace torch_test
