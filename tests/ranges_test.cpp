// Numbers at the ends of their ranges: decays below one half, gradients whose squares or products are no number of f32,
// counters beyond 2^24.  Every backend takes the reference's step from the same bytes.  docs/numerics.md, "Ranges".
#include <functional>
#include <limits>

#include "displacement.hpp"

namespace came::test {
namespace {

using Fill = std::function<double(uint64_t step, int64_t element)>;

/// Shapes for every owner and, on a device, every route: held rows, strips, matrices that stay on the chip.
std::vector<TensorSpec> shapes() {
  std::vector<TensorSpec> list{spec_of({5, 7}, DType::f32),      spec_of({67, 65}, DType::f32),
                               spec_of({2, 16400}, DType::f32),  spec_of({40, 1024}, DType::f32),
                               spec_of({2, 65, 66}, DType::f32), spec_of({261}, DType::f32),
                               spec_of({35, 512}, DType::bf16)};
  for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
  return list;
}

/// Parameters move as the reference moves them: but for the rounding of the parameter, and for the f32 arithmetic of a
/// move.  A sum over the 67 rows of a tile has 67 roundings and everything else some 20; at most 256 of 2^-24 each, of
/// the largest move of the tensor, is what remains where they all have one sign.  CAME divides by u - m, which is
/// beta1 (u - old m) and has so many more roundings of u.
void expect_the_references_moves(const Options& o, const std::vector<TensorSpec>& specs, uint64_t steps,
                                 const Fill& param, const Fill& gradient) {
  const double roundings = o.word() == "came" ? 256 / o.beta1 : 256;
  Trial ours({o}, specs);
  Trial exact({o}, specs, nullptr, core::reference_backend());
  exact.for_each_element([&](size_t k, int64_t i, int64_t whole) { exact.param(k).set(i, param(k, whole)); });
  for (uint64_t step = 0; step < steps; ++step) {
    for (Trial* run : {&ours, &exact}) {
      run->for_each_element([&](size_t k, int64_t i, int64_t whole) { run->grad(k).set(i, gradient(step, whole)); });
    }
    copy_memory(exact, ours);
    std::vector<double> old;
    exact.for_each_element([&](size_t k, int64_t i, int64_t) { old.push_back(exact.param(k).get(i)); });
    exact.run();
    ours.run();
    std::vector<double> largest(specs.size(), 0.0);
    size_t next = 0;
    exact.for_each_element([&](size_t k, int64_t i, int64_t) {
      largest[k] = std::max(largest[k], std::abs(exact.param(k).get(i) - old[next++]));
    });
    exact.for_each_element([&](size_t k, int64_t i, int64_t) {
      const double value = exact.param(k).get(i);
      const double ulp = exact.plan.tensors[k].dtype == DType::bf16 ? 0x1p-7 : 0x1p-23;
      ASSERT_TRUE(std::isfinite(value)) << "tensor " << k;
      ASSERT_NEAR(ours.param(k).get(i), value, ulp * std::abs(value) + roundings * 0x1p-24 * largest[k])
          << "tensor " << k << " step " << step << " largest move " << largest[k];
    });
  }
}

double small_start(uint64_t tensor, int64_t element) { return kStart * Trial::draw(1, tensor, element); }

class Ranges : public testing::TestWithParam<std::string> {};

// Old numbers that are far larger than new ones are what a rounded difference of the two would lose the new ones in.
// Signs change, so that no update is by chance the old momentum.
TEST_P(Ranges, DecaysBelowOneHalfForgetAsTheReferenceDoes) {
  const bool came = GetParam() == "came";
  const Fill falling = [](uint64_t step, int64_t element) {
    return std::pow(-1e-4, static_cast<double>(step)) * 1e4 * (1 + 0.1 * Trial::draw(step, 3, element));
  };
  for (const double beta : {0.0, 1e-9, 0.1, 0.3, 0.4999, 0.5}) {
    Options o(GetParam());
    o.lr = rate_of(GetParam());
    // CAME needs a momentum, and divides by how far updates are from it: that must not be a rounding alone.
    o.beta1 = came ? std::max(beta, 0.1) : beta;
    if (GetParam() != "sm3") o.beta2 = beta;
    if (came) o.beta3 = beta;
    SCOPED_TRACE("beta " + std::to_string(beta));
    expect_the_references_moves(o, shapes(), 3, small_start, falling);
  }
}

// The average itself, and not only a move that may not depend on it: Adam with the gradients 1e4 and then 1e-4.
TEST_P(Ranges, ADecayOfZeroKeepsTheLatestAlone) {
  if (!has_second_moment(GetParam())) return;
  Options o(GetParam());
  o.beta1 = o.beta2 = 0;
  Trial run({o}, {spec_of({3}, DType::f32)});
  for (const double g : {1e4, 1e-4}) {
    for (int64_t i = 0; i < 3; ++i) run.grad(0).set(i, g);
    run.run();
  }
  const auto g = static_cast<double>(1e-4F);
  EXPECT_NEAR(run.state(0).get(0), g, 0x1p-23 * g);
  EXPECT_NEAR(run.state(1).get(0), g * g, 0x1p-22 * g * g);
}

TEST_P(Ranges, CautiousComparesSignsOfTinyNumbers) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  o.cautious = 1;
  // Products of 1e-30 are 0 in f32.  One element in 20 turns, so that some disagree.
  const Fill tiny = [](uint64_t step, int64_t element) {
    const bool turns = element % 20 == 0 && step > 0;
    return (turns ? -1e-30 : 1e-30) * (1 + 0.5 * Trial::draw(7, 3, element));
  };
  // From 0, so that the smallest move is seen.
  expect_the_references_moves(
      o, shapes(), 3, [](uint64_t, int64_t) { return 0.0; }, tiny);
}

TEST_P(Ranges, UpdatesAreClippedWhereSquaresUnderflow) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  if (GetParam() == "adafactor") o.beta1 = 0;
  if (GetParam() == "came") o.bias_correction = 1;
  const double scales[] = {1e-25, 1e-22, 1e-37};
  for (const double scale : scales) {
    const Fill outlier = [scale](uint64_t step, int64_t element) {
      return element == 3 ? 1.0 : scale * Trial::draw(step, 3, element);
    };
    SCOPED_TRACE("gradients of " + std::to_string(std::log10(scale)) + " decades");
    expect_the_references_moves(o, shapes(), 2, small_start, outlier);
  }
}

TEST_P(Ranges, NormsAreRightWhereSquaresUnderflowOrOverflow) {
  const auto scaled = [](double scale) {
    return [scale](uint64_t step, int64_t element) { return scale * Trial::draw(step, 3, element); };
  };
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  o.max_grad_norm = 1;
  expect_the_references_moves(o, shapes(), 2, small_start, scaled(1e30));
  o.max_grad_norm = 1e-28;
  expect_the_references_moves(o, shapes(), 2, small_start, scaled(1e-25));
  if (GetParam() != "lamb" && GetParam() != "adafactor") return;
  // Trust ratios, and rates relative to the parameter.
  Options relative(GetParam());
  relative.weight_decay = 0;
  if (GetParam() == "adafactor") {
    relative.scale_parameter = 1;
    relative.eps2 = 0;
  }
  for (const double size : {1e-25, 1e22}) {
    const auto start = [size](uint64_t tensor, int64_t element) { return size * Trial::draw(1, tensor, element); };
    expect_the_references_moves(relative, shapes(), 2, start, scaled(1.0));
    expect_the_references_moves(relative, shapes(), 2, start, scaled(1e-25));
  }
}

TEST_P(Ranges, CountersGoOnBeyond24BitsAndRoundingDoesNotRepeat) {
  const auto rounded = [&](auto first, int steps) {
    Options o(GetParam());
    o.stochastic_rounding = 1;
    o.lr = 1e-3;
    Trial run({o}, {spec_of({40, 50}, DType::bf16)});
    std::vector<Bytes> each;
    auto counter = first;
    const TensorView view(&counter);
    run.step.step = &view;
    for (int k = 0; k < steps; ++k) {
      run.for_each_state([&](size_t s, int64_t i) { run.state(s).set(i, 0); });
      run.fill_params(1);  // the same parameters and gradients each time: only the draws differ
      run.fill_grads(2);
      run.run();
      each.push_back(run.params[0].bytes());
    }
    EXPECT_EQ(counter, first + steps);
    return each;
  };
  const std::vector<Bytes> whole = rounded(int64_t{(1 << 24) - 1}, 4);
  EXPECT_EQ(whole, rounded(0x1p24 - 1, 4));  // f64
  for (size_t k = 1; k < whole.size(); ++k) EXPECT_NE(whole[k], whole[k - 1]) << k;
}

TEST_P(Ranges, NarrowCounterThatCannotGoOnIsRefused) {
  Trial run({Options(GetParam())}, {spec_of({5, 7})});
  float counter = 0x1p24F;
  const TensorView view(&counter);
  run.step.step = &view;
  const Bytes before = run.image();
  expect_error([&] { run.run(); }, "step[0]", "16777215", "i64 and f64");
  EXPECT_EQ(run.image(), before);
  EXPECT_EQ(counter, 0x1p24F);
}

TEST(RangesAdam, EpsilonMayBeZero) {
  for (const char* word : {"adam", "adamw"}) {
    Options o(word);
    o.eps = 0;
    o.lr = 1e-3;
    expect_the_references_moves(o, shapes(), 3, small_start,
                                [](uint64_t step, int64_t element) { return Trial::draw(step, 3, element); });
  }
  for (const char* word : {"lamb", "sm3"}) {
    Options o(word);
    o.eps = 0;
    expect_error([&] { core::make_plan({o}, {spec_of({2})}, backend_under_test()); }, "eps", "> 0");
  }
}

TEST(RangesCame, EpsilonThatRoundsToZeroIsRefusedWithoutDecay) {
  Options o = Options::came();
  o.beta3 = 0;
  o.eps2 = 1e-40;
  expect_error([&] { core::make_plan({o}, {spec_of({4, 4}, DType::f32)}, backend_under_test()); }, "eps2");
}

INSTANTIATE_TEST_SUITE_P(All, Ranges, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
