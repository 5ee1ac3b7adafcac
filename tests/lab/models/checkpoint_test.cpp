// Activation checkpoints change what is kept and nothing else.
#include "models/checkpoint.hpp"

#include "models/support.hpp"

namespace lab_test {
namespace {

class LabCheckpoints : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, LabCheckpoints, testing::Values("bert", "gpt2", "t5"),
                         [](const auto& tested) { return tested.param; });

TEST_P(LabCheckpoints, LeaveEveryBitOfLossAndGradientsWithDropout) {
  const Batch batch = some_batch(GetParam(), 3);
  ModelConfig config = small_config(GetParam());
  ASSERT_GT(config.dropout, 0);
  const auto plain = made(config);
  config.activation_checkpoints = true;
  const auto sparing = made(config);
  at::manual_seed(11);
  const double loss = total(plain->loss(batch));
  at::manual_seed(11);
  EXPECT_EQ(total(sparing->loss(batch)), loss);
  at::manual_seed(11);
  const auto expected = gradients(*plain, batch);
  const at::Tensor next_draw = at::rand({4});
  at::manual_seed(11);
  const auto found = gradients(*sparing, batch);
  EXPECT_TRUE(same_bits(at::rand({4}), next_draw)) << "backward must leave the generator where forward did";
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, gradient] : expected) EXPECT_TRUE(same_bits(found.at(name), gradient)) << name;
  // Other random numbers give another loss, so that dropout was there.
  EXPECT_NE(total(plain->loss(batch)), loss);
}

TEST_P(LabCheckpoints, AddToGradientsThatAreThere) {
  const Batch first = some_batch(GetParam(), 2, 1), second = some_batch(GetParam(), 2, 2);
  ModelConfig config = small_config(GetParam());
  config.activation_checkpoints = true;
  config.dropout = 0;
  const auto model = made(config);
  const auto one = gradients(*model, first), two = gradients(*model, second);
  model->zero_grad();
  for (const Batch& batch : {first, second}) {
    const Loss loss = model->loss(batch);
    (loss.next.defined() ? loss.tokens + loss.next : loss.tokens).backward();
  }
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(same_bits(item.value().grad(), one.at(item.key()) + two.at(item.key()))) << item.key();
  }
}

TEST(LabCheckpoint, KeepsNoActivationsOfItsLayer) {
  const at::Tensor x = at::rand({3}).requires_grad_(), weight = at::rand({3}).requires_grad_();
  int runs = 0;
  bool kept_graph = true;
  const lab::Layer layer = [&](const std::vector<at::Tensor>& inputs) {
    if (++runs == 1) kept_graph = at::GradMode::is_enabled();
    return (inputs[0] * weight).sin();
  };
  const at::Tensor y = lab::checkpointed(layer, {x}, {weight});
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(kept_graph);
  const auto found = torch::autograd::grad({y.sum()}, {x, weight});
  EXPECT_EQ(runs, 2);
  const auto expected = torch::autograd::grad({(x * weight).sin().sum()}, {x, weight});
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(same_bits(found[k], expected[k]));
}

}  // namespace
}  // namespace lab_test
