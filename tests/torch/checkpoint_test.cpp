// Archives of the libtorch adapter: saved, loaded and gone on is the same as never stopped.
#include <algorithm>
#include <filesystem>

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
  for (const std::string& word : all_words()) {
    for (const char* momentum : {"f32", "bf16", "int8", "int4"}) {
      const Settings settings{{"momentum_dtype", momentum}, {"stochastic_rounding", "true"}, {"seed", "9"}};
      all.push_back({word + "_" + momentum, word, settings});
      all.push_back({word + "_bf16_" + momentum, word, settings, at::kBFloat16});
    }
  }
  all.push_back({"adamw_second_moment_int8", "adamw", {{"second_moment_dtype", "int8"}}});
  all.push_back({"came_f64", "came", {}, at::kDouble});
  all.push_back({"came_f16", "came", {}, at::kHalf});
  all.push_back({"sm3_without_momentum", "sm3", {{"beta1", "0"}}});
  return all;
}

const came::torch::ParamState& state_of(const torch::optim::Optimizer& optimizer, const at::Tensor& param) {
  return dynamic_cast<const came::torch::ParamState&>(*optimizer.state().at(param.unsafeGetTensorImpl()));
}

void expect_same_state(const torch::optim::Optimizer& a, const std::vector<at::Tensor>& params_a,
                       const torch::optim::Optimizer& b, const std::vector<at::Tensor>& params_b) {
  ASSERT_EQ(a.state().size(), b.state().size());
  for (size_t k = 0; k < params_a.size(); ++k) {
    if (a.state().count(params_a[k].unsafeGetTensorImpl()) == 0) continue;
    const auto& x = state_of(a, params_a[k]);
    const auto& y = state_of(b, params_b[k]);
    EXPECT_EQ(x.step, y.step);
    ASSERT_EQ(x.tensors.size(), y.tensors.size());
    for (size_t s = 0; s < x.tensors.size(); ++s) {
      EXPECT_EQ(x.tensors[s].name, y.tensors[s].name);
      EXPECT_TRUE(same_bits(x.tensors[s].tensor, y.tensors[s].tensor)) << x.tensors[s].name << " of " << k;
    }
  }
}

void train(Model& model, torch::optim::Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    compute_gradients(model, step);
    // One parameter that lags behind, so that counters differ.
    if (step % 3 == 0) model->gain.mutable_grad().reset();
    optimizer.step();
  }
}

class TorchCheckpoints : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, TorchCheckpoints, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(TorchCheckpoints, GoOnAsIfNeverStopped) {
  const Case& c = GetParam();
  Model model(1, c.dtype), resumed(5, c.dtype);
  const auto optimizer = make_optimizer(c.word, {{model->parameters()}}, c.settings);
  train(model, *optimizer, 0, 7);

  std::stringstream weights, file;
  torch::save(model, weights);
  torch::save(*optimizer, file);
  const auto loaded = make_optimizer(c.word, {{resumed->parameters()}}, {});
  // What it has done before must leave no trace.
  resumed->images_ = model->images_;
  resumed->labels_ = model->labels_;
  train(resumed, *loaded, 0, 2);
  torch::load(resumed, weights);
  torch::load(*loaded, file);
  expect_same_state(*optimizer, model->parameters(), *loaded, resumed->parameters());

  train(model, *optimizer, 7, 14);
  train(resumed, *loaded, 7, 14);
  for (size_t k = 0; k < model->parameters().size(); ++k) {
    EXPECT_TRUE(same_bits(model->parameters()[k], resumed->parameters()[k])) << k;
  }
  expect_same_state(*optimizer, model->parameters(), *loaded, resumed->parameters());
}

TEST(TorchCheckpoint, KeepsDtypes) {
  Model model(1, at::kBFloat16), other(1, at::kBFloat16);
  came::torch::CAME optimizer(model->parameters(), came::torch::CAMEOptions().momentum_dtype(DType::i8));
  train(model, optimizer, 1, 3);
  const std::string path = (std::filesystem::temp_directory_path() / "came_torch_checkpoint_test.pt").string();
  torch::save(optimizer, path);
  came::torch::CAME loaded(other->parameters());
  torch::load(loaded, path);
  std::filesystem::remove(path);
  const auto& state = state_of(loaded, other->qkv->weight);
  EXPECT_EQ(state.step, 2);
  EXPECT_EQ(state.at("exp_avg").scalar_type(), at::kChar);
  EXPECT_EQ(state.at("exp_avg_sq_row").scalar_type(), at::kFloat);
  EXPECT_EQ(error_of([&] { (void)state.at("momentum"); }).substr(0, 51),
            "state: no 'momentum', expected one of exp_avg, exp_");
}

TEST(TorchCheckpoint, TakesStateInAnyOrder) {
  Model model, shuffled;
  came::torch::CAME optimizer(model->parameters()), other(shuffled->parameters());
  train(model, optimizer, 0, 3);
  train(shuffled, other, 0, 3);
  for (const auto& [parameter, state] : other.state()) {
    auto& tensors = static_cast<came::torch::ParamState&>(*state).tensors;
    std::reverse(tensors.begin(), tensors.end());
  }
  train(model, optimizer, 3, 6);
  train(shuffled, other, 3, 6);
  for (size_t k = 0; k < model->parameters().size(); ++k) {
    EXPECT_TRUE(same_bits(model->parameters()[k], shuffled->parameters()[k])) << k;
  }
}

TEST(TorchCheckpoint, LeavesNoStateOfWhatWasBefore) {
  Model model;
  came::torch::CAME fresh(model->parameters()), used(model->parameters());
  std::stringstream file;
  torch::save(fresh, file);
  train(model, used, 0, 2);
  torch::load(used, file);
  EXPECT_TRUE(used.state().empty());
}

TEST(TorchCheckpoint, ThatDoesNotFitChangesNothing) {
  Model model, other;
  came::torch::CAME optimizer(model->parameters(), came::torch::CAMEOptions(0.5));
  train(model, optimizer, 1, 3);
  const at::Tensor before = state_of(optimizer, model->qkv->weight).at("exp_avg").clone();
  const auto refused = [&](torch::optim::Optimizer& from) {
    std::stringstream file;
    torch::save(from, file);
    return error_of([&] { torch::load(optimizer, file); });
  };
  came::torch::AdamW adamw(other->parameters());
  EXPECT_EQ(refused(adamw), "archive: of adamw, expected came");
  torch::optim::AdamW theirs(other->parameters());
  EXPECT_EQ(refused(theirs), "archive: not of a came optimizer, expected came");
  came::torch::CAME split(std::vector<OptimizerParamGroup>{{{other->gain}}, {other->conv->parameters()}});
  EXPECT_EQ(refused(split), "archive: groups is 2, expected 1 as in this optimizer");
  came::torch::CAME fewer(other->conv->parameters());
  EXPECT_EQ(refused(fewer), "archive: group/0/params is 2, expected 15 as in this optimizer");
  // As many parameters, the last of another shape.
  auto params = other->parameters();
  params.back() = torch::ones({4, 5}).requires_grad_();
  came::torch::CAME foreign(params, came::torch::CAMEOptions(0.1));
  for (const at::Tensor& p : params) p.mutable_grad() = torch::ones_like(p);
  foreign.step();
  EXPECT_NE(refused(foreign).find("parameter 14 of group 0: "), std::string::npos) << refused(foreign);

  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
  EXPECT_TRUE(same_bits(state_of(optimizer, model->qkv->weight).at("exp_avg"), before));
  EXPECT_EQ(state_of(optimizer, model->qkv->weight).step, 2);
}

}  // namespace
}  // namespace torch_test
