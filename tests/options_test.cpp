// Options: the documented defaults, and an error of its own for everything out of range.
#include <limits>

#include "support.hpp"

namespace came::test {
namespace {

TEST(Options, CameHasThePapersDefaultsAndCorrectsItsColdStart) {
  const Options o = Options::came();
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_EQ(o.beta1, 0.9);
  EXPECT_EQ(o.beta2, 0.999);
  EXPECT_EQ(o.beta3, 0.9999);
  EXPECT_EQ(o.eps1, 1e-30);
  EXPECT_EQ(o.eps2, 1e-16);
  EXPECT_EQ(o.clip_threshold, 1.0);
  EXPECT_EQ(o.weight_decay, 0.0);
  EXPECT_EQ(o.bias_correction, 1);
  EXPECT_EQ(o.confidence_1d, 0);
  EXPECT_EQ(o.view, CAME_VIEW_AUTO);
}

TEST(Options, DefaultsOfEveryOptimizerAreValid) {
  for (const std::string& word : all_words()) {
    const Options o(word);
    EXPECT_EQ(o.word(), word);
    EXPECT_NO_THROW(o.validate()) << word;
  }
}

TEST(Options, UnknownOptimizerNamesTheKnownOnes) {
  expect_error([] { Options("muon"); }, "algorithm", "muon", "came, adafactor, adam, adamw, lamb, sm3");
  expect_error([] { Options(static_cast<Algorithm>(6)); }, "algorithm", "6");
}

struct BadReal {
  const char* word;
  double came_options::*field;
  const char* name;
  std::vector<double> values;
};

TEST(Options, RealOutOfRangeIsNamedWithItsValueAndRange) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<BadReal> cases{
      {"came", &came_options::lr, "lr", {-1e-9, inf, nan}},
      {"came", &came_options::beta1, "beta1", {-0.1, 1.0, nan}},
      {"came", &came_options::beta2, "beta2", {-0.1, 1.0, nan}},
      {"came", &came_options::beta3, "beta3", {-0.1, 1.0, nan}},
      {"came", &came_options::eps1, "eps1", {0.0, -1.0, inf, nan}},
      {"came", &came_options::eps2, "eps2", {0.0, -1.0, inf, nan}},
      {"adam", &came_options::eps, "eps", {-1.0, inf, nan}},
      {"lamb", &came_options::eps, "eps", {0.0, -1.0, inf, nan}},
      {"sm3", &came_options::eps, "eps", {0.0, -1.0, inf, nan}},
      {"adafactor", &came_options::eps2, "eps2", {-1.0, inf, nan}},
      {"came", &came_options::clip_threshold, "clip_threshold", {0.0, -1.0, nan}},
      {"came", &came_options::weight_decay, "weight_decay", {-1.0, inf, nan}},
      {"came", &came_options::max_grad_norm, "max_grad_norm", {-1.0, inf, nan}},
      {"adafactor", &came_options::beta2_decay, "beta2_decay", {0.8, -inf, nan}},
  };
  for (const BadReal& c : cases) {
    for (const double value : c.values) {
      Options o{std::string(c.word)};
      o.*c.field = value;
      expect_error([&] { o.validate(); }, std::string("options: ") + c.name + " is ", "expected");
    }
  }
}

TEST(Options, InfiniteClipThresholdMeansNoClipping) {
  Options o = Options::came();
  o.clip_threshold = std::numeric_limits<double>::infinity();
  EXPECT_NO_THROW(o.validate());
}

TEST(Options, FlagsAndChoicesOutOfRangeAreNamed) {
  const auto with = [](auto change) {
    Options o = Options::came();
    change(o);
    return [o] { o.validate(); };
  };
  expect_error(with([](Options& o) { o.cautious = 2; }), "cautious is 2", "0 or 1");
  expect_error(with([](Options& o) { o.view = 3; }), "view is 3", "auto, fold, last_two");
  expect_error(with([](Options& o) { o.momentum_dtype = CAME_DTYPE_F16; }), "momentum_dtype is f16", "bf16");
  expect_error(with([](Options& o) { o.momentum_dtype = 77; }), "momentum_dtype is unknown (77)");
  expect_error(with([](Options& o) { o.view = -1; }), "view is -1");
  expect_error(with([](Options& o) { o.beta1 = 0; }), "beta1 is 0", "> 0");
  Options adam = Options::adam();
  adam.second_moment_dtype = CAME_DTYPE_I4;
  expect_error([&] { adam.validate(); }, "second_moment_dtype is int4 (8)", "default, int8");
  Options sm3 = Options::sm3();
  sm3.cautious = 1;
  sm3.beta1 = 0;
  expect_error([&] { sm3.validate(); }, "cautious", "beta1");
}

TEST(Options, WarmupNeedsRelativeStep) {
  Options o = Options::adafactor();
  o.warmup_init = 1;
  expect_error([&] { o.validate(); }, "warmup_init", "relative_step");
}

TEST(Options, OptionOfAnotherOptimizerIsRefused) {
  Options o = Options::adam();
  o.beta3 = 0.5;
  expect_error([&] { o.validate(); }, "beta3", "adam has no such option");
  o = Options::lamb();
  o.view = CAME_VIEW_FOLD;
  expect_error([&] { o.validate(); }, "view", "lamb has no such option");
  for (const std::string& word : all_words()) {
    o = Options(word);
    o.second_moment_dtype = CAME_DTYPE_I8;
    if (has_second_moment(word)) {
      EXPECT_NO_THROW(o.validate()) << word;
    } else {
      expect_error([&] { o.validate(); }, "second_moment_dtype", word + " has no such option");
    }
  }
  o = Options::sm3();
  o.confidence_1d = 1;
  expect_error([&] { o.validate(); }, "confidence_1d", "sm3 has no such option");
}

TEST(Options, AreSetByName) {
  Options o = Options::came();
  o.set("lr", "3e-4").set("cautious", "true").set("view", "last_two").set("momentum_dtype", "bf16").set("seed", "7");
  EXPECT_EQ(o.lr, 3e-4);
  EXPECT_EQ(o.cautious, 1);
  EXPECT_EQ(o.view, CAME_VIEW_LAST_TWO);
  EXPECT_EQ(o.momentum_dtype, CAME_DTYPE_BF16);
  EXPECT_EQ(o.seed, 7U);
  EXPECT_EQ(Options::lamb().set("second_moment_dtype", "int8").second_moment_dtype, CAME_DTYPE_I8);
  o.set("seed", "18446744073709551615");
  EXPECT_EQ(o.seed, std::numeric_limits<uint64_t>::max());
}

TEST(Options, BadTextLeavesThemUnchanged) {
  Options o = Options::came();
  expect_error([&] { o.set("learning_rate", "1"); }, "learning_rate", "unknown", "lr, beta1",
               "second_moment_dtype, seed");
  expect_error([&] { o.set("lr", "fast"); }, "lr", "fast", "number");
  expect_error([&] { o.set("lr", "1e-3x"); }, "lr", "1e-3x", "number");
  expect_error([&] { o.set("cautious", "maybe"); }, "cautious", "maybe", "true, false");
  expect_error([&] { o.set("seed", "-1"); }, "seed", "-1");
  const Options fresh = Options::came();
  EXPECT_EQ(std::memcmp(&o, &fresh, sizeof o), 0);
}

}  // namespace
}  // namespace came::test
