// Second moments in 8 bits: codes, layout, and steps that store what they should.
#include <limits>
#include <set>

#include "algorithms/quantize.hpp"
#include "support.hpp"

namespace came::test {
namespace {

using algorithms::decode_second_moment;
using algorithms::encode_second_moment;
using algorithms::kLevelsSecondMoment;
using algorithms::kMomentumBlock;
using algorithms::second_moment_scale;

constexpr float kLeast = std::numeric_limits<float>::min();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<float> kScales{0x1p-94F, 1e-20F, 0.3F, 1.0F, 7e9F, kLargest};

TEST(SecondMomentCodes, StandForThemselvesWhateverIsDrawn) {
  for (const float scale : kScales) {
    for (const uint32_t random : {0U, 0x7fffffffU, 0xffffffffU}) {
      for (int code = 0; code <= kLevelsSecondMoment; ++code) {
        ASSERT_EQ(encode_second_moment(decode_second_moment(code, scale), scale, random), code) << scale;
      }
    }
    EXPECT_EQ(decode_second_moment(kLevelsSecondMoment, scale), scale);
    EXPECT_EQ(decode_second_moment(0, scale), 0.0F);
  }
}

TEST(SecondMomentCodes, GrowWithTheValue) {
  for (const float scale : kScales) {
    for (int code = 1; code <= kLevelsSecondMoment; ++code) {
      ASSERT_LT(decode_second_moment(code - 1, scale), decode_second_moment(code, scale));
    }
    for (const uint32_t random : {0U, 0x80000000U, 0xffffffffU}) {
      int previous = 0;
      for (double part = 1e-12; part <= 1; part *= 1.001) {
        const int code = encode_second_moment(static_cast<float>(part * double(scale)), scale, random);
        ASSERT_GE(code, previous) << part << " of " << scale;
        previous = code;
      }
      EXPECT_GE(previous, kLevelsSecondMoment - 1);
    }
  }
}

// A draw has a standard deviation of at most half the distance of two codes, so the mean of 20000 one of 0.0036
// distances; a distance is 4 / code of the value: 1 % of bias is 0.6 distances at the largest code, 0.05 at code 20.
TEST(SecondMomentCodes, AreOneOfTheTwoAroundAndUnbiased) {
  constexpr int kDraws = 20000;
  for (const float scale : kScales) {
    for (const int code : {1, 2, 20, 100, 200, 254}) {
      for (const double part : {0.02, 0.5, 0.93}) {
        const double low = decode_second_moment(code, scale);
        const double high = decode_second_moment(code + 1, scale);
        const auto v = static_cast<float>(low + part * (high - low));
        const double chance = (double(v) - low) / (high - low);  // v itself is rounded
        const uint64_t key = algorithms::rounding_key(1, uint64_t(code), 3, algorithms::Stream::second_moment);
        int up = 0;
        for (uint64_t k = 0; k < kDraws; ++k) {
          const int given = encode_second_moment(v, scale, algorithms::random_bits(key, k));
          ASSERT_TRUE(given == code || given == code + 1) << given << " around " << code;
          up += given - code;
        }
        EXPECT_NEAR(double(up) / kDraws, chance, 4.5 * 0.0036) << scale << " code " << code << " part " << part;
      }
    }
  }
}

TEST(SecondMomentCodes, OfWhatIsPositiveAreNeverZero) {
  for (float largest = 1e-45F; largest < kInfinity; largest *= 3.7F) {
    const float scale = second_moment_scale(largest);
    ASSERT_GE(scale, largest);
    for (float v = largest; v > 0; v /= 100) {
      for (const uint32_t random : {0U, 0xffffffffU}) {
        const int code = encode_second_moment(v, scale, random);
        ASSERT_GE(code, 1) << v << " of " << largest;
        ASSERT_LE(code, kLevelsSecondMoment);
        ASSERT_GE(decode_second_moment(code, scale), kLeast) << v << " of " << largest;
      }
    }
    ASSERT_EQ(encode_second_moment(0.0F, scale, 0), 0);
  }
  EXPECT_EQ(second_moment_scale(0.0F), 0.0F);
  EXPECT_EQ(encode_second_moment(0.0F, 0.0F, 0), 0);
  EXPECT_EQ(second_moment_scale(0.3F), 0.3F);
}

TEST(SecondMomentCodes, OfABlockThatIsNotFiniteAreNotFinite) {
  EXPECT_TRUE(std::isnan(second_moment_scale(kNan)));
  for (const float v : {0.0F, 1.0F, kInfinity, kNan}) {
    EXPECT_TRUE(std::isnan(decode_second_moment(encode_second_moment(v, kNan, 5), kNan))) << v;
  }
  EXPECT_EQ(second_moment_scale(kInfinity), kInfinity);
  for (const float v : {1.0F, kInfinity}) {
    EXPECT_EQ(decode_second_moment(encode_second_moment(v, kInfinity, 5), kInfinity), kInfinity) << v;
  }
}

Options with_codes(const std::string& word, const char* momentum_dtype = "default") {
  Options o(word);
  o.set("second_moment_dtype", "int8").set("momentum_dtype", momentum_dtype);
  return o;
}

using Sizes = std::vector<int64_t>;

TEST(SecondMomentLayout, HasScalesPerBlockOfARow) {
  for (const std::string& word : words_with_second_moment()) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      const std::vector<StateSpec> states = layout(with_codes(word, "int8"), spec_of({5, 300}, dtype));
      ASSERT_EQ(states.size(), 4U);
      EXPECT_EQ(states[2].name, "exp_avg_sq");
      EXPECT_EQ(states[2].dtype, DType::u8);
      EXPECT_EQ(states[2].shape, (Sizes{5, 300}));
      EXPECT_EQ(states[3].name, "exp_avg_sq_scale");
      EXPECT_EQ(states[3].dtype, DType::f32);
      EXPECT_EQ(states[3].shape, (Sizes{5, 3}));
    }
  }
  EXPECT_EQ(layout(with_codes("adamw"), spec_of({8, 4, 3, 3}))[2].shape, (Sizes{8, 1}));
}

TEST(SecondMomentLayout, IsForMatricesOnly) {
  for (const Sizes& shape : std::vector<Sizes>{{}, {300}}) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      const std::vector<StateSpec> states = layout(with_codes("adamw"), spec_of(shape, dtype));
      ASSERT_EQ(states.size(), 2U);
      EXPECT_EQ(states[1].name, "exp_avg_sq");
      EXPECT_EQ(states[1].dtype, dtype == DType::f64 ? DType::f64 : DType::f32);
      EXPECT_EQ(states[1].shape, shape);
    }
  }
}

TEST(SecondMomentLayout, BothMomentsCostTwoBytes) {
  const came_memory m = estimate({with_codes("adamw", "int8")}, {spec_of({4096, 1024}, DType::f32)});
  EXPECT_EQ(m.state_bytes * 16, m.parameter_bytes / 4 * 33);  // 2 (1 + 4 / 128) = 2.0625 bytes
}

/// The second moment of a trial's only tensor, decoded from its state by a way of its own.
struct Stored {
  Trial& run;
  int64_t cols;

  [[nodiscard]] float scale(int64_t i, int64_t j) const {
    const int64_t blocks = (cols + kMomentumBlock - 1) / kMomentumBlock;
    return static_cast<float>(run.state(2).get(i * blocks + j / kMomentumBlock));
  }
  [[nodiscard]] int code(int64_t i, int64_t j) const { return static_cast<int>(run.state(1).get(i * cols + j)); }
  [[nodiscard]] double value(int64_t i, int64_t j) const { return decode_second_moment(code(i, j), scale(i, j)); }
};

// Any other backend is held to this: the code is a function of the average, the scale and the key of the draw.
TEST(SecondMomentStep, StoresTheDrawnCodeOfTheAverage) {
  // The average itself is exact in f64; in f32 its rate, square, difference, product and sum are rounded.
  const float slack = &backend_under_test() == &core::reference_backend() ? 0.0F : 5 * 0x1p-24F;
  for (const std::string& word : words_with_second_moment()) {
    for (const Sizes& shape : std::vector<Sizes>{{3, 300}, {5, 7}, {2, 257}, {1, 129}, {3, 1}}) {
      const int64_t rows = shape[0];
      const int64_t cols = shape[1];
      Options o = with_codes(word);
      o.seed = 11;
      o.weight_decay = 0;  // Adam's would enter the average
      TensorSpec spec = spec_of(shape, DType::f32);
      spec.id = 5;
      Trial run({o}, {spec});
      run.fill_params(1);
      for (uint64_t step = 0; step < 20; ++step) {
        run.fill_grads(step);
        const Stored stored{run, cols};
        std::vector<double> exact;
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const double g = run.grad(0).get(i * cols + j);
            exact.push_back(o.beta2 * stored.value(i, j) + (1 - o.beta2) * (g * g));
          }
        }
        run.run();
        const uint64_t key = algorithms::rounding_key(11, step + 1, 5, algorithms::Stream::second_moment);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const auto first = exact.begin() + i * cols + j / kMomentumBlock * kMomentumBlock;
            const auto last = exact.begin() + std::min((i + 1) * cols, first - exact.begin() + kMomentumBlock);
            const auto scale = static_cast<float>(*std::max_element(first, last));
            const auto v = static_cast<float>(exact[static_cast<size_t>(i * cols + j)]);
            const uint32_t random = algorithms::random_bits(key, static_cast<uint64_t>(i * cols + j));
            ASSERT_NEAR(stored.scale(i, j), scale, slack * scale) << word << " step " << step;
            const auto code_of = [&](float moved) { return encode_second_moment(moved, stored.scale(i, j), random); };
            ASSERT_GE(stored.code(i, j), code_of(v * (1 - slack))) << word << " step " << step;
            ASSERT_LE(stored.code(i, j), code_of(v * (1 + slack))) << word << " step " << step;
          }
        }
      }
    }
  }
}

// The parameters must move by the stored value: the next step's state could not tell.
TEST(SecondMomentStep, MovesByTheStoredValue) {
  Options o = with_codes("adamw");
  o.weight_decay = 0;
  Trial run({o}, {spec_of({1, 200})});
  for (uint64_t step = 1; step <= 5; ++step) {
    std::vector<double> old;
    for (int64_t j = 0; j < 200; ++j) old.push_back(run.param(0).get(j));
    run.fill_grads(step);
    run.run();
    const double correction1 = 1 - std::pow(o.beta1, double(step));
    const double correction2 = 1 - std::pow(o.beta2, double(step));
    for (int64_t j = 0; j < 200; ++j) {
      const double m = run.state(0).get(j) / correction1;
      const double v = Stored{run, 200}.value(0, j) / correction2;
      const double move = o.lr * m / (std::sqrt(v) + o.eps);
      const double expected = old[static_cast<size_t>(j)] - move;
      // Half a unit for each rounding, here and there: of the difference, of the eight or fewer numbers that make the
      // move, and of the powers of the betas, which counts as much more as 1 is larger than the correction.
      const double roundings_of_move = 8 + 1 / correction1 + 1 / correction2;
      const double bound = 2 * 0x1p-53 * (std::abs(expected) + roundings_of_move * std::abs(move));
      ASSERT_NEAR(run.param(0).get(j), expected, bound);
    }
  }
}

/// How far apart two paths are, in lengths of the first: RMS over elements, and the mean.
struct Apart {
  double rms = 0;
  double mean = 0;
};

/// 300 steps with gradients `size` (1 + n/2), n normal, with an exact and with a coded second moment.  `warm` starts
/// both from the average that gradients of size 1 have after many steps.
Apart three_hundred_steps(const std::string& word, double size, bool warm) {
  constexpr int64_t kElements = 70 * 260;
  Trial plain({Options(word)}, {spec_of({70, 260}, DType::f32)});
  Trial coded({with_codes(word)}, {spec_of({70, 260}, DType::f32)});
  for (Trial* run : {&plain, &coded}) {
    run->fill_params(1);
    if (warm) run->counters[0] = 100000;
  }
  for (int64_t i = 0; warm && i < kElements; ++i) {
    plain.state(1).set(i, 1.25);
    coded.state(1).set(i, kLevelsSecondMoment);
  }
  for (int64_t i = 0; warm && i < 70 * 3; ++i) coded.state(2).set(i, 1.25);
  std::vector<double> origin;
  for (int64_t i = 0; i < kElements; ++i) origin.push_back(plain.param(0).get(i));
  for (uint64_t step = 0; step < 300; ++step) {
    plain.fill_grads(step);
    for (int64_t i = 0; i < kElements; ++i) {
      const double g = size * (1 + 0.5 * plain.grad(0).get(i));
      plain.grad(0).set(i, g);
      coded.grad(0).set(i, g);
    }
    plain.run();
    coded.run();
  }
  Apart apart;
  double squares = 0;
  double length = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    const double path = plain.param(0).get(i) - origin[static_cast<size_t>(i)];
    const double difference = coded.param(0).get(i) - plain.param(0).get(i);
    apart.rms += difference * difference;
    apart.mean += difference;
    squares += path * path;
    length += path;
  }
  return {std::sqrt(apart.rms / squares), apart.mean / length};
}

// In step t a draw adds an error of variance d s to v, relatively: d = 4 / code is the distance to the next code, s the
// part by which v and its scale moved against the codes.  Such gradients move either by 0.7/t on average, both together
// by s = 1/t, and later growth dilutes the error by t/T: at step T the variance is d/2, and d/4 in the mean over all
// steps, to which the path is proportional.  Averages lie at 0.8 of the largest of their block: code 241, d = 0.017.
// The root of v, and so the path, is off by half of sqrt(d/4): 3.3 % RMS.  The mean over all elements is exact but for
// the root's curvature, 3/8 of the variance of v: 0.3 %.
TEST(SecondMomentStep, FollowsTheExactPathForThreeHundredSteps) {
  for (const std::string& word : words_with_second_moment()) {
    const Apart apart = three_hundred_steps(word, 1.0, false);
    EXPECT_LE(apart.rms, 0.033) << word;
    EXPECT_LE(std::abs(apart.mean), 0.003) << word;
    EXPECT_GT(apart.rms, 0.0);
  }
}

// Gradients fall to a half after a long time: v moves by 0.1 % a step, of which codes 1.6 % apart must not lose
// anything.  Here s = 0.002 at most: after 300 steps a variance of 300 d s = 0.01, a third of it in the mean over all
// steps: the path is off by half of its root, 2.9 % RMS, and by 3/8 of half of 0.01, 0.2 %, on average.
TEST(SecondMomentStep, FollowsGradientsThatFall) {
  for (const std::string& word : words_with_second_moment()) {
    const Apart apart = three_hundred_steps(word, 0.5, true);
    EXPECT_LE(apart.rms, 0.029) << word;
    EXPECT_LE(std::abs(apart.mean), 0.002) << word;
    EXPECT_GT(apart.rms, 0.0);
  }
}

// Gradients far below those of their block must not take steps of m / eps.
TEST(SecondMomentStep, SmallGradientsBesideLargeOnesMoveNoFurther) {
  for (const std::string& word : words_with_second_moment()) {
    Options o = with_codes(word);
    o.eps = 1e-30;
    o.weight_decay = 0;
    Trial run({o}, {spec_of({1, 128})});
    run.fill_params(1);
    std::vector<double> origin;
    for (int64_t j = 0; j < 128; ++j) origin.push_back(run.param(0).get(j));
    for (uint64_t step = 0; step < 30; ++step) {
      run.fill_grads(step);
      for (int64_t j = 1; j < 128; ++j) run.grad(0).set(j, run.grad(0).get(j) * std::pow(10.0, -double(j) / 8));
      run.run();
    }
    // Adam moves by at most about lr a step; LAMB's trust ratio may multiply that, for all elements alike.
    const double first = std::abs(run.param(0).get(0) - origin[0]);
    EXPECT_GT(first, 0);
    for (int64_t j = 1; j < 128; ++j) {
      EXPECT_LE(std::abs(run.param(0).get(j) - origin[static_cast<size_t>(j)]), 30 * first) << word << " " << j;
    }
  }
}

TEST(SecondMomentStep, DoesNotDependOnTilesOrShards) {
  const Options o = with_codes("adamw", "int8");
  const core::Tiling tiling{.elements = 300, .cols = 100};
  Trial whole({o}, {spec_of({20, 301})});
  Trial tiled({o}, {spec_of({20, 301})}, &tiling);
  EXPECT_GT(tiled.plan.tiles.size(), 20U);
  // Codes of the second moment alone keep blocks in one tile as well.
  Trial second({with_codes("adamw")}, {spec_of({20, 301})});
  Trial second_tiled({with_codes("adamw")}, {spec_of({20, 301})}, &tiling);
  for (Trial* run : {&whole, &tiled, &second, &second_tiled}) run->fill_params(1);
  for (uint64_t step = 0; step < 5; ++step) {
    for (Trial* run : {&whole, &tiled, &second, &second_tiled}) {
      run->fill_grads(step);
      run->run();
    }
  }
  EXPECT_EQ(whole.image(), tiled.image());
  EXPECT_EQ(second.image(), second_tiled.image());
}

TEST(SecondMomentStep, DrawsAnewForEverySeedStepAndTensor) {
  const auto codes = [](uint64_t seed, int64_t first_step, uint64_t id) {
    Options o = with_codes("adamw");
    o.seed = seed;
    TensorSpec spec = spec_of({20, 30});
    spec.id = id;
    Trial run({o}, {spec});
    run.counters[0] = first_step;
    run.fill_grads(2);
    run.run();
    return run.states[1].bytes().data;
  };
  EXPECT_EQ(codes(7, 0, 1), codes(7, 0, 1));
  EXPECT_EQ((std::set<std::string>{codes(7, 0, 1), codes(8, 0, 1), codes(7, 1, 1), codes(7, 0, 2)}).size(), 4U);
}

TEST(SecondMomentStep, NanIsNotLost) {
  Trial run({with_codes("adamw")}, {spec_of({2, 300})});
  run.fill_params(1);
  run.fill_grads(2);
  run.grad(0).set(130, kNan);
  run.run();
  EXPECT_TRUE(std::isnan(run.state(2).get(1)));  // the scale of its block
  EXPECT_TRUE(std::isnan(run.param(0).get(130)));
  EXPECT_TRUE(std::isnan(run.param(0).get(131)));
  EXPECT_FALSE(std::isnan(run.param(0).get(127)));  // another block
  EXPECT_FALSE(std::isnan(run.param(0).get(256)));
}

TEST(SecondMomentPlan, ShardThatCutsABlockIsRefused) {
  TensorSpec spec = spec_of({20, 301});
  spec.shard = Shard{2, {0, 0}, {20, 100}};
  expect_error([&] { Plan({with_codes("lamb")}, {spec}); }, "'w'", "[0, 100)", "int8 second moment",
               "shard of rows, or of columns by multiples of 128; or second_moment_dtype default");
}

TEST(SecondMomentPlan, NeedsAnIdForEveryMatrix) {
  TensorSpec second = spec_of({1, 2});
  second.id = 7;
  EXPECT_NO_THROW(Plan({with_codes("adamw")}, {spec_of({1, 2}), second, spec_of({2}), spec_of({})}));
  expect_error(
      [&] {
        Plan({with_codes("adamw")}, {spec_of({1, 2}), second, second});
      },
      "tensor 2 'w'", "id is 7 as that of tensor 1 'w'");
}

}  // namespace
}  // namespace came::test
