// The CPU backend: how close it is to the f64 reference, and that neither threads nor vector widths change a bit.
#include <omp.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "cpu/kernels.hpp"
#include "displacement.hpp"

namespace came::test {
namespace {

/// Runs what follows with so many threads.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Runs what follows with this instruction set.
class WithTarget {
 public:
  explicit WithTarget(cpu::Target target) { cpu::force_target(target); }
  ~WithTarget() { cpu::force_target(0); }
  WithTarget(const WithTarget&) = delete;
  WithTarget& operator=(const WithTarget&) = delete;
};

std::vector<cpu::Target> all_targets() {
  std::vector<cpu::Target> list;
  for (const cpu::Target target : cpu::targets()) {
    if (target != 0) list.push_back(target);
  }
  return list;
}

Outcome outcome_of(const Options& o, const Sizes& shape, Family family, uint64_t steps) {
  return outcomes_of(o, {shape}, family, steps, core::cpu_backend())[0];
}

Bytes bytes_after_steps(const Options& o) { return bytes_after(o, mixed_specs(), core::cpu_backend()); }

class Cpu : public testing::TestWithParam<std::string> {};

// f32 has a unit roundoff of 6e-8.  A step adds one rounding of the parameter, at most half a unit of 0.1 here, and the
// error of the move, some ten roundings: 200 of either are far below 5e-6 of the displacement if they do not add up
// one way.  That they do not is what is tested.
TEST_P(Cpu, StaysWithin5e6OfTheDisplacementInF32) {
  double largest = 0;
  for (const Family family : kFamilies) {
    for (const Sizes& shape : family_shapes()) {
      Options o(GetParam());
      o.lr = rate_of(GetParam());
      const Outcome outcome = outcome_of(o, shape, family, 200);
      const double error = outcome.difference / outcome.moved;
      EXPECT_LE(error, 5e-6) << "family " << static_cast<int>(family) << " shape " << shape.size() << "-D, "
                             << (shape.empty() ? 1 : shape[0]);
      largest = std::max(largest, error);
    }
  }
  RecordProperty("largest_error", std::to_string(largest));
  std::printf("%s: largest error %.1e of the displacement, allowed 5e-6\n", GetParam().c_str(), largest);
}

TEST_P(Cpu, StaysWithin5e6OfTheDisplacementWithAllOptions) {
  for (const Sizes& shape : std::vector<Sizes>{{23, 17}, {67, 71}, {2, 65, 66}, {31}, {3, 16400}, {300, 130}}) {
    const uint64_t steps = shape.size() == 2 && shape[0] * shape[1] > 10000 ? 20 : 200;
    const Outcome outcome = outcome_of(smooth_options(GetParam()), shape, Family::drifting, steps);
    EXPECT_LE(outcome.difference, 5e-6 * outcome.moved + outcome.rounded) << shape[0] << " moved " << outcome.moved;
  }
}

TEST_P(Cpu, TakesTheReferencesStepWithCodes) { expect_the_references_codes(GetParam(), core::cpu_backend()); }

TEST_P(Cpu, GivesTheSameBitsInEveryInstructionSet) {
  ASSERT_GE(all_targets().size(), 2U);
  for (const Options& o : option_variants(GetParam())) {
    std::vector<Bytes> results;
    for (const cpu::Target target : all_targets()) {
      const WithTarget chosen(target);
      results.push_back(bytes_after_steps(o));
      EXPECT_EQ(results.back(), results[0]) << cpu::target_name(target);
    }
  }
}

TEST_P(Cpu, HandlesEveryTailInEveryInstructionSet) {
  Options o(GetParam());
  o.lr = rate_of(GetParam());
  for (const cpu::Target target : all_targets()) {
    const WithTarget chosen(target);
    for (int64_t n = 1; n <= 33; ++n) {  // twice the 16 lanes of the widest vectors, and one
      for (const Sizes& shape : std::vector<Sizes>{{n}, {6, n}, {70, 64 + n}}) {
        const Outcome outcome = outcome_of(o, shape, Family::random, 5);
        EXPECT_LE(outcome.difference, 5e-6 * outcome.moved + outcome.rounded) << cpu::target_name(target) << " " << n;
      }
    }
  }
}

TEST_P(Cpu, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Options& o : option_variants(GetParam())) {
    std::vector<Bytes> results;
    for (const int threads : {1, 2, 7, 2}) {
      const Threads some(threads);
      results.push_back(bytes_after_steps(o));
      EXPECT_EQ(results.back(), results[0]) << threads << " threads";
    }
  }
}

#if defined(__SSE__)
/// Sets this thread to flush subnormals to zero, as programs that train often do, and to round towards zero.
class Flushing {
 public:
  Flushing() : before_(_mm_getcsr()) { _mm_setcsr(kMode); }
  ~Flushing() { _mm_setcsr(before_); }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;
  static constexpr unsigned kMode = 0x1f80U | 0x8040U | 0x6000U;

 private:
  unsigned before_;
};

// Squares, averages and parameters of these steps are subnormal.
TEST_P(Cpu, GivesTheSameBitsWhateverTheModeOfTheCallersThread) {
  const auto bytes_after_tiny_steps = [&](const Options& o, bool flush) {
    Trial run({o}, mixed_specs(), nullptr, core::cpu_backend());
    run.fill_params(1);
    run.for_each_element([&](size_t k, int64_t i, int64_t) { run.param(k).set(i, 1e-38 * run.param(k).get(i)); });
    for (uint64_t step = 0; step < 3; ++step) {
      run.fill_grads(step);
      run.for_each_element([&](size_t k, int64_t i, int64_t) { run.grad(k).set(i, 1e-21 * run.grad(k).get(i)); });
      if (!flush) {
        run.run();
        continue;
      }
      const Flushing flushing;
      run.run();
      EXPECT_EQ(_mm_getcsr(), Flushing::kMode) << "the thread's own mode was not restored";
    }
    return run.image();
  };
  for (const Options& o : option_variants(GetParam())) {
    const Bytes expected = bytes_after_tiny_steps(o, false);
    for (const int threads : {1, 2, 7}) {
      const Threads some(threads);
      EXPECT_EQ(bytes_after_tiny_steps(o, true), expected) << threads << " threads";
    }
  }
}
#endif

TEST_P(Cpu, GivesTheSameBitsForTensorsTogetherOrOneByOne) {
  for (const Options& o : option_variants(GetParam())) {
    expect_same_bits_together_or_one_by_one(o, core::cpu_backend());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cpu, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
