// Momentum in 8 and 4 bits: codes, layout, and steps that store what they should.
#include "algorithms/quantize.hpp"

#include <limits>
#include <memory>

#include "support.hpp"

namespace came::test {
namespace {

using algorithms::decode;
using algorithms::encode;
using algorithms::kLevelsInt4;
using algorithms::kLevelsInt8;
using algorithms::kMomentumBlock;

// Half the distance between the two largest values, L^2 and (L-1)^2 over L^2: no element of a block is further off.
double worst(int levels) { return (levels - 0.5) / (double(levels) * levels); }

// With u = 2^-24, encoding rounds a magnitude twice, so that the middle between two codes is off by 2 u |m|, and
// decoding rounds a value three times.  So the code's value is off by 5 u of the scale, and one that is nearer by twice
// that at most.
constexpr double kRoundings = 5 * 0x1p-24;

TEST(Codes, AreTheNearestThereAre) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const int levels : {kLevelsInt8, kLevelsInt4}) {
    for (int k = 0; k < 20000; ++k) {
      const float scale = std::exp(20 * uniform(engine));
      const float m = scale * uniform(engine) * (k % 3 == 0 ? 0.01F : 1.0F);
      const auto apart = [&](int code) { return std::abs(double(decode(code, scale, levels)) - double(m)); };
      const int code = encode(m, scale, levels);
      ASSERT_LE(std::abs(code), levels);
      double best = apart(0);
      for (int other = -levels; other <= levels; ++other) best = std::min(best, apart(other));
      ASSERT_LE(apart(code), best + 2 * kRoundings * scale) << m << " of " << scale;
      ASSERT_LE(apart(code), (worst(levels) + kRoundings) * scale);
    }
  }
}

// 2^-21 beside a middle is more than two roundings of 2^-24 and that of the number itself.
TEST(Codes, ChangeAtTheMiddleBetweenTwoValues) {
  for (const int levels : {kLevelsInt8, kLevelsInt4}) {
    for (const float scale : {1.0F, 0.3F, 7e-20F, 3e20F}) {
      for (int k = 0; k < levels; ++k) {
        const double middle = (double(k) * k + k + 0.5) / (double(levels) * levels) * double(scale);
        EXPECT_EQ(encode(static_cast<float>(middle * (1 - 0x1p-21)), scale, levels), k) << scale;
        EXPECT_EQ(encode(static_cast<float>(-middle * (1 + 0x1p-21)), scale, levels), -k - 1) << scale;
      }
    }
  }
}

TEST(Codes, KeepZerosExtremesAndSigns) {
  for (const int levels : {kLevelsInt8, kLevelsInt4}) {
    EXPECT_EQ(encode(0.0F, 2.5F, levels), 0);
    EXPECT_EQ(encode(1.0F, 0.0F, levels), 0);
    EXPECT_EQ(decode(encode(2.5F, 2.5F, levels), 2.5F, levels), 2.5F);
    EXPECT_EQ(decode(encode(-2.5F, 2.5F, levels), 2.5F, levels), -2.5F);
    for (int code = -levels; code <= levels; ++code) EXPECT_EQ(encode(decode(code, 0.3F, levels), 0.3F, levels), code);
  }
  EXPECT_EQ(algorithms::usable_scale(1e-39F), 0.0F);
}

TEST(Codes, OfFourBitsShareABytePairwise) {
  for (int even = -7; even <= 7; ++even) {
    for (int odd = -7; odd <= 7; ++odd) {
      const uint8_t byte = algorithms::pack_int4(algorithms::pack_int4(0xa5, false, even), true, odd);
      EXPECT_EQ(algorithms::unpack_int4(byte, false), even);
      EXPECT_EQ(algorithms::unpack_int4(byte, true), odd);
    }
  }
}

Options with_codes(const std::string& word, const char* dtype) {
  Options o(word);
  o.set("momentum_dtype", dtype);
  return o;
}

using Sizes = std::vector<int64_t>;

TEST(CodesLayout, HasScalesPerBlockOfARow) {
  const auto shapes = [](const char* dtype, const Sizes& shape) {
    const std::vector<StateSpec> states = layout(with_codes("came", dtype), spec_of(shape, DType::bf16));
    EXPECT_EQ(states[0].name, "exp_avg");
    EXPECT_EQ(states[1].name, "exp_avg_scale");
    EXPECT_EQ(states[1].dtype, DType::f32);
    return std::vector<Sizes>{states[0].shape, states[1].shape};
  };
  EXPECT_EQ(shapes("int8", {5, 300}), (std::vector<Sizes>{{5, 300}, {5, 3}}));
  EXPECT_EQ(shapes("int4", {5, 301}), (std::vector<Sizes>{{5, 151}, {5, 3}}));
  EXPECT_EQ(shapes("int4", {1, 7}), (std::vector<Sizes>{{1, 4}, {1, 1}}));
  EXPECT_EQ(shapes("int4", {7, 1}), (std::vector<Sizes>{{7, 1}, {7, 1}}));
  EXPECT_EQ(shapes("int8", {8, 4, 3, 3}), (std::vector<Sizes>{{8, 4, 3, 3}, {8, 1}}));
  EXPECT_EQ(shapes("int4", {3, 65, 64}), (std::vector<Sizes>{{3, 65, 32}, {3, 65, 1}}));
}

TEST(CodesLayout, IsForMatricesOnly) {
  for (const std::string& word : all_words()) {
    for (const char* dtype : {"int8", "int4"}) {
      for (const Sizes& shape : std::vector<Sizes>{{}, {1}, {300}, {0}}) {
        for (const DType of : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
          const std::vector<StateSpec> states = layout(with_codes(word, dtype), spec_of(shape, of));
          EXPECT_EQ(states[0].name, "exp_avg");
          EXPECT_EQ(states[0].shape, shape);
          EXPECT_EQ(states[0].dtype, of == DType::f64 ? DType::f64 : DType::f32);
          EXPECT_EQ(states.size(), layout(Options(word), spec_of(shape, of)).size()) << word;
        }
      }
    }
  }
}

TEST(CodesLayout, CostsAByteOrHalfAByte) {
  const std::vector<TensorSpec> specs{spec_of({4096, 1024}, DType::f32), spec_of({1024, 4096}, DType::f32)};
  const auto bytes = [&](const char* dtype) {
    const came_memory m = estimate({with_codes("came", dtype)}, specs);
    return 4.0 * double(m.state_bytes) / double(m.parameter_bytes);
  };
  EXPECT_LE(bytes("int8"), 1.06);
  EXPECT_LE(bytes("int4"), 0.56);
}

/// The momentum of a tensor of a trial, decoded from its state by a way of its own.
double decoded(Trial& run, int64_t i, int64_t j, int64_t cols, bool int4) {
  const int64_t blocks = (cols + kMomentumBlock - 1) / kMomentumBlock;
  const auto scale = static_cast<float>(run.state(1).get(i * blocks + j / kMomentumBlock));
  if (!int4) return decode(static_cast<const int8_t*>(run.states[0].data())[i * cols + j], scale, kLevelsInt8);
  const uint8_t byte = static_cast<const uint8_t*>(run.states[0].data())[i * ((cols + 1) / 2) + j / 2];
  return decode(algorithms::unpack_int4(byte, j % 2 == 1), scale, kLevelsInt4);
}

// Adam's momentum is the plain average of gradients: what is stored must be the new average within half a step.  In f32
// that average has three roundings: of a weight, a product and the sum.
TEST(CodesStep, StoreTheAverageToTheNearestCode) {
  for (const bool int4 : {false, true}) {
    for (const Sizes& shape : std::vector<Sizes>{{3, 300}, {5, 7}, {2, 257}, {1, 129}, {3, 1}}) {
      const int64_t rows = shape[0];
      const int64_t cols = shape[1];
      Trial run({with_codes("adamw", int4 ? "int4" : "int8")}, {spec_of(shape, DType::f32)});
      run.fill_params(1);
      for (uint64_t step = 0; step < 20; ++step) {
        run.fill_grads(step);
        std::vector<double> exact, terms;
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const double old = 0.9 * decoded(run, i, j, cols, int4), more = 0.1 * run.grad(0).get(i * cols + j);
            exact.push_back(old + more);
            terms.push_back(std::abs(old) + std::abs(more));
          }
        }
        run.run();
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const int64_t blocks = (cols + kMomentumBlock - 1) / kMomentumBlock;
            const double scale = run.state(1).get(i * blocks + j / kMomentumBlock);
            const auto k = static_cast<size_t>(i * cols + j);
            const double bound = (worst(int4 ? kLevelsInt4 : kLevelsInt8) + kRoundings) * scale;
            ASSERT_NEAR(decoded(run, i, j, cols, int4), exact[k], bound + 3 * 0x1p-24 * terms[k]);
          }
        }
      }
    }
  }
}

// Errors of the codes are nearly independent from step to step and fade with beta1, so the momentum is off by about
// sqrt(1 / (1 - beta1^2)) = 2.3 single errors; these are 0.7 % (int8) and 13 % (int4) of normal numbers in blocks of
// 128.
TEST(CodesStep, FollowTheUnquantisedPath) {
  for (const std::string& word : all_words()) {
    for (const auto& [dtype, bound] : std::vector<std::pair<const char*, double>>{{"int8", 0.016}, {"int4", 0.30}}) {
      Trial plain({Options(word)}, {spec_of({70, 260})});
      Trial coded({with_codes(word, dtype)}, {spec_of({70, 260})});
      plain.fill_params(1);
      coded.fill_params(1);
      std::vector<double> origin;
      for (int64_t i = 0; i < 70 * 260; ++i) origin.push_back(plain.param(0).get(i));
      for (uint64_t step = 0; step < 15; ++step) {
        plain.fill_grads(step);
        coded.fill_grads(step);
        plain.run();
        coded.run();
      }
      double apart = 0;
      double moved = 0;
      for (int64_t i = 0; i < 70 * 260; ++i) {
        apart += std::pow(plain.param(0).get(i) - coded.param(0).get(i), 2);
        moved += std::pow(plain.param(0).get(i) - origin[static_cast<size_t>(i)], 2);
      }
      EXPECT_LE(std::sqrt(apart / moved), bound) << word << " " << dtype;
      EXPECT_GT(apart, 0.0);
    }
  }
}

TEST(CodesStep, DoNotDependOnTilesOrShards) {
  for (const char* dtype : {"int8", "int4"}) {
    const Options o = with_codes("adamw", dtype);
    const core::Tiling tiling{.elements = 300, .cols = 100};
    Trial whole({o}, {spec_of({20, 301})});
    Trial tiled({o}, {spec_of({20, 301})}, &tiling);
    TensorSpec left = spec_of({20, 301});
    TensorSpec right = left;
    left.shard = Shard{2, {0, 0}, {20, 128}};
    right.shard = Shard{2, {0, 128}, {20, 173}};
    Trial a({o}, {left});
    Trial b({o}, {right});
    for (Trial* run : {&whole, &tiled, &a, &b}) run->fill_params(1);
    for (uint64_t step = 0; step < 5; ++step) {
      for (Trial* run : {&whole, &tiled, &a, &b}) {
        run->fill_grads(step);
        run->run_phase(0);
      }
    }
    EXPECT_EQ(whole.params[0].bytes(), tiled.params[0].bytes());
    for (Trial* run : {&a, &b}) {
      run->for_each_element([&](size_t, int64_t local, int64_t element) {
        EXPECT_EQ(run->param(0).get(local), whole.param(0).get(element));
      });
    }
  }
}

TEST(CodesStep, OfVectorsAndScalarsAreThoseWithoutCodes) {
  for (const std::string& word : all_words()) {
    for (const char* dtype : {"int8", "int4"}) {
      const std::vector<TensorSpec> list{spec_of({4001}, DType::f32), spec_of({}, DType::f32),
                                         spec_of({31}, DType::bf16)};
      Options o = with_codes(word, dtype);
      if (has_second_moment(word)) o.set("second_moment_dtype", "int8");  // one id for all: nothing is drawn
      const core::Tiling tiling{.elements = 300, .cols = 100};            // code blocks would make it 128
      Trial coded({o}, list, &tiling);
      Trial plain({Options(word)}, list, &tiling);
      EXPECT_EQ(coded.plan.tiles.size(), plain.plan.tiles.size());
      for (Trial* run : {&coded, &plain}) {
        run->fill_params(1);
        for (uint64_t step = 0; step < 5; ++step) {
          run->fill_grads(step);
          run->run();
        }
      }
      EXPECT_EQ(coded.image(), plain.image()) << word;
    }
  }
}

TEST(CodesStep, NanIsNotLost) {
  for (const char* dtype : {"int8", "int4"}) {
    Trial run({with_codes("adamw", dtype)}, {spec_of({2, 300})});
    run.fill_params(1);
    run.fill_grads(2);
    run.grad(0).set(130, std::numeric_limits<double>::quiet_NaN());
    run.run();
    EXPECT_TRUE(std::isnan(run.state(1).get(1)));  // the scale of its block
    EXPECT_TRUE(std::isnan(run.param(0).get(130)));
    EXPECT_FALSE(std::isnan(run.param(0).get(127)));  // another block
    EXPECT_FALSE(std::isnan(run.param(0).get(256)));
  }
}

TEST(CodesStep, ShardThatCutsABlockIsRefused) {
  TensorSpec spec = spec_of({20, 301});
  spec.shard = Shard{2, {0, 0}, {20, 100}};
  expect_error([&] { Plan({with_codes("came", "int8")}, {spec}); }, "'w'", "[0, 100)", "int8",
               "shard of rows, or of columns by multiples of 128; or momentum_dtype default or bf16");
}

}  // namespace
}  // namespace came::test
