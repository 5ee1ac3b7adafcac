// Steps: which sequences are read, what the gradient is divided by, how it is clipped, and at which rate a step is
// taken.
#include "train/step.hpp"

#include <numbers>
#include <set>

#include "support.hpp"
#include "train/optimizers.hpp"

namespace lab_test {
namespace {

using lab::make_optimizer, lab::StepResult, lab::take_step;

// Notes the rates that its groups have when it is told to step; changes nothing.
class RateRecorder : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure /*closure*/) override {
    for (auto& group : param_groups()) rates.push_back(group.options().get_lr());
    return {};
  }

  std::vector<double> rates;
};

StepResult step_of(Model& model, torch::optim::Optimizer& optimizer, const TrainConfig& config, int64_t step,
                   const Counting& batches = {}) {
  return take_step(model, optimizer, batches, config, step, c10::kCPU, false);
}

TrainConfig unclipped() {
  TrainConfig config = small_config("torch-adamw");
  config.clip = 0;
  return config;
}

std::vector<at::Tensor> gradients_of(const Model& model) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model.parameters()) all.push_back(parameter.grad().clone());
  return all;
}

double norm_of(const std::vector<at::Tensor>& tensors) {
  double square = 0;
  for (const at::Tensor& tensor : tensors) square += tensor.to(at::kDouble).square().sum().item<double>();
  return std::sqrt(square);
}

// Sums in f64 in another order.  2^-40 has room for 8192 roundings of 2^-53; what counts wrongly is off by percents.
constexpr double kOrder = 0x1p-40;

// All sums are of whole numbers, and 32 tokens and 8 sequences divide without rounding: every bit is known.
TEST(LabStep, DividesLossAndGradientByWhatTheWholeBatchAsksFor) {
  TrainConfig config = unclipped();
  Counting batches;
  batches.uneven = batches.next_sentence = true;
  for (const int64_t step : {1, 3}) {
    const Batch whole = batches.batch((step - 1) * 8, 8);
    ASSERT_EQ(whole.predicted(), 32);
    const double tokens = whole.targets.sum().item<double>() / 32, next = 4 * 4 / 8.0;
    for (const int64_t micro_batch : {8, 4, 2, 1}) {
      SCOPED_TRACE(testing::Message() << "step " << step << " in micro-batches of " << micro_batch);
      config.micro_batch = micro_batch;
      SumModel model;
      RateRecorder optimizer(model.parameters(), 1);
      model.weight.mutable_grad() = at::full({}, 7.0F);  // of the step before
      const StepResult result = step_of(model, optimizer, config, step, batches);
      EXPECT_EQ(result.loss.item<double>(), tokens);
      EXPECT_EQ(model.weight.grad().item<double>(), tokens + next);
      EXPECT_EQ(result.grad_norm.item<double>(), tokens + next);
      EXPECT_EQ(result.tokens, 8 * kLength);
      std::vector<at::Tensor> inputs;
      for (const auto& call : model.calls) {
        EXPECT_EQ(call.batch.sequences(), micro_batch);
        EXPECT_FALSE(call.mix.has_value());
        inputs.push_back(call.batch.input);
      }
      EXPECT_TRUE(at::equal(at::cat(inputs), whole.input));
    }
  }
}

TEST(LabStep, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  TrainConfig config = unclipped();
  Counting batches;
  batches.uneven = true;  // a mean of means would be another number
  const auto model = fresh_model(config, at::kDouble);
  const Batch batch = batches.batch(0, config.batch);
  const at::Tensor loss = model->loss(batch).tokens / 32;
  loss.backward();
  const auto expected = gradients_of(*model);
  for (const int64_t micro_batch : {8, 2}) {
    config.micro_batch = micro_batch;
    const auto twin = fresh_model(config, at::kDouble);
    const auto optimizer = make_optimizer(config.optimizer, config.lr, {}, *twin);
    const StepResult result = step_of(*twin, *optimizer, config, 1, batches);
    // Added up in f32, a rounding per micro-batch.
    const double roundings = static_cast<double>(8 / micro_batch);
    EXPECT_NEAR(result.loss.item<double>(), loss.item<double>(), roundings * 0x1p-24 * loss.item<double>());
    const auto found = gradients_of(*twin);
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_LE((found[k] - expected[k]).norm().item<double>(), kOrder * expected[k].norm().item<double>()) << k;
    }
  }
}

TEST(LabStep, ClippingScalesTheWholeGradientToTheBound) {
  TrainConfig config = unclipped();
  const auto gradient_with = [&](double clip, double* norm = nullptr) {
    config.clip = clip;
    const auto model = fresh_model(config, at::kDouble);
    const auto optimizer = make_optimizer(config.optimizer, config.lr, {}, *model);
    const StepResult result = step_of(*model, *optimizer, config, 1);
    if (norm != nullptr) *norm = result.grad_norm.item<double>();
    return gradients_of(*model);
  };
  double norm = 0, clipped_norm = 0;
  const auto plain = gradient_with(0, &norm);
  EXPECT_NEAR(norm, norm_of(plain), kOrder * norm);
  for (const double clip : {norm / 2, 2 * norm}) {
    const auto clipped = gradient_with(clip, &clipped_norm);
    EXPECT_EQ(clipped_norm, norm) << "what is reported is the norm before clipping";
    // As torch.nn.utils.clip_grad_norm_ has it.
    const double scale = std::min(1.0, clip / (norm + 1e-6));
    for (size_t k = 0; k < plain.size(); ++k) EXPECT_TRUE(at::equal(clipped[k], plain[k] * scale)) << k;
  }
}

// Warm-up over 4 of 12 steps, then half a cosine from 1 to 0.2, in both groups, when the optimizer steps.
TEST(LabStep, GivesTheOptimizerTheRateOfTheSchedule) {
  TrainConfig config = unclipped();
  config.lr = 0.5;
  config.steps = 12;
  config.warmup = 4;
  config.final_rate = 0.2;
  SumModel model;
  const at::Tensor other = at::ones({2}).requires_grad_();
  for (const char* schedule : {"cosine", "linear", "constant"}) {
    config.schedule = schedule;
    RateRecorder optimizer({{{model.weight}}, {{other}, std::make_unique<torch::optim::SGDOptions>(9.0)}}, 9.0);
    for (int64_t step = 1; step <= 12; ++step) {
      step_of(model, optimizer, config, step);
      const double fallen = static_cast<double>(step - 4) / 8;
      double height = (1 + std::cos(std::numbers::pi * fallen)) / 2;
      if (config.schedule == "linear") height = 1 - fallen;
      if (config.schedule == "constant") height = 1;
      const double share = step < 4 ? static_cast<double>(step) / 4 : 0.2 + 0.8 * height;
      ASSERT_EQ(optimizer.rates.size(), 2U) << "one step";
      for (const double rate : optimizer.rates) EXPECT_DOUBLE_EQ(rate, 0.5 * share) << schedule << ", step " << step;
      optimizer.rates.clear();
    }
  }
}

// With Beta(a, a) weights have a mean of 1/2, a variance of v = 1 / (4 (2a + 1)) and an excess kurtosis of -6 / (2a +
// 3); 1000 draws give both within 5 standard deviations.
TEST(LabStep, MixupDrawsWeightsAndPartnersOfEveryMicroBatchAnew) {
  constexpr double kAlpha = 0.4, kDraws = 1000;
  TrainConfig config = unclipped();
  config.mixup = kAlpha;
  config.micro_batch = 4;
  const auto draw = [&](uint64_t seed, int64_t steps) {
    config.seed = seed;
    SumModel model;
    RateRecorder optimizer(model.parameters(), 1);
    for (int64_t step = 1; step <= steps; ++step) step_of(model, optimizer, config, step);
    std::vector<Mix> mixes;
    for (const auto& call : model.calls) mixes.push_back(call.mix.value());
    return mixes;
  };
  const std::vector<Mix> mixes = draw(1, 500);
  ASSERT_EQ(static_cast<double>(mixes.size()), kDraws);
  std::set<double> weights;
  double sum = 0, squares = 0;
  std::array<std::array<int, 4>, 4> met{};
  for (const Mix& mix : mixes) {
    weights.insert(mix.lambda);
    sum += mix.lambda;
    squares += (mix.lambda - 0.5) * (mix.lambda - 0.5);
    ASSERT_TRUE(at::equal(std::get<0>(mix.partner.sort()), at::arange(4))) << "no permutation";
    for (size_t k = 0; k < 4; ++k) {
      ++met[k][static_cast<size_t>(mix.partner[static_cast<int64_t>(k)].item<int64_t>())];
    }
  }
  EXPECT_EQ(static_cast<double>(weights.size()), kDraws) << "drawn twice";
  const double variance = 1 / (4 * (2 * kAlpha + 1)), kurtosis = 3 - 6 / (2 * kAlpha + 3);
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws));
  EXPECT_NEAR(squares / kDraws, variance, 5 * variance * std::sqrt((kurtosis - 1) / kDraws));
  for (const auto& partners : met) {
    for (const int count : partners) EXPECT_NEAR(count, kDraws / 4, 5 * std::sqrt(kDraws * 0.25 * 0.75));
  }
  const std::vector<Mix> again = draw(1, 2), other = draw(2, 2);
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(again[k].lambda, mixes[k].lambda);
    EXPECT_TRUE(at::equal(again[k].partner, mixes[k].partner));
    EXPECT_NE(other[k].lambda, mixes[k].lambda);
  }
}

TEST(LabStep, LearnsWithMixup) {
  TrainConfig config = small_config("adamw");
  config.mixup = 0.4;
  const auto model = fresh_model(config);
  const auto optimizer = make_optimizer(config.optimizer, config.lr, {}, *model);
  const double first = step_of(*model, *optimizer, config, 1).loss.item<double>();
  double last = 0;
  for (int64_t step = 2; step <= 60; ++step) last = step_of(*model, *optimizer, config, step).loss.item<double>();
  EXPECT_LT(last, first - 0.3);
}

}  // namespace
}  // namespace lab_test
