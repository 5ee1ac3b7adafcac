// Steps: pieces of a batch make the step of the whole; optimizers by name keep their state through files.
#include "train/step.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <came/torch.hpp>

#include "error.hpp"
#include "train/evaluate.hpp"
#include "train/optimizers.hpp"

namespace lab {
namespace {

constexpr int64_t kVocabulary = 300;

// Sequences that count up from a number of their own: something to learn.
class Counting : public Batches {
 public:
  bool uneven = false;

  [[nodiscard]] Batch batch(int64_t first, int64_t count) const override {
    const at::Tensor starts = at::arange(first, first + count).mul(37).unsqueeze(1);
    const at::Tensor tokens = (starts + at::arange(17)).remainder(kVocabulary);
    Batch made;
    made.input = tokens.slice(1, 0, 16).contiguous();
    made.targets = tokens.slice(1, 1, 17).flatten();
    if (!uneven) return made;
    // The later a sequence, the more of its tokens are asked for.
    std::vector<int64_t> positions;
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t t = 0; t <= (first + k) % 16; ++t) positions.push_back(k * 16 + t);
    }
    made.positions = at::tensor(positions, at::kLong);
    made.targets = made.targets.index_select(0, made.positions);
    return made;
  }
  [[nodiscard]] int64_t pass() const override { return kVocabulary; }
};

TrainConfig small_config(const std::string& optimizer) {
  TrainConfig config;
  config.model = "gpt2-tiny";
  config.length = 16;
  config.batch = 8;
  config.steps = 60;
  config.warmup = 10;
  config.optimizer = optimizer;
  resolve_config(config);
  return config;
}

std::shared_ptr<Model> fresh_model(const TrainConfig& config) {
  torch::manual_seed(3);
  auto model = make_model(config.model_config(kVocabulary));
  model->initialize();
  model->train();
  return model;
}

double take_steps(Model& model, torch::optim::Optimizer& optimizer, const TrainConfig& config, int64_t first,
                  int64_t last, const Counting& batches = {}) {
  StepResult result;
  for (int64_t step = first; step <= last; ++step)
    result = take_step(model, optimizer, batches, config, step, c10::kCPU, false);
  return result.loss.item<double>();
}

TEST(LabStep, PiecesOfABatchGiveTheGradientOfTheWhole) {
  TrainConfig config = small_config("torch-adamw");
  const auto whole = fresh_model(config), parts = fresh_model(config);
  const auto a = make_optimizer(config.optimizer, config.lr, {}, *whole);
  const auto b = make_optimizer(config.optimizer, config.lr, {}, *parts);
  Counting uneven;  // a mean of means would be another number
  uneven.uneven = true;
  const double loss = take_steps(*whole, *a, config, 1, 1, uneven);
  config.micro_batch = 2;
  EXPECT_NEAR(take_steps(*parts, *b, config, 1, 1, uneven), loss, 1e-5);
  for (size_t k = 0; k < whole->parameters().size(); ++k) {
    const at::Tensor want = whole->parameters()[k].grad(), got = parts->parameters()[k].grad();
    // Sums in another order: some ulps of the largest element.
    EXPECT_LE((want - got).abs().max().item<double>(), 1e-5 * want.abs().max().item<double>() + 1e-9) << k;
  }
}

TEST(LabStep, ClippingBoundsTheNorm) {
  TrainConfig config = small_config("torch-adamw");
  config.clip = 1e-2;
  const auto model = fresh_model(config);
  const auto optimizer = make_optimizer(config.optimizer, config.lr, {}, *model);
  const StepResult result = take_step(*model, *optimizer, Counting(), config, 1, c10::kCPU, false);
  double square = 0;
  for (const at::Tensor& parameter : model->parameters()) square += parameter.grad().square().sum().item<double>();
  EXPECT_GT(result.grad_norm.item<double>(), 0.1);
  EXPECT_NEAR(std::sqrt(square), 1e-2, 1e-5);
}

TEST(LabStep, MixupLearnsToo) {
  TrainConfig config = small_config("adamw");
  config.mixup = 0.4;
  const auto model = fresh_model(config), twin = fresh_model(config);
  const auto a = make_optimizer(config.optimizer, config.lr, {}, *model);
  const auto b = make_optimizer(config.optimizer, config.lr, {}, *twin);
  const double first = take_steps(*model, *a, config, 1, 1), last = take_steps(*model, *a, config, 2, 60);
  EXPECT_LT(last, first - 0.3);
  EXPECT_EQ(take_steps(*twin, *b, config, 1, 60), last) << "drawn anew";
}

class LabOptimizers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, LabOptimizers, testing::ValuesIn(optimizer_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

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

TEST(LabOptimizer, LeavesBiasesAndNormsUndecayed) {
  const TrainConfig config = small_config("came");
  const auto model = fresh_model(config);
  const auto optimizer = make_optimizer("came", 1e-3, {{"weight_decay", "0.5"}}, *model);
  ASSERT_EQ(optimizer->param_groups().size(), 2U);
  for (const at::Tensor& parameter : optimizer->param_groups()[1].params()) EXPECT_LE(parameter.dim(), 1);
  for (const at::Tensor& parameter : optimizer->param_groups()[0].params()) EXPECT_GT(parameter.dim(), 1);
  const auto decay = [&](size_t group) {
    return static_cast<came::torch::CAMEOptions&>(optimizer->param_groups()[group].options()).weight_decay();
  };
  EXPECT_EQ(decay(0), 0.5);
  EXPECT_EQ(decay(1), 0);
}

TEST(LabOptimizer, RefusesUnknownOptionsByName) {
  const TrainConfig config = small_config("came");
  const auto model = fresh_model(config);
  for (const char* name : {"came", "torch-adamw"}) {
    try {
      (void)make_optimizer(name, 1e-3, {{"beta7", "0.5"}}, *model);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("beta7"), std::string::npos) << error.what();
    }
  }
}

TEST(LabEvaluate, AgreesWithTheMeanOfPieces) {
  const TrainConfig config = small_config("came");
  const auto model = fresh_model(config);
  const Evaluation whole = evaluate(*model, Counting(), 8, 8, c10::kCPU, false);
  const Evaluation parts = evaluate(*model, Counting(), 8, 3, c10::kCPU, false);
  EXPECT_EQ(whole.tokens, 128);
  EXPECT_EQ(parts.tokens, 128);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5);
  EXPECT_NEAR(whole.loss, std::log(kVocabulary), 0.5);
  EXPECT_EQ(parts.accuracy, whole.accuracy);
  EXPECT_TRUE(model->is_training());
}

TEST(LabEvaluate, KnowsTheLossOfAModelThatReadsNothing) {
  // Every token is as frequent as any other.
  EXPECT_NEAR(unigram_loss(Counting(), Counting(), 0, kVocabulary), std::log(kVocabulary), 1e-6);
}

}  // namespace
}  // namespace lab
