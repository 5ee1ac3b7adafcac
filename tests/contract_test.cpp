// The numerics contract: what a step must leave alone, and that no tensor spoils another.
#include <limits>
#include <memory>

#include "support.hpp"

namespace came::test {
namespace {

class Contract : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<TensorSpec> specs() {
    std::vector<TensorSpec> list;
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      list.push_back(spec_of({5, 7}, dtype));
      list.push_back(spec_of({2, 3, 4}, dtype));
      list.push_back(spec_of({9}, dtype));
      list.push_back(spec_of({}, dtype));
    }
    list.push_back(spec_of({67, 65}, DType::f32));  // not small: rows are owned, columns reduced
    for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
    return list;
  }
  /// Default options, all options at once, and these with every moment in codes.
  static std::vector<Options> variants() {
    Options all(GetParam());
    all.cautious = all.stochastic_rounding = 1;
    all.max_grad_norm = 1;
    all.weight_decay = 0.1;
    if (all.word() == "came") all.confidence_1d = 1;
    if (all.word() == "adafactor") all.scale_parameter = 1;
    Options coded = all;
    coded.momentum_dtype = CAME_DTYPE_I8;
    if (has_second_moment(all.word())) coded.second_moment_dtype = CAME_DTYPE_I8;
    if (all.word() == "came") all.bias_correction = 0;
    return {Options(GetParam()), all, coded};
  }
};

TEST_P(Contract, FoundInfLeavesEveryByteUnchanged) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.fill_grads(2);
    run.run();
    const Bytes before = run.image();
    run.grad(0).set(3, std::numeric_limits<double>::infinity());
    const float one = 1;
    const TensorView found_inf(&one);
    run.step.found_inf = &found_inf;
    const float scale = 0;  // what a scaler may hold when it overflowed
    const TensorView grad_scale(&scale);
    run.step.grad_scale = &grad_scale;
    run.run();
    EXPECT_EQ(run.image(), before);

    const float zero = 0;
    const TensorView none(&zero);
    run.step.found_inf = &none;
    run.step.grad_scale = nullptr;
    run.fill_grads(3);
    run.run();
    EXPECT_NE(run.image(), before);
    EXPECT_EQ(run.counters[0], 2);
  }
}

TEST_P(Contract, ZeroGradientWithZeroRateLeavesParametersAloneAndStateFinite) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.param(0).set(0, -0.0);
    Bytes before;
    for (const Buffer& p : run.params) before += p.bytes();
    double lr = 0;
    const TensorView rate(&lr);
    run.step.lr = &rate;
    for (int step = 0; step < 3; ++step) run.run();
    Bytes after;
    for (const Buffer& p : run.params) after += p.bytes();
    EXPECT_EQ(after, before);
    run.for_each_state([&](size_t s, int64_t i) { EXPECT_TRUE(std::isfinite(run.state(s).get(i))); });
  }
}

TEST_P(Contract, ZeroGradientWithZeroRateKeepsSignsOfZeros) {
  std::vector<Options> all = variants();
  all.emplace_back(GetParam());
  all.back().maximize = 1;
  for (const Options& options : all) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.fill_grads(2);
    run.run();  // leaves momentum of either sign
    run.for_each_element([&](size_t k, int64_t local, int64_t) {
      run.param(k).set(local, local % 3 == 0 ? 0.0 : -0.0);
      run.grad(k).set(local, 0);
    });
    Bytes before;
    for (const Buffer& p : run.params) before += p.bytes();
    double lr = 0;
    const TensorView rate(&lr);
    run.step.lr = &rate;
    run.run();
    Bytes after;
    for (const Buffer& p : run.params) after += p.bytes();
    EXPECT_EQ(after, before);
  }
}

TEST_P(Contract, NanInOneGradientDoesNotReachAnotherTensor) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.fill_grads(2);
    run.grad(4).set(0, std::numeric_limits<double>::quiet_NaN());
    run.run();
    run.fill_grads(3);
    run.run();
    run.for_each_element([&](size_t k, int64_t local, int64_t) {
      EXPECT_TRUE(k == 4 || std::isfinite(run.param(k).get(local))) << "tensor " << k;
    });
    EXPECT_TRUE(std::isnan(run.param(4).get(0)));
  }
}

TEST_P(Contract, NormThatIsNotFiniteGivesOtherTensorsAZeroGradient) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Options o(GetParam());
    o.max_grad_norm = 1;
    o.weight_decay = 0;
    Trial run({o}, {spec_of({5, 7}), spec_of({9})});
    run.fill_params(1);
    run.fill_grads(2);
    run.grad(1).set(0, bad);
    const Bytes before = run.params[0].bytes();
    run.run();
    EXPECT_EQ(run.params[0].bytes(), before);
  }
}

TEST_P(Contract, StepCounterMayBeOfAnyOfItsTypes) {
  const auto last = [&](auto counter) {
    Trial run({Options(GetParam())}, {spec_of({5, 7})});
    run.fill_params(1);
    const TensorView view(&counter);
    run.step.step = &view;
    for (uint64_t k = 0; k < 4; ++k) {
      run.fill_grads(k);
      run.run();
    }
    EXPECT_EQ(counter, 4);
    return run.params[0].bytes();
  };
  EXPECT_EQ(last(int64_t{0}), last(0.0F));
  EXPECT_EQ(last(int64_t{0}), last(0.0));
}

TEST_P(Contract, ScaledGradientsGiveTheSameStep) {
  const auto last = [&](double scale) {
    Trial run({Options(GetParam())}, {spec_of({5, 7}), spec_of({9})});
    run.fill_params(1);
    const TensorView view(&scale);
    run.step.grad_scale = &view;
    for (uint64_t k = 0; k < 4; ++k) {
      run.fill_grads(k);
      run.for_each_element([&](size_t t, int64_t i, int64_t) { run.grad(t).set(i, run.grad(t).get(i) * scale); });
      run.run();
    }
    return run.params[0].bytes() + run.params[1].bytes();
  };
  EXPECT_EQ(last(1), last(1024));  // a power of two: exact
}

TEST_P(Contract, GroupsHaveTheirOwnRates) {
  Options slow(GetParam());
  Options fast(GetParam());
  slow.lr = 0;
  slow.weight_decay = fast.weight_decay = 0;
  Trial run({slow, fast}, {spec_of({5, 7}, DType::f64, 0), spec_of({5, 7}, DType::f64, 1)});
  run.fill_params(1);
  run.fill_grads(2);
  const Bytes first = run.params[0].bytes();
  const Bytes second = run.params[1].bytes();
  run.run();
  EXPECT_EQ(run.params[0].bytes(), first);
  EXPECT_NE(run.params[1].bytes(), second);
}

TEST_P(Contract, InactiveTensorsAreLeftAlone) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    Trial without({options}, {specs()[1]});
    run.fill_params(1);
    run.fill_grads(2);
    std::memcpy(without.params[0].data(), run.params[1].data(), run.params[1].bytes().size());
    std::memcpy(without.grads[0].data(), run.grads[1].data(), run.grads[1].bytes().size());
    std::vector<uint8_t> active(run.params.size(), 0);
    active[1] = 1;
    run.step.active = active.data();
    run.grad_views[0].data = nullptr;  // an inactive tensor needs no gradient
    const auto others = [&] {
      Bytes all;
      for (size_t k = 0; k < run.params.size(); ++k) {
        const core::Tensor& t = run.plan.tensors[k];
        if (k == 1) continue;
        all += run.params[k].bytes();
        for (size_t s = 0; s < t.states.size(); ++s) all += run.states[static_cast<size_t>(t.first_state) + s].bytes();
      }
      return all;
    };
    const Bytes before = others();
    run.run();
    without.run();
    EXPECT_EQ(others(), before);
    EXPECT_EQ(run.params[1].bytes(), without.params[0].bytes());
    EXPECT_EQ(run.counters[0], 0);
    EXPECT_EQ(run.counters[1], 1);
  }
}

// What one tensor computes must depend on its own group's options and its own counter alone.
TEST_P(Contract, TensorOfAMixedPlanStepsAsIfAlone) {
  std::vector<Options> groups(4, Options(GetParam()));
  groups[1].cautious = 1;
  groups[1].lr = 3e-3;
  groups[2].weight_decay = 0.3;
  groups[2].maximize = 1;
  groups[3].momentum_dtype = CAME_DTYPE_BF16;
  if (groups[0].word() == "came") groups[2].confidence_1d = 1, groups[3].bias_correction = 0;
  if (groups[0].word() == "adafactor") {
    groups[2].beta1 = 0;
    groups[3].scale_parameter = groups[3].lr_in_momentum = 1;
  }
  if (groups[0].word() == "sm3") groups[2].beta1 = 0;
  if (has_second_moment(groups[0].word())) groups[3].second_moment_dtype = CAME_DTYPE_I8;
  std::vector<TensorSpec> specs;
  for (int g = 0; g < 4; ++g) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{5, 7}, {67, 65}, {9}}) {
      specs.push_back(spec_of(shape, DType::f64, g));
      specs.back().id = specs.size();
    }
  }
  Trial mixed(groups, specs);
  mixed.fill_params(1);
  for (size_t k = 0; k < specs.size(); ++k) mixed.counters[k] = static_cast<int64_t>(3 * k);
  std::vector<std::unique_ptr<Trial>> alone;
  for (size_t k = 0; k < specs.size(); ++k) {
    TensorSpec spec = specs[k];
    const auto group = static_cast<size_t>(spec.group);
    spec.group = 0;
    alone.push_back(std::make_unique<Trial>(std::vector<Options>{groups[group]}, std::vector<TensorSpec>{spec}));
    std::memcpy(alone[k]->params[0].data(), mixed.params[k].data(), mixed.params[k].bytes().size());
    alone[k]->counters[0] = mixed.counters[k];
  }
  for (uint64_t step = 0; step < 4; ++step) {
    mixed.fill_grads(step);
    mixed.run();
    for (size_t k = 0; k < specs.size(); ++k) {
      mixed.for_each_element([&](size_t t, int64_t i, int64_t) {
        if (t == k) alone[k]->grad(0).set(i, mixed.grad(k).get(i));
      });
      alone[k]->run();
    }
  }
  for (size_t k = 0; k < specs.size(); ++k) {
    EXPECT_EQ(mixed.params[k].bytes(), alone[k]->params[0].bytes()) << "tensor " << k;
    EXPECT_EQ(mixed.counters[k], alone[k]->counters[0]);
  }
}

TEST(ContractSm3, NanStaysInItsCovers) {
  Options o = Options::sm3();
  const core::Tiling tiling{.elements = 200, .cols = 40};
  Trial run({o}, {spec_of({67, 71})}, &tiling);
  run.fill_params(1);
  run.fill_grads(2);
  run.grad(0).set(0, std::numeric_limits<double>::quiet_NaN());
  run.run();
  EXPECT_TRUE(std::isnan(run.state(1).get(0)));  // its row
  EXPECT_TRUE(std::isnan(run.state(2).get(0)));  // its column
  EXPECT_FALSE(std::isnan(run.state(1).get(1)));
}

TEST_P(Contract, GradientsAreNeverWritten) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.fill_grads(2);
    Bytes before;
    for (const Buffer& g : run.grads) before += g.bytes();
    run.run();
    Bytes after;
    for (const Buffer& g : run.grads) after += g.bytes();
    EXPECT_EQ(after, before);
  }
}

TEST_P(Contract, TensorsTogetherOrOneByOneGiveTheSameBits) {
  Options o(GetParam());
  o.stochastic_rounding = 1;
  if (has_second_moment(GetParam())) o.second_moment_dtype = CAME_DTYPE_I8;
  const std::vector<TensorSpec> list = specs();
  Trial together({o}, list);
  together.fill_params(1);
  for (uint64_t step = 0; step < 3; ++step) {
    together.fill_grads(5 + step);
    together.run();
  }
  for (size_t k = 0; k < list.size(); ++k) {
    Trial alone({o}, {list[k]});
    // The tensor's own numbers: those it had in the list.
    Trial source({o}, list);
    source.fill_params(1);
    std::memcpy(alone.params[0].data(), source.params[k].data(), source.params[k].bytes().size());
    for (uint64_t step = 0; step < 3; ++step) {
      source.fill_grads(5 + step);
      std::memcpy(alone.grads[0].data(), source.grads[k].data(), source.grads[k].bytes().size());
      alone.run();
    }
    EXPECT_EQ(alone.params[0].bytes(), together.params[k].bytes()) << "tensor " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Contract, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
