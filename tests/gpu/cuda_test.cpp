// The CUDA backend: how close it is to the f64 reference and to the CPU backend, and how it rounds.
#include "displacement.hpp"

namespace came::test {
namespace {

class Cuda : public testing::TestWithParam<std::string> {};

// The bound is that of the CPU backend, and for the same reason: cpu_test.cpp.  Without max_grad_norm the tensors of a
// plan know nothing of each other, so one plan takes all shapes.
TEST_P(Cuda, StaysWithin5e6OfTheDisplacementInF32) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  double largest = 0;
  for (const Family family : kFamilies) {
    const std::vector<Outcome> results = outcomes_of(o, family_shapes(), family, 200, core::cuda_backend());
    for (size_t k = 0; k < results.size(); ++k) {
      const double error = results[k].difference / results[k].moved;
      EXPECT_LE(error, 5e-6) << "family " << static_cast<int>(family) << " shape " << k;
      largest = std::max(largest, error);
    }
  }
  RecordProperty("largest_error", std::to_string(largest));
  std::printf("%s: largest error %.1e of the displacement, allowed 5e-6\n", GetParam().c_str(), largest);
}

// Here the norm is over all tensors of the plan, on both sides.
TEST_P(Cuda, StaysWithin5e6OfTheDisplacementWithAllOptions) {
  const Options o = smooth_options(GetParam());
  const auto expect_close = [&](const std::vector<Sizes>& shapes, uint64_t steps) {
    const std::vector<Outcome> results = outcomes_of(o, shapes, Family::drifting, steps, core::cuda_backend());
    for (size_t k = 0; k < results.size(); ++k) {
      EXPECT_LE(results[k].difference, 5e-6 * results[k].moved + results[k].rounded)
          << steps << " steps, shape " << k << ", moved " << results[k].moved;
      EXPECT_GT(results[k].moved, 0.0);
    }
  };
  expect_close({{23, 17}, {67, 71}, {2, 65, 66}, {31}}, 200);
  expect_close({{3, 16400}, {300, 130}}, 20);
}

#ifdef CAME_TEST_CPU
TEST_P(Cuda, StaysWithin5e6OfTheDisplacementFromTheCpuBackend) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  std::vector<TensorSpec> specs;
  for (const Sizes& shape : family_shapes()) specs.push_back(spec_of(shape, DType::f32));
  double largest = 0;
  for (const Family family : kFamilies) {
    Trial ours({o}, specs, nullptr, core::cuda_backend());
    Trial theirs({o}, specs, nullptr, core::cpu_backend());
    const std::vector<Outcome> results = outcomes(ours, theirs, family, 200);
    for (size_t k = 0; k < results.size(); ++k) {
      const double error = results[k].difference / results[k].moved;
      EXPECT_LE(error, 5e-6) << "family " << static_cast<int>(family) << " shape " << k;
      largest = std::max(largest, error);
    }
  }
  std::printf("%s: largest distance %.1e of the displacement, allowed 5e-6\n", GetParam().c_str(), largest);
}
#endif

TEST_P(Cuda, TakesTheReferencesStepWithCodes) { expect_the_references_codes(GetParam(), core::cuda_backend()); }

// Every remainder of a width by up to 32 elements: vectors, small matrices, and matrices that are not small.
TEST_P(Cuda, HandlesEveryTail) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  std::vector<Sizes> shapes;
  for (int64_t n = 1; n <= 33; ++n) {
    for (const Sizes& shape : std::vector<Sizes>{{n}, {6, n}, {70, 64 + n}}) shapes.push_back(shape);
  }
  const std::vector<Outcome> results = outcomes_of(o, shapes, Family::random, 5, core::cuda_backend());
  for (size_t k = 0; k < results.size(); ++k) {
    EXPECT_LE(results[k].difference, 5e-6 * results[k].moved + results[k].rounded) << "n = " << 1 + k / 3;
    EXPECT_GT(results[k].moved, 0.0);
  }
}

// With the same random bits a number is rounded another way only where the two computed ones lie on both sides of its
// draw.  They differ by some 2^-22 of the move, which is about as large as the parameter, and neighbours are 2^-8
// apart: one in ten thousand.
TEST_P(Cuda, RoundsStochasticallyAsTheReference) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  o.stochastic_rounding = 1;
  o.momentum_dtype = CAME_DTYPE_BF16;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const double spacing = dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
    std::vector<TensorSpec> specs;
    for (const Sizes& shape : std::vector<Sizes>{{67, 301}, {301}, {2, 65, 66}, {23, 17}, {}}) {
      specs.push_back(spec_of(shape, dtype));
      specs.back().id = 40 + specs.size();
    }
    Trial ours({o}, specs, nullptr, core::cuda_backend());
    Trial exact({o}, specs, nullptr, core::reference_backend());
    start(exact);
    int64_t stored = 0;
    int64_t others = 0;
    for (uint64_t step = 0; step < 5; ++step) {
      exact.fill_grads(step);
      ours.fill_grads(step);
      copy_memory(exact, ours);
      const Bytes before = exact.params[0].bytes();
      exact.run();
      ours.run();
      EXPECT_NE(exact.params[0].bytes(), before);
      double beyond = 0;
      exact.for_each_element([&](size_t k, int64_t i, int64_t) {
        const double value = exact.param(k).get(i);
        const double apart = std::abs(ours.param(k).get(i) - value);
        ++stored;
        if (apart != 0) ++others;
        // 2e-6 of a move of at most some hundredths: where the parameter itself is smaller, so are its neighbours.
        beyond = std::max(beyond, apart / (spacing * std::abs(value) + 1e-7));
      });
      EXPECT_LE(beyond, 1.0) << "step " << step;
    }
    EXPECT_LE(others, std::max<int64_t>(3, stored / 1000)) << "of " << stored;
    std::printf("%s: %lld of %lld rounded another way\n", GetParam().c_str(), static_cast<long long>(others),
                static_cast<long long>(stored));
  }
}

// A decay of 2^-9 and no gradient: the new parameter is exact in f32 and falls between two numbers of 16 bits, so that
// nothing but the draw decides.  LAMB and Adam do not decay that way.
TEST_P(Cuda, RoundsWhatIsExactToTheReferencesBits) {
  if (GetParam() == "lamb" || GetParam() == "adam") return;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::vector<TensorSpec> specs;
    for (const Sizes& shape : std::vector<Sizes>{{67, 301}, {301}, {2, 65, 66}, {270, 300}, {5, 3, 3, 3}}) {
      specs.push_back(spec_of(shape, dtype));
      specs.back().id = 40 + specs.size();
    }
    const auto after = [&](const core::Backend& backend, bool stochastic) {
      Options o(GetParam());
      o.lr = 1;
      o.weight_decay = 0x1p-9;
      o.stochastic_rounding = stochastic ? 1 : 0;
      Trial run({o}, specs, nullptr, backend);
      run.fill_params(1);
      for (int step = 0; step < 3; ++step) run.run();
      Bytes all;
      for (const Buffer& p : run.params) all += p.bytes();
      return all;
    };
    const Bytes expected = after(core::reference_backend(), true);
    EXPECT_EQ(after(core::cuda_backend(), true), expected);
    EXPECT_NE(after(core::reference_backend(), false), expected) << "no draw decided";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cuda, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
