// The numerics contract: what a step must leave alone, and that no tensor spoils another.
#include <limits>

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
    return list;
  }
  /// Default options, and all options at once.
  static std::vector<Options> variants() {
    Options all(GetParam());
    all.cautious = all.stochastic_rounding = 1;
    all.max_grad_norm = 1;
    all.weight_decay = 0.1;
    if (all.word() == "came") all.confidence_1d = all.bias_correction = 1;
    if (all.word() == "adafactor") all.scale_parameter = 1;
    return {Options(GetParam()), all};
  }
};

TEST_P(Contract, FoundInfLeavesEveryByteUnchanged) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.fill_grads(2);
    run.run();
    const std::string before = run.image();
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
    std::string before;
    for (const Buffer& p : run.params) before += p.bytes();
    double lr = 0;
    const TensorView rate(&lr);
    run.step.lr = &rate;
    for (int step = 0; step < 3; ++step) run.run();
    std::string after;
    for (const Buffer& p : run.params) after += p.bytes();
    EXPECT_EQ(after, before);
    run.for_each_state([&](size_t s, int64_t i) { EXPECT_TRUE(std::isfinite(run.state(s).get(i))); });
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
    const std::string before = run.params[0].bytes();
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

TEST_P(Contract, GroupsHaveTheirOwnRatesAndCounters) {
  Options slow(GetParam());
  Options fast(GetParam());
  slow.lr = 0;
  slow.weight_decay = fast.weight_decay = 0;
  Trial run({slow, fast}, {spec_of({5, 7}, DType::f64, 0), spec_of({5, 7}, DType::f64, 1)});
  run.fill_params(1);
  run.fill_grads(2);
  const std::string first = run.params[0].bytes();
  const std::string second = run.params[1].bytes();
  run.counters = {10, 20};
  run.run();
  EXPECT_EQ(run.params[0].bytes(), first);
  EXPECT_NE(run.params[1].bytes(), second);
  EXPECT_EQ(run.counters, (std::vector<int64_t>{11, 21}));
}

TEST_P(Contract, GradientsAreNeverWritten) {
  for (const Options& options : variants()) {
    Trial run({options}, specs());
    run.fill_params(1);
    run.fill_grads(2);
    std::string before;
    for (const Buffer& g : run.grads) before += g.bytes();
    run.run();
    std::string after;
    for (const Buffer& g : run.grads) after += g.bytes();
    EXPECT_EQ(after, before);
  }
}

TEST_P(Contract, TensorsTogetherOrOneByOneGiveTheSameBits) {
  Options o(GetParam());
  o.stochastic_rounding = 1;
  std::vector<TensorSpec> list = specs();
  for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
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
