// How far f32 arithmetic strays from the f64 reference, and the options and tensors that every backend is tested with.
#pragma once

#include "families.hpp"

namespace came::test {

using Sizes = std::vector<int64_t>;

/// Weights begin as small as in real models; the learning rates move them by about as much in 200 steps.
inline constexpr double kStart = 0.02;
inline double rate_of(const std::string& word) { return word == "sm3" || word == "lamb" ? 1e-2 : 1e-3; }

inline void fill(Trial& run, Family family, uint64_t step) {
  run.for_each_element([&](size_t k, int64_t local, int64_t whole) {
    run.grad(k).set(local, gradient(family, run.plan.tensors[k].shape, step, whole));
  });
}

inline void start(Trial& run) {
  run.fill_params(1);
  run.for_each_element([&](size_t k, int64_t i, int64_t) { run.param(k).set(i, kStart * run.param(k).get(i)); });
}

/// Puts the parameters, states and counters of one trial into another.
inline void copy_memory(const Trial& from, Trial& to) {
  for (size_t k = 0; k < from.params.size(); ++k) to.params[k].copy(from.params[k]);
  for (size_t k = 0; k < from.states.size(); ++k) to.states[k].copy(from.states[k]);
  to.counters = from.counters;
}

/// How a tensor in f32 ends up after so many steps.
struct Outcome {
  double difference = 0;  ///< Largest difference of a parameter from the exact one.
  double moved = 0;       ///< Largest displacement of one.
  double rounded = 0;     ///< What rounding the parameter once per step may add up to.
};

/// Steps both from the same numbers with the same gradients; an outcome per tensor.
inline std::vector<Outcome> outcomes(Trial& ours, Trial& exact, Family family, uint64_t steps) {
  start(ours);
  std::vector<double> origin;
  exact.for_each_element([&](size_t k, int64_t i, int64_t) {
    exact.param(k).set(i, ours.param(k).get(i));
    origin.push_back(ours.param(k).get(i));
  });
  for (uint64_t step = 0; step < steps; ++step) {
    fill(ours, family, step);
    exact.for_each_element([&](size_t k, int64_t i, int64_t) { exact.grad(k).set(i, ours.grad(k).get(i)); });
    ours.run();
    exact.run();
  }
  std::vector<Outcome> results(exact.plan.tensors.size());
  size_t next = 0;
  exact.for_each_element([&](size_t k, int64_t i, int64_t) {
    Outcome& result = results[k];
    const double value = exact.param(k).get(i);
    result.moved = std::max(result.moved, std::abs(value - origin[next++]));
    result.difference = std::max(result.difference, std::abs(value - ours.param(k).get(i)));
    result.rounded = std::max(result.rounded, static_cast<double>(steps) * std::abs(value) * 0x1p-24);
    EXPECT_TRUE(std::isfinite(ours.param(k).get(i)));
  });
  return results;
}

/// Outcomes of f32 tensors of these shapes, as one plan, against the f64 reference.
inline std::vector<Outcome> outcomes_of(const Options& o, const std::vector<Sizes>& shapes, Family family,
                                        uint64_t steps, const core::Backend& backend) {
  std::vector<TensorSpec> narrow;
  std::vector<TensorSpec> wide;
  for (const Sizes& shape : shapes) {
    narrow.push_back(spec_of(shape, DType::f32));
    wide.push_back(spec_of(shape, DType::f64));
  }
  Trial ours({o}, narrow, nullptr, backend);
  Trial exact({o}, wide, nullptr, core::reference_backend());
  return outcomes(ours, exact, family, steps);
}

/// All options at once that leave a path smooth, so that it can be compared after many steps.
inline Options smooth_options(const std::string& word) {
  Options o(word);
  o.lr = rate_of(word);
  o.maximize = 1;
  // Adam adds its decay to the gradient: where the two cancel, it divides a rounding error by its own size.
  o.weight_decay = word == "adam" ? 0.0 : 0.1;
  o.max_grad_norm = 1;
  if (word == "came") o.confidence_1d = 1, o.bias_correction = 0;
  if (word == "adafactor") o.scale_parameter = o.lr_in_momentum = 1;
  return o;
}

/// Default options, all options at once, and narrow storage.
inline std::vector<Options> option_variants(const std::string& word) {
  Options all(word);
  all.cautious = all.maximize = all.stochastic_rounding = 1;
  all.max_grad_norm = 1;
  all.weight_decay = 0.1;
  if (word == "came") all.confidence_1d = 1, all.bias_correction = 0;
  if (word == "adafactor") all.scale_parameter = all.lr_in_momentum = 1;
  std::vector<Options> list{Options(word), all};
  for (const came_dtype dtype : {CAME_DTYPE_BF16, CAME_DTYPE_I8, CAME_DTYPE_I4}) {
    Options narrow(word);
    narrow.momentum_dtype = dtype;
    if (dtype == CAME_DTYPE_I8 && has_second_moment(word)) narrow.second_moment_dtype = CAME_DTYPE_I8;
    list.push_back(narrow);
  }
  return list;
}

/// These shapes in every type of parameter and gradient.
inline std::vector<TensorSpec> in_every_type(const std::vector<Sizes>& shapes) {
  std::vector<TensorSpec> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const Sizes& shape : shapes) {
      list.push_back(spec_of(shape, dtype));
      list.back().grad_dtype = dtype == DType::bf16 ? DType::f32 : dtype == DType::f32 ? DType::f16 : dtype;
      list.back().id = list.size();
    }
  }
  return list;
}

/// Shapes for every owner, more than one tile, odd sizes, and every type of parameter and gradient.
inline std::vector<TensorSpec> mixed_specs() {
  return in_every_type({{270, 300}, {64, 64}, {3, 16400}, {5, 3, 3, 3}, {40001}, {}, {2, 65, 66}, {1, 9}});
}

/// All that three steps leave behind.
inline Bytes bytes_after(const Options& o, const std::vector<TensorSpec>& list, const core::Backend& backend,
                         Placement placement = Placement::aligned) {
  Trial run({o}, list, nullptr, backend);
  run.placement = placement;
  start(run);
  for (uint64_t step = 0; step < 3; ++step) {
    run.fill_grads(step);
    run.run();
  }
  return run.image();
}

/// A tensor of a plan must step as it does in a plan of its own.
inline void expect_same_bits_together_or_one_by_one(Options o, const core::Backend& backend,
                                                    const std::vector<TensorSpec>& list = mixed_specs()) {
  o.max_grad_norm = 0;  // a norm over all of them
  Trial together({o}, list, nullptr, backend);
  start(together);
  for (uint64_t step = 0; step < 3; ++step) {
    together.fill_grads(step);
    together.run();
  }
  for (size_t k = 0; k < list.size(); ++k) {
    Trial alone({o}, {list[k]}, nullptr, backend);
    const auto element = [&](uint64_t seed, size_t stream, int64_t i) { return Trial::draw(seed, k + stream, i); };
    alone.for_each_element([&](size_t, int64_t i, int64_t whole) {
      alone.param(0).set(i, element(1, 0, whole));
      alone.param(0).set(i, kStart * alone.param(0).get(i));
    });
    for (uint64_t step = 0; step < 3; ++step) {
      alone.for_each_element(
          [&](size_t, int64_t i, int64_t whole) { alone.grad(0).set(i, element(step, 1000, whole)); });
      alone.run();
    }
    EXPECT_EQ(alone.params[0].bytes(), together.params[k].bytes()) << "tensor " << k;
  }
}

/// From the same bytes the reference and f32 arithmetic take nearly the same step.  The values that are stored as codes
/// differ by some 16 roundings, so a code differs, by one, where a value lies that close to the border between two:
/// neighbours are 1/64 apart at the top of a block in 8 bits and 2/7 in 4, which makes it one element in ten thousands.
inline void expect_the_references_codes(const std::string& word, const core::Backend& backend) {
  constexpr uint64_t kSteps = 200;
  for (const came_dtype dtype : {CAME_DTYPE_I8, CAME_DTYPE_I4}) {
    for (const Sizes& shape : std::vector<Sizes>{{23, 300}, {1, 300}, {5, 1}}) {
      Options o(word);
      o.momentum_dtype = dtype;
      o.lr = rate_of(word);
      Trial ours({o}, {spec_of(shape, DType::f32)}, nullptr, backend);
      Trial exact({o}, {spec_of(shape, DType::f32)}, nullptr, core::reference_backend());
      start(exact);
      int64_t codes = 0;
      int64_t others = 0;
      for (uint64_t step = 0; step < kSteps; ++step) {
        fill(exact, Family::drifting, step);
        fill(ours, Family::drifting, step);
        copy_memory(exact, ours);
        std::vector<double> old;
        exact.for_each_element([&](size_t, int64_t i, int64_t) { old.push_back(exact.param(0).get(i)); });
        exact.run();
        ours.run();
        double largest = 0;
        exact.for_each_element([&](size_t, int64_t i, int64_t) {
          largest = std::max(largest, std::abs(exact.param(0).get(i) - old[static_cast<size_t>(i)]));
        });
        const std::string mine = ours.states[0].bytes().data;
        const std::string theirs = exact.states[0].bytes().data;
        const auto cols = static_cast<size_t>(shape.back());
        exact.for_each_element([&](size_t, int64_t i, int64_t) {
          const auto element = static_cast<size_t>(i);
          const size_t byte = dtype == CAME_DTYPE_I8 ? element : element / cols * ((cols + 1) / 2) + element % cols / 2;
          ++codes;
          if (mine[byte] != theirs[byte]) {
            ++others;
            return;
          }
          // One other code changes the instability of its whole row and column, or the norm of the whole update.
          if ((word == "came" || word == "lamb") && mine != theirs) return;
          const double value = exact.param(0).get(i);
          ASSERT_NEAR(ours.param(0).get(i), value, 0x1p-23 * std::abs(value) + 32 * 0x1p-24 * largest) << step;
        });
      }
      EXPECT_LE(others, std::max<int64_t>(3, codes / 20000)) << "of " << codes;
    }
  }
}

}  // namespace came::test
