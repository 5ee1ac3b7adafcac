// Element types: every stored number is the exact step rounded once; stochastic rounding is right on average.
#include "support.hpp"

namespace came::test {
namespace {

/// Half the distance between neighbours, relative to the value (2^-p for p bits of significand), and the least
/// absolute one where the type runs out of exponents.
struct Precision {
  double relative;
  double absolute;
};

Precision precision(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {std::ldexp(1, -24), std::ldexp(1, -150)};
    case DType::bf16:
      return {std::ldexp(1, -8), std::ldexp(1, -134)};
    case DType::f16:
      return {std::ldexp(1, -11), std::ldexp(1, -25)};
    default:
      return {0, 0};
  }
}

struct Types {
  DType param;
  DType grad;
  DType momentum;
};

class OneRounding : public testing::TestWithParam<std::string> {
 protected:
  static void check(const std::vector<std::vector<int64_t>>& shapes, uint64_t steps);
};

// At every step an f64 run starts from the numbers of the narrow one, so errors cannot pile up and hide: what the
// narrow run stores may differ by one rounding, and by what the rounded statistics and momentum change in the move.
void OneRounding::check(const std::vector<std::vector<int64_t>>& shapes, uint64_t steps) {
  for (const Types& types : {Types{DType::f32, DType::f32, DType::f32}, Types{DType::bf16, DType::bf16, DType::f32},
                             Types{DType::bf16, DType::f32, DType::bf16}, Types{DType::f16, DType::f16, DType::f32},
                             Types{DType::f32, DType::bf16, DType::bf16}}) {
    std::vector<TensorSpec> narrow_specs;
    std::vector<TensorSpec> wide_specs;
    for (const auto& shape : shapes) {
      TensorSpec spec = spec_of(shape, types.param);
      spec.grad_dtype = types.grad;
      narrow_specs.push_back(spec);
      wide_specs.push_back(spec_of(shape, DType::f64));
    }
    Options o(GetParam());
    o.lr = 1e-2;
    // LAMB's decay is inside its trust ratio, whose size the bound below does not know.
    o.weight_decay = GetParam() == "lamb" ? 0.0 : 0.01;
    Trial wide({o}, wide_specs);
    o.momentum_dtype = static_cast<came_dtype>(types.momentum);
    Trial narrow({o}, narrow_specs);
    narrow.fill_params(1);

    const Precision of_param = precision(types.param);
    // In units of 2^-24: row, column and mean average under a root, and again in the RMS, make 3 in the update; the
    // residual doubles that, its three averages under a root make 9 more; the momentum in f32 makes 1.  Rounded up.
    // A narrower momentum counts twice: in the direction, and for LAMB in the norm of all directions.
    const double of_move = 16 * std::ldexp(1, -24) + 2 * precision(types.momentum).relative;
    for (uint64_t step = 0; step < steps; ++step) {
      narrow.fill_grads(step);
      narrow.for_each_element([&](size_t k, int64_t i, int64_t) {
        wide.param(k).set(i, narrow.param(k).get(i));
        wide.grad(k).set(i, narrow.grad(k).get(i));
      });
      std::vector<double> old;
      wide.for_each_element([&](size_t k, int64_t i, int64_t) { old.push_back(wide.param(k).get(i)); });
      // Adam adds decay to the gradient: where the two cancel, the rounding of each is left in the moments.
      std::vector<double> cancelling(shapes.size(), 0.0);
      if (GetParam() == "adam") {
        wide.for_each_element([&](size_t k, int64_t i, int64_t) {
          const double term = o.weight_decay * std::abs(wide.param(k).get(i));
          cancelling[k] = std::max(cancelling[k], term * std::max(1.0, 2 * std::abs(wide.grad(k).get(i))));
        });
      }
      std::vector<double> old_state;
      narrow.for_each_state([&](size_t s, int64_t i) {
        wide.state(s).set(i, narrow.state(s).get(i));
        old_state.push_back(narrow.state(s).get(i));
      });
      wide.run();
      narrow.run();
      // Terms may cancel in a move and leave their errors: the largest direction of the tensor bounds them.
      std::vector<double> largest(shapes.size(), 0.0);
      size_t next = 0;
      wide.for_each_element([&](size_t k, int64_t i, int64_t) {
        const double decay = o.lr * o.weight_decay * std::abs(old[next]);
        largest[k] = std::max(largest[k], std::abs(wide.param(k).get(i) - old[next++]) + decay);
      });
      // An update that is clipped to an RMS of d, in which an element is at most d times the root of their number,
      // enters the momentum with 4 roundings of its own: they are left where it cancels the old momentum.
      const auto of_update = [&](size_t k) {
        const auto elements = static_cast<double>(wide.plan.tensors[k].local_elements);
        return 4 * std::ldexp(1, -24) * o.lr * (1 - o.beta1) * o.clip_threshold * std::sqrt(elements);
      };
      narrow.for_each_element([&](size_t k, int64_t i, int64_t) {
        const double exact = wide.param(k).get(i);
        const double bound =
            of_param.relative * std::abs(exact) + of_param.absolute + of_move * largest[k] + of_update(k);
        ASSERT_LE(std::abs(narrow.param(k).get(i) - exact), bound) << "step " << step << " tensor " << k;
      });
      next = 0;
      narrow.for_each_state([&](size_t s, int64_t i) {
        const double exact = wide.state(s).get(i);
        // One rounding of the result; and updates that rest on rounded statistics, residuals on a rounded momentum:
        // what enters an average is at most the sum of its new and its old value.
        const double rounded = std::ldexp(1, -24) * cancelling[wide.tensor_of_state(s)];
        const double entering = std::abs(exact) + std::abs(old_state[next++]);
        const double stored = precision(static_cast<DType>(narrow.state_views[s].dtype)).relative * std::abs(exact);
        ASSERT_NEAR(narrow.state(s).get(i), exact, stored + rounded + 2 * of_move * entering + std::ldexp(1, -140))
            << "step " << step << " state " << s;
      });
    }
  }
}

TEST_P(OneRounding, AtEveryStepInEveryType) { check({{6, 5}, {3, 2, 4}, {11}, {}}, 200); }

TEST_P(OneRounding, AtEveryStepOfAMatrixThatIsNotSmall) { check({{67, 65}}, 10); }

INSTANTIATE_TEST_SUITE_P(All, OneRounding, testing::ValuesIn(all_words()),
                         [](const auto& param) { return param.param; });

// A bf16 weight of 1 has neighbours 2^-8 below and 2^-7 above: an update of 1e-4 with a decay of 1e-5 rounds to
// nothing, yet must move the weight on average as it moves an f32 one.
TEST(StochasticRounding, SmallUpdatesMoveBf16WeightsOnAverage) {
  constexpr int64_t kWeights = 4000;
  constexpr int kSteps = 100;
  Options o = Options::adamw();
  o.lr = 1e-4;
  o.weight_decay = 0.1;  // times lr: 1e-5
  const auto mean_after = [&](DType dtype, bool stochastic) {
    o.stochastic_rounding = stochastic ? 1 : 0;
    Trial run({o}, {spec_of({kWeights}, dtype)});
    for (int64_t i = 0; i < kWeights; ++i) {
      run.param(0).set(i, 1.0);
      run.grad(0).set(i, 1.0);
    }
    for (int step = 0; step < kSteps; ++step) run.run();
    double sum = 0;
    for (int64_t i = 0; i < kWeights; ++i) sum += run.param(0).get(i);
    return sum / kWeights;
  };
  const double exact = mean_after(DType::f64, false);
  // With gradients of 1 both corrected moments are 1.  The mean of 4000 numbers below 1 rounds as often; steps of 1e-4
  // add less.
  double expected = 1;
  for (int step = 0; step < kSteps; ++step) expected -= 1e-5 * expected + 1e-4 / (1 + o.eps);
  EXPECT_NEAR(exact, expected, kWeights * 0x1p-53);
  EXPECT_EQ(mean_after(DType::bf16, false), 1.0);
  // Each step moves a weight by a neighbour's distance q = 2^-8 with probability p = 1.1e-4 / q: variance < p q^2, so
  // the mean of 4000 weights after 100 steps has a standard deviation below sqrt(100 * 1.1e-4 * q / 4000) = 1e-4;
  // four of them, against a displacement of 1.1e-2.
  EXPECT_NEAR(mean_after(DType::bf16, true), exact, 4e-4);
}

TEST(StochasticRounding, IsReproducedByItsSeedAndStep) {
  const auto image = [](uint64_t seed, int64_t first_step) {
    Options o = Options::came();
    o.stochastic_rounding = 1;
    o.momentum_dtype = CAME_DTYPE_BF16;
    o.seed = seed;
    Trial run({o}, {spec_of({20, 30}, DType::bf16)});
    run.fill_params(1);
    run.counters[0] = first_step;
    run.fill_grads(2);
    run.run();
    return run.params[0].bytes();
  };
  EXPECT_EQ(image(7, 0), image(7, 0));
  EXPECT_NE(image(7, 0), image(8, 0));
  EXPECT_NE(image(7, 0), image(7, 1));
}

}  // namespace
}  // namespace came::test
