// What every model's loss is: sums over targets, in pieces or at once, of sequences or of mixtures of them.
#include <ATen/autocast_mode.h>

#include <cmath>

#include "models/mixup.hpp"
#include "models/support.hpp"

namespace lab_test {
namespace {

class LabLoss : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = made(small_config(GetParam()));
    model_->eval();
  }

  std::shared_ptr<Model> model_;
  Batch batch_ = some_batch(GetParam(), 5);
};
INSTANTIATE_TEST_SUITE_P(All, LabLoss, testing::ValuesIn(families()), [](const auto& tested) { return tested.param; });

// Sums of some 60 terms in f32 in two orders: below 60 roundoffs of 2^-24 of the sum, each term's own ones included.
constexpr double kSum = 120 * 0x1p-24;
// Gradients are compared in f64, where other orders of sums show at 2^-53.  Only scores of next sentences are in f32:
// 16 roundings of 2^-24.
constexpr double kGradient = 0x1p-20;

TEST_P(LabLoss, IsTheCrossEntropyOfTheLogitsAtThePositions) {
  at::Tensor scores = model_->logits(batch_).flatten(0, 1);
  EXPECT_EQ(scores.size(1), kVocabulary);
  if (batch_.positions.defined()) scores = scores.index_select(0, batch_.positions);
  const Loss loss = model_->loss(batch_);
  EXPECT_LE(distance(loss.tokens, at::cross_entropy_loss(scores, batch_.targets, {}, at::Reduction::Sum)), kSum);
  EXPECT_EQ(loss.correct.item<int64_t>(), (scores.argmax(1) == batch_.targets).sum().item<int64_t>());
  EXPECT_EQ(loss.next.defined(), GetParam() == "bert");
}

TEST_P(LabLoss, CountsCorrectTokensInEvalModeAlone) {
  model_->train();
  EXPECT_FALSE(model_->loss(batch_).correct.defined());
}

TEST_P(LabLoss, AndItsGradientsAreSumsOverThePiecesOfABatch) {
  model_->to(at::kDouble);
  auto pieces = gradients(*model_, piece_of(batch_, 0, 2));
  for (const auto& [name, gradient] : gradients(*model_, piece_of(batch_, 2, 3))) pieces.at(name) += gradient;
  const double sum = total(model_->loss(piece_of(batch_, 0, 2))) + total(model_->loss(piece_of(batch_, 2, 3)));
  EXPECT_NEAR(total(model_->loss(batch_)), sum, kSum * sum);
  const auto [far, name] = farthest(pieces, gradients(*model_, batch_));
  EXPECT_LE(far, kGradient) << name;
}

TEST_P(LabLoss, GivesEveryParameterAGradient) {
  for (const auto& [name, gradient] : gradients(*model_, batch_)) {
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
  }
}

TEST_P(LabLoss, OfAMixWithLambda1IsTheOneWithout) {
  const Mix mix{1, at::tensor({1, 2, 3, 4, 0}, at::kLong)};
  const auto expected = gradients(*model_, batch_), found = gradients(*model_, batch_, &mix);
  EXPECT_EQ(total(model_->loss(batch_, &mix)), total(model_->loss(batch_)));
  for (const auto& [name, gradient] : expected) EXPECT_TRUE(same_bits(found.at(name), gradient)) << name;
}

TEST_P(LabLoss, OfAMixWithLambda0IsThatOfThePartners) {
  model_->to(at::kDouble);
  const Mix mix{0, at::tensor({2, 0, 1, 4, 3}, at::kLong)};
  // The sum over all sequences is the same whatever their order, if each meets its own targets.
  const auto expected = gradients(*model_, batch_), found = gradients(*model_, batch_, &mix);
  const double loss = total(model_->loss(batch_));
  EXPECT_NEAR(total(model_->loss(batch_, &mix)), loss, kSum * loss);
  const auto [far, name] = farthest(found, expected);
  EXPECT_LE(far, kGradient) << name;
}

TEST_P(LabLoss, ReordersSequencesWithTheirTargets) {
  const std::vector<int64_t> order{2, 0, 1, 4, 3};
  const Batch moved = lab::reordered(batch_, at::tensor(order, at::kLong));
  for (int64_t b = 0; b < 5; ++b) {
    const Batch expected = piece_of(batch_, order[static_cast<size_t>(b)], 1), found = piece_of(moved, b, 1);
    EXPECT_TRUE(same_bits(found.input, expected.input));
    const auto order_of = [](const Batch& one) {
      return one.positions.defined() ? one.positions.argsort() : at::arange(one.targets.size(0));
    };
    EXPECT_TRUE(same_bits(found.targets.index_select(0, order_of(found)),
                          expected.targets.index_select(0, order_of(expected))));
    EXPECT_EQ(total(model_->loss(found)), total(model_->loss(expected)));
  }
}

// The term that hardly counts, a sequence with its partner's targets, is far from the other, so that a mix that weighs
// them the wrong way round is as far.
TEST_P(LabLoss, OfAMixNearLambda1IsNearTheOneWithout) {
  const Mix mix{1 - 1e-4, at::tensor({2, 0, 1, 4, 3}, at::kLong)};
  Batch crossed = lab::reordered(batch_, mix.partner);
  crossed.input = batch_.input;
  crossed.segments = batch_.segments;
  const double own = total(model_->loss(batch_)), other = total(model_->loss(crossed));
  EXPECT_LE(std::abs(total(model_->loss(batch_, &mix)) - own), 0.05 * std::abs(other - own));
}

TEST(LabMixup, MixesEachRowWithItsPartners) {
  const at::Tensor x = at::tensor({1.0, 2.0, 4.0}).view({3, 1});
  const Mix mix{0.25, at::tensor({1, 2, 0}, at::kLong)};
  EXPECT_TRUE(same_bits(lab::mixed(x, &mix), at::tensor({1.75, 3.5, 1.75}).view({3, 1})));
  EXPECT_TRUE(same_bits(lab::mixed(x, nullptr), x));
}

// The sums are exact.
TEST(LabMixup, WeighsTheLossesOfBothTargetsByLambda) {
  Batch batch;
  batch.input = at::zeros({2, 2}, at::kLong);
  batch.targets = at::tensor({1, 2, 4, 8}, at::kLong);
  batch.next = at::tensor({0, 1}, at::kLong);
  const at::Tensor places = at::tensor({1.0, 16.0, 64.0, 256.0}), pairs = at::tensor({1.0, 4.0});
  const auto loss = [&](const Batch& wanted) {
    return Loss{(places * wanted.targets).sum(), (pairs * wanted.next).sum(), wanted.targets[0]};
  };
  const double own = 1 + 2 * 16 + 4 * 64 + 8 * 256, partners = 4 + 8 * 16 + 1 * 64 + 2 * 256;
  for (const double lambda : {0.25, 0.5, 1.0, 0.0}) {
    const Mix mix{lambda, at::tensor({1, 0}, at::kLong)};
    const Loss found = lab::mixed_loss(batch, &mix, loss);
    EXPECT_EQ(found.tokens.item<double>(), lambda * own + (1 - lambda) * partners) << lambda;
    EXPECT_EQ(found.next.item<double>(), lambda * 4 + (1 - lambda) * 1) << lambda;
    EXPECT_EQ(found.correct.item<int64_t>(), lambda == 0 ? 4 : 1) << lambda;
  }
}

TEST_P(LabLoss, RefusesAMixThatDoesNotFit) {
  const Mix few{0.5, at::tensor({1, 0}, at::kLong)}, none{0.5, {}}, much{1.5, at::tensor({1, 2, 3, 4, 0}, at::kLong)};
  for (const Mix* mix : {&few, &none}) {
    EXPECT_NE(error_of([&] { (void)model_->loss(batch_, mix); }).find("partner"), std::string::npos);
  }
  EXPECT_NE(error_of([&] { (void)model_->loss(batch_, &much); }).find("lambda"), std::string::npos);
}

// bf16 has a roundoff of 2^-9; a sum of 60 terms of the same size is off by less than 8 of them.
TEST_P(LabLoss, FollowsAutocastAndLeavesItAsItWas) {
  const double exact = total(model_->loss(batch_));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::ScalarType scores = model_->logits(batch_).scalar_type();
  const Loss loss = model_->loss(batch_);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(scores, at::autocast::get_autocast_dtype(at::kCPU));
  EXPECT_EQ(loss.tokens.scalar_type(), at::kFloat);
  EXPECT_NEAR(total(loss), exact, 8 * 0x1p-9 * exact);
  EXPECT_NE(total(loss), exact);
}

TEST(LabLossOf, BertNeedsToKnowWhichSentencesFollow) {
  const auto model = made(small_config("bert"));
  Batch batch = some_batch("bert", 2);
  batch.next = at::Tensor();
  EXPECT_NE(error_of([&] { (void)model->loss(batch); }).find("next_sentence"), std::string::npos);
}

TEST(LabLossOf, ASequenceThatIsTooLongIsRefused) {
  for (const std::string family : {"bert", "gpt2", "t5"}) {
    ModelConfig config = small_config(family);
    config.positions = kLength - 1;
    const auto model = made(config);
    EXPECT_NE(error_of([&] { (void)model->loss(some_batch(family, 1)); }).find("12 tokens"), std::string::npos);
  }
}

TEST(LabLossOf, GptAndPerceptronSeeNothingAhead) {
  for (const std::string family : {"gpt2", "mlp"}) {
    const auto model = made(small_config(family));
    model->eval();
    Batch batch = some_batch(family, 1);
    const at::Tensor before = model->logits(batch).narrow(1, 0, 6).clone();
    batch.input.narrow(1, 6, kLength - 6).fill_(3);
    EXPECT_TRUE(same_bits(model->logits(batch).narrow(1, 0, 6), before)) << family;
    batch.input[0][5] = (batch.input[0][5] + 1) % kVocabulary;
    EXPECT_FALSE(same_bits(model->logits(batch).narrow(1, 5, 1), before.narrow(1, 5, 1))) << family;
  }
}

TEST(LabLossOf, ThePerceptronSeesAsManyTokensAsItHasPositions) {
  ModelConfig config = small_config("mlp");
  config.positions = 3;
  const auto model = made(config);
  Batch batch = some_batch("mlp", 1);
  const at::Tensor before = model->logits(batch).clone();
  batch.input[0][2] = (batch.input[0][2] + 1) % kVocabulary;
  const at::Tensor after = model->logits(batch);
  for (int64_t t = 0; t < kLength; ++t) {
    EXPECT_EQ(same_bits(after.select(1, t), before.select(1, t)), t < 2 || t > 4) << "position " << t;
  }
}

}  // namespace
}  // namespace lab_test
