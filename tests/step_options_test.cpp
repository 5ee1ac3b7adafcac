// Options that a step brings: whatever they are, the result is that of a plan made with them, bit for bit; what decides
// the plan is refused before anything is written.
#include "support.hpp"

namespace came::test {
namespace {

class StepOptions : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<TensorSpec> specs() {
    std::vector<TensorSpec> list{spec_of({5, 7}, DType::f64),        spec_of({9, 16}, DType::f32),
                                 spec_of({67, 65}, DType::f32),      spec_of({70, 512}, DType::f32, 1),
                                 spec_of({2, 3, 4, 4}, DType::bf16), spec_of({33}, DType::f16, 1),
                                 spec_of({}, DType::f32, 1)};
    for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
    return list;
  }
  [[nodiscard]] Options defaults() const {
    Options o(GetParam());
    o.max_grad_norm = 3;
    return o;
  }

  using Change = void (*)(Options& options, int step);
  /// Every option that may travel, as steps go by; those that this optimizer has.
  [[nodiscard]] std::vector<Change> changes() const {
    const std::string word = GetParam();
    std::vector<Change> list{
        [](Options& o, int step) { o.lr = 1e-3 * (1 + step); },
        [](Options& o, int step) { o.beta1 = 0.4 + 0.1 * step; },
        [](Options& o, int step) { o.weight_decay = 0.1 * step; },
        [](Options& o, int step) { o.max_grad_norm = step % 2 == 0 ? 0 : 0.5 + step; },
        [](Options& o, int step) { o.maximize = step % 2; },
        [](Options& o, int step) { o.stochastic_rounding = step % 2; },
        [](Options& o, int step) { o.stochastic_rounding = 1, o.seed = static_cast<uint64_t>(step) << 40; },
    };
    if (word != "sm3") list.push_back([](Options& o, int step) { o.beta2 = 0.9 + 0.01 * step; });
    if (word == "came") {
      list.push_back([](Options& o, int step) { o.beta3 = 0.99 + 0.001 * step; });
      list.push_back([](Options& o, int step) { o.bias_correction = step % 2; });
    }
    if (word == "lamb") list.push_back([](Options& o, int step) { o.bias_correction = step % 2; });
    if (word == "came" || word == "adafactor") {
      list.push_back([](Options& o, int step) { o.clip_threshold = 0.1 + 0.5 * step; });
      list.push_back([](Options& o, int step) { o.eps1 = 1e-20 * (1 + step), o.eps2 = 1e-6 * (1 + step); });
    } else {
      list.push_back([](Options& o, int step) { o.eps = 1e-8 * (1 + step); });
    }
    if (word == "adafactor") {
      list.push_back([](Options& o, int step) { o.beta2_decay = step % 2 == 0 ? 0 : -0.5 - 0.1 * step; });
      list.push_back(
          [](Options& o, int step) { o.relative_step = step > 0, o.warmup_init = step % 2 * o.relative_step; });
      list.push_back([](Options& o, int step) { o.lr_in_momentum = step % 2; });
    }
    list.push_back([](Options& o, int step) { o.weight_decay = 0.2 * step, o.beta1 = 0.9 - 0.05 * step, o.lr = 0.01; });
    return list;
  }
};

TEST_P(StepOptions, AreThoseOfAPlanMadeWithThem) {
  size_t number = 0;
  for (const Change change : changes()) {
    SCOPED_TRACE("change " + std::to_string(number++));
    const std::vector<Options> planned{defaults(), defaults()};
    Trial one(planned, specs());
    one.fill_params(1);
    Bytes unchanged;
    for (int step = 0; step < 4; ++step) {
      std::vector<Options> now = planned;
      change(now[1], step);
      Trial fresh(now, specs());
      for (size_t k = 0; k < one.params.size(); ++k) fresh.params[k].copy(one.params[k]);
      for (size_t k = 0; k < one.states.size(); ++k) fresh.states[k].copy(one.states[k]);
      fresh.counters = one.counters;
      one.fill_grads(static_cast<uint64_t>(step) + 10);
      fresh.fill_grads(static_cast<uint64_t>(step) + 10);
      one.step.set_options(now);
      one.run();
      fresh.run();
      ASSERT_EQ(one.image(), fresh.image()) << "step " << step;
    }
    // And the plan's own, once none are brought: as if there had never been others.
    one.step.options = nullptr;
    Trial fresh(planned, specs());
    for (size_t k = 0; k < one.params.size(); ++k) fresh.params[k].copy(one.params[k]);
    for (size_t k = 0; k < one.states.size(); ++k) fresh.states[k].copy(one.states[k]);
    fresh.counters = one.counters;
    one.fill_grads(99);
    fresh.fill_grads(99);
    one.run();
    fresh.run();
    EXPECT_EQ(one.image(), fresh.image());
  }
}

TEST_P(StepOptions, WorkPhaseByPhaseOnAShard) {
  const std::vector<Options> planned{defaults()};
  std::vector<Options> now = planned;
  now[0].beta1 = 0.7;
  now[0].weight_decay = 0.3;
  TensorSpec spec = spec_of({66, 65}, DType::f32);
  spec.shard = Shard{1, {0, 0}, {66, 65}, 0};
  Trial one(planned, {spec});
  Trial fresh(now, {spec});
  for (Trial* trial : {&one, &fresh}) {
    trial->fill_params(1);
    trial->fill_grads(2);
  }
  one.step.set_options(now);
  for (size_t phase = 0; phase < one.plan.phases.size(); ++phase) {
    one.run_phase(static_cast<int>(phase));
    fresh.run_phase(static_cast<int>(phase));
  }
  EXPECT_EQ(one.image(), fresh.image());
}

TEST_P(StepOptions, ThatDecideThePlanAreRefusedByName) {
  const std::string word = GetParam();
  std::vector<std::pair<std::string, void (*)(Options&)>> refused{
      {"group 1: options: cautious", [](Options& o) { o.cautious = 1; }},
      {"group 1: options: momentum_dtype", [](Options& o) { o.momentum_dtype = CAME_DTYPE_I8; }},
      {"group 1: options: algorithm", [](Options& o) { o.algorithm = (o.algorithm + 1) % 6; }},
      {"group 1: options: max_grad_norm", [](Options& o) { o.max_grad_norm = 1; }},
      {"group 1: options: beta1 is 1.5", [](Options& o) { o.beta1 = 1.5; }},
      {"group 1: options: lr is -1", [](Options& o) { o.lr = -1; }},
      {"group 1: options: maximize is 2", [](Options& o) { o.maximize = 2; }},
      {"struct_size", [](Options& o) { o.struct_size = 8; }},
      {"expected 0 as in the plan: some of its tensors share an id", [](Options& o) { o.stochastic_rounding = 1; }},
  };
  if (has_second_moment(word)) {
    refused.emplace_back("group 1: options: second_moment_dtype",
                         [](Options& o) { o.second_moment_dtype = CAME_DTYPE_I8; });
  } else {
    refused.emplace_back("group 1: options: view", [](Options& o) { o.view = CAME_VIEW_LAST_TWO; });
  }
  if (word == "came") refused.emplace_back("group 1: options: confidence_1d", [](Options& o) { o.confidence_1d = 1; });
  if (word == "came") refused.emplace_back("eps1 is 1e-42", [](Options& o) { o.eps1 = 1e-42; });
  if (word == "adafactor")
    refused.emplace_back("group 1: options: scale_parameter", [](Options& o) { o.scale_parameter = 1; });
  if (word == "adafactor" || word == "sm3")
    refused.emplace_back("group 1: options: beta1 is 0", [](Options& o) { o.beta1 = 0; });
  const std::vector<Options> planned{Options(word), Options(word)};
  std::vector<TensorSpec> list = specs();
  for (TensorSpec& spec : list) spec.id = 0;
  Trial run(planned, list);
  run.fill_params(1);
  run.fill_grads(2);
  const Bytes before = run.image();
  for (const auto& [name, change] : refused) {
    std::vector<Options> now = planned;
    change(now[1]);
    run.step.set_options(now);
    expect_error([&] { run.run(); }, name);
    EXPECT_EQ(run.image(), before) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StepOptions, testing::ValuesIn(all_words()),
                         [](const auto& param) { return param.param; });

TEST(StepOptionsOfAPlan, AreCheckedAheadOfAStep) {
  const Plan plan({Options::adamw(), Options::adamw()}, {spec_of({3, 4}), spec_of({4}, DType::f64, 1)},
                  public_backend_under_test());
  Options faster = Options::adamw();
  faster.beta2 = 0.95;
  plan.check_options({faster, Options::adamw()});
  Options coded = faster;
  coded.momentum_dtype = CAME_DTYPE_I8;
  expect_error([&] { plan.check_options({faster, coded}); }, "group 1", "momentum_dtype");
  expect_error([&] { plan.check_options({faster}); }, "group_count: 1", "expected 2");
}

TEST(StepOptionsOfAnOptimizer, AreSetByGroupAndOnlyWhereStateStays) {
  std::vector<double> w(12, 1), v(12, 1), g(12, 0.5);
  const std::vector<int64_t> shape{3, 4};
  Options options = Options::came();
  Optimizer one(options, {{"w", {w.data(), shape}, {g.data(), shape}}}, Backend::reference);
  Options slower = options;
  slower.lr = 1e-5;
  slower.weight_decay = 0.1;
  Optimizer other(slower, {{"w", {v.data(), shape}, {g.data(), shape}}}, Backend::reference);
  one.set_options(0, slower);
  one.step();
  other.step();
  EXPECT_EQ(w, v);
  one.set_lr(1e-2);
  slower.lr = 1e-2;
  other.set_options(0, slower);
  one.step();
  other.step();
  EXPECT_EQ(w, v);
  const std::vector<double> before = w;
  slower.confidence_1d = 1;
  expect_error([&] { one.set_options(0, slower); }, "confidence_1d");
  expect_error([&] { one.set_options(1, options); }, "group: 1");
  EXPECT_EQ(w, before);
}

}  // namespace
}  // namespace came::test
