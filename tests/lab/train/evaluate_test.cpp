// Evaluation: means over predicted tokens, however they are cut into micro-batches, and the unigram baseline.
#include "train/evaluate.hpp"

#include "support.hpp"

namespace lab_test {
namespace {

using lab::evaluate, lab::Evaluation, lab::unigram_loss;

// The sums are exact: every bit is known.
TEST(LabEvaluate, GivesMeansOverTokensHoweverTheyAreCut) {
  Counting batches;
  batches.uneven = batches.next_sentence = true;
  const Batch whole = batches.batch(0, 10);
  const auto tokens = static_cast<double>(whole.predicted());
  const double loss = whole.targets.sum().item<double>() / tokens;
  const double correct = whole.targets.remainder(3).eq(0).sum().item<double>() / tokens;
  for (const int64_t micro_batch : {10, 4, 3, 1}) {
    SumModel model;
    const Evaluation found = evaluate(model, batches, 10, micro_batch, c10::kCPU, false);
    EXPECT_EQ(found.loss, loss);
    EXPECT_EQ(found.perplexity, std::exp(loss));
    EXPECT_EQ(found.accuracy, correct);
    EXPECT_EQ(found.next_loss, 4 * 5 / 10.0);
    EXPECT_EQ(found.tokens, whole.predicted());
    for (const auto& call : model.calls) EXPECT_FALSE(call.training);
  }
}

TEST(LabEvaluate, TakesOnePassAtMost) {
  SumModel model;
  for (const int64_t sequences : {int64_t{0}, kVocabulary, kVocabulary + 1}) {
    EXPECT_EQ(evaluate(model, Counting(), sequences, 100, c10::kCPU, false).tokens, kVocabulary * kLength);
  }
}

TEST(LabEvaluate, LeavesTheModelInTheModeItWasIn) {
  SumModel model;
  for (const bool training : {true, false}) {
    model.train(training);
    (void)evaluate(model, Counting(), 1, 1, c10::kCPU, false);
    EXPECT_EQ(model.is_training(), training);
  }
}

// One target in each sequence, by its number.
class Listed : public lab::Batches {
 public:
  explicit Listed(std::vector<int64_t> targets) : targets_(at::tensor(targets, at::kLong)) {}
  [[nodiscard]] Batch batch(int64_t first, int64_t count) const override {
    Batch made;
    made.targets = targets_.narrow(0, first, count);
    made.input = made.targets.unsqueeze(1);
    return made;
  }
  [[nodiscard]] int64_t pass() const override { return targets_.size(0); }

 private:
  at::Tensor targets_;
};

// Of three tokens the training half has 5, 2 and 0, so that with one more of each the shares are 0.6, 0.3 and 0.1.
// Four roundings in each logarithm and its multiple, in f64.
TEST(LabEvaluate, UnigramLossIsThatOfTheTrainingHalfsFrequencies) {
  const Listed training({0, 1, 0, 0, 1, 0, 0}), validation({2, 0, 1, 0, 0, 1});
  const double likely = -std::log(0.6), possible = -std::log(0.3), unseen = -std::log(0.1);
  const double all = (3 * likely + 2 * possible + unseen) / 6, two = (unseen + likely) / 2;
  for (const int64_t sequences : {0, 6, 7}) {
    EXPECT_NEAR(unigram_loss(training, validation, sequences, 3), all, 8 * 0x1p-53 * all);
  }
  EXPECT_NEAR(unigram_loss(training, validation, 2, 3), two, 8 * 0x1p-53 * two);
}

TEST(LabEvaluate, UnigramLossCounts16384SequencesOfTheTrainingHalfAtMost) {
  std::vector<int64_t> targets(16384, 0);
  targets.resize(20000, 1);
  const double loss = -std::log(1 / 16386.0);
  EXPECT_NEAR(unigram_loss(Listed(targets), Listed({1}), 0, 2), loss, 8 * 0x1p-53 * loss);
}

}  // namespace
}  // namespace lab_test
