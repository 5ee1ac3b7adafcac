// The output layer and its loss in pieces, against the plain ones.
#include "models/cross_entropy.hpp"

#include "models/support.hpp"

namespace lab_test {
namespace {

using lab::cross_entropy;
using torch::autograd::grad;

constexpr int64_t kRows = 23, kWidth = 8, kPieces = 37;

struct Problem {
  explicit Problem(at::ScalarType dtype, bool with_bias = true) {
    at::manual_seed(3);
    const auto drawn = [&](at::IntArrayRef shape) { return at::randn(shape, dtype).requires_grad_(); };
    hidden = drawn({kRows, kWidth});
    weight = drawn({kPieces, kWidth});
    if (with_bias) bias = drawn({kPieces});
    targets = at::randint(kPieces, {kRows}, at::kLong);
  }

  [[nodiscard]] at::Tensor scores() const { return at::linear(hidden, weight, bias); }
  [[nodiscard]] at::Tensor plain() const { return at::cross_entropy_loss(scores(), targets, {}, at::Reduction::Sum); }
  [[nodiscard]] std::vector<at::Tensor> inputs() const {
    return bias.defined() ? std::vector{hidden, weight, bias} : std::vector{hidden, weight};
  }

  at::Tensor hidden, weight, bias, targets;
};

// Both compute the same sums of at most kRows * kPieces terms in another order; each term carries a few roundings, so
// that the relative difference of a tensor is below 100 roundoffs, far above what is seen (about 4).
void expect_plain(at::ScalarType dtype, double roundoff) {
  for (const bool with_bias : {false, true}) {
    const Problem p(dtype, with_bias);
    const auto expected = grad({p.plain()}, p.inputs());
    for (const int64_t scores : {int64_t{1}, 5 * kPieces, lab::kScoresAtATime}) {
      const auto found = cross_entropy(p.hidden, p.weight, p.bias, p.targets, false, scores);
      EXPECT_LE(distance(found.loss, p.plain()), 100 * roundoff);
      EXPECT_FALSE(found.correct.defined());
      const auto grads = grad({found.loss}, p.inputs());
      for (size_t k = 0; k < grads.size(); ++k) {
        EXPECT_EQ(grads[k].scalar_type(), dtype);
        EXPECT_LE(distance(grads[k], expected[k]), 100 * roundoff) << "input " << k << ", at most " << scores;
      }
    }
  }
}

TEST(LabCrossEntropy, IsThePlainOneInF64) { expect_plain(at::kDouble, 0x1p-53); }

TEST(LabCrossEntropy, IsThePlainOneInF32) { expect_plain(at::kFloat, 0x1p-24); }

// Central differences with step h have errors of h^2 / 6 times the third derivative, which sums of softmaxes keep below
// 100 here, and of 2^-53 * |loss| / h: 2e-9 and 1e-10 for h = 1e-5.
TEST(LabCrossEntropy, HasTheGradientsOfFiniteDifferences) {
  const Problem p(at::kDouble);
  const auto grads = grad({cross_entropy(p.hidden, p.weight, p.bias, p.targets, false, 4 * kPieces).loss}, p.inputs());
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  const auto inputs = p.inputs();
  for (size_t k = 0; k < inputs.size(); ++k) {
    const at::Tensor flat = inputs[k].view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double value = flat[i].item<double>();
      const auto loss_at = [&](double x) {
        flat[i] = x;
        return cross_entropy(p.hidden, p.weight, p.bias, p.targets, false, 4 * kPieces).loss.item<double>();
      };
      const double slope = (loss_at(value + kStep) - loss_at(value - kStep)) / (2 * kStep);
      flat[i] = value;
      EXPECT_NEAR(grads[k].view({-1})[i].item<double>(), slope, 1e-7) << "input " << k << ", element " << i;
    }
  }
}

TEST(LabCrossEntropy, CountsTheRowsWhoseTargetIsTheLikeliest) {
  Problem p(at::kFloat);
  const at::Tensor likeliest = p.scores().argmax(1);
  p.targets.narrow(0, 0, 10).copy_(likeliest.narrow(0, 0, 10));
  const double expected = (likeliest == p.targets).sum().item<double>();
  const auto found = cross_entropy(p.hidden, p.weight, p.bias, p.targets, true, 5 * kPieces);
  EXPECT_EQ(found.correct.item<double>(), expected);
  EXPECT_FALSE(found.correct.requires_grad());
}

TEST(LabCrossEntropy, ScalesItsGradientsAndMakesThemAgain) {
  const Problem p(at::kDouble);
  const auto once = grad({cross_entropy(p.hidden, p.weight, p.bias, p.targets, false).loss}, p.inputs());
  const at::Tensor scaled = 0.25 * cross_entropy(p.hidden, p.weight, p.bias, p.targets, false).loss;
  for (int run = 0; run < 2; ++run) {
    const auto grads = grad({scaled}, p.inputs(), {}, true);
    for (size_t k = 0; k < grads.size(); ++k) EXPECT_LE(distance(grads[k], 0.25 * once[k]), 0x1p-52);
  }
}

TEST(LabCrossEntropy, OfNoRowsIsZero) {
  const Problem p(at::kFloat);
  const at::Tensor none = p.hidden.detach().narrow(0, 0, 0).requires_grad_();
  const at::Tensor loss = cross_entropy(none, p.weight, p.bias, p.targets.narrow(0, 0, 0), true).loss;
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(grad({loss}, {p.weight})[0].abs().max().item<double>(), 0);
}

// Products are in bf16, whose roundoff is 2^-9; scores and sums are not.
TEST(LabCrossEntropy, KeepsItsSumsInF32WhereHiddenStatesAreShort) {
  const Problem p(at::kFloat);
  const at::Tensor hidden = p.hidden.detach().to(at::kBFloat16).requires_grad_();
  const at::Tensor scores = at::linear(hidden.to(at::kFloat), p.weight.to(at::kBFloat16).to(at::kFloat), p.bias);
  const at::Tensor plain = at::cross_entropy_loss(scores, p.targets, {}, at::Reduction::Sum);
  const at::Tensor loss = cross_entropy(hidden, p.weight, p.bias, p.targets, false, 5 * kPieces).loss;
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_LE(distance(loss, plain), 100 * 0x1p-24);
  const auto grads = grad({loss}, {hidden, p.weight, p.bias}), expected = grad({plain}, {hidden, p.weight, p.bias});
  for (size_t k = 0; k < grads.size(); ++k) {
    EXPECT_EQ(grads[k].scalar_type(), expected[k].scalar_type());
    EXPECT_LE(distance(grads[k], expected[k]), 2 * 0x1p-9) << "input " << k;
  }
}

}  // namespace
}  // namespace lab_test
