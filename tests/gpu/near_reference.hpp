// A few steps on the GPU beside the same steps of the reference, in the same types, and beside themselves.
#pragma once

#include "displacement.hpp"

namespace came::test {

/// A number in [-1, 1); cheap, for tensors of millions of elements.
inline double uniform(uint64_t seed, size_t tensor, int64_t element) {
  const uint64_t bits = algorithms::mix64(algorithms::mix64(seed * 1000003 + tensor) + static_cast<uint64_t>(element));
  return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
}

/// Distance of neighbours relative to the number, of types that are narrower than the arithmetic; 0 for others.
inline double spacing(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0; }

/// Arithmetic in f32 moves a parameter within this part of its tensor's largest move, some 80 roundings of 2^-24:
/// docs/numerics.md, "How close".
inline constexpr double kWithin = 5e-6;

/// Of many differences the one that is furthest beyond what is allowed; not a number counts as furthest of all.
struct Furthest {
  double ratio = 0;
  double apart = 0;
  size_t index = 0;
  int64_t element = 0;

  void add(double difference, double allowed, size_t where, int64_t which) {
    const double by = difference == 0 ? 0 : std::isfinite(difference) ? difference / allowed : HUGE_VAL;
    if (by > ratio) *this = {by, difference, where, which};
  }
};

/// A plan on the GPU and the same on the reference.  Every step begins with the reference's numbers, so that
/// differences cannot pile up: what is compared is one step.
class Pair {
 public:
  Pair(const std::vector<Options>& groups, const std::vector<TensorSpec>& specs,
       Placement placement = Placement::aligned)
      : ours(groups, specs, nullptr, core::cuda_backend()), exact(groups, specs, nullptr, core::reference_backend()) {
    ours.placement = placement;
    exact.for_each_element(
        [this](size_t k, int64_t i, int64_t whole) { exact.param(k).set(i, 2 * kStart * uniform(1, k, whole)); });
    for (size_t k = 0; k < exact.plan.tensors.size(); ++k) {
      owner_.resize(owner_.size() + exact.plan.tensors[k].states.size(), k);
    }
  }

  /// One step of both with the same gradients, phase by phase if the plan is sharded: over one rank.
  void step() {
    const uint64_t seed = 100 + steps_++;
    std::vector<double> before;
    exact.for_each_element([&](size_t k, int64_t i, int64_t whole) {
      for (Trial* run : {&ours, &exact}) run->grad(k).set(i, uniform(seed, k, whole));
      before.push_back(exact.param(k).get(i));
    });
    copy_memory(exact, ours);
    for (Trial* run : {&ours, &exact}) {
      if (!run->plan.sharded) run->run();
      const int phases = run->plan.sharded ? static_cast<int>(run->plan.phases.size()) : 0;
      for (int phase = 0; phase < phases; ++phase) run->run_phase(phase);
    }
    EXPECT_EQ(ours.counters, exact.counters);
    const std::vector<double> slack = compare_codes();
    compare_params(before, slack);
    compare_states(slack);
    EXPECT_LE(others_, std::max<int64_t>(3, stored_ / 1000)) << "of " << stored_;
  }

  Trial ours;
  Trial exact;

 private:
  /// How much further a parameter may move if a moment of its tensor is stored as the neighbour of another: about the
  /// distance of two codes, of the largest move.
  static double coarseness(DType dtype) {
    switch (dtype) {
      case DType::bf16:
        return 0x1p-6;
      case DType::i8:
        return 0x1p-4;
      case DType::u8:  // codes of 4 bits, or of a second moment, whose small ones are far apart
        return 1;
      default:
        return 0;
    }
  }

  /// Counts moments that are stored otherwise, one in thousands, and what that allows their tensors to differ by.
  std::vector<double> compare_codes() {
    std::vector<double> slack(exact.plan.tensors.size(), 0.0);
    exact.for_each_state([&](size_t s, int64_t i) {
      const double coarse = coarseness(exact.state(s).dtype());
      if (coarse == 0) return;
      ++stored_;
      if (ours.state(s).get(i) == exact.state(s).get(i)) return;
      ++others_;
      slack[owner_[s]] = std::max(slack[owner_[s]], coarse);
    });
    return slack;
  }

  /// Arithmetic in f32 moves a parameter within kWithin of the tensor's largest move, and rounds it.  Where that
  /// crosses the border between two numbers of 16 bits, the stored ones are neighbours.
  void compare_params(const std::vector<double>& before, const std::vector<double>& slack) {
    std::vector<double> moved(exact.plan.tensors.size(), 0.0);
    size_t next = 0;
    exact.for_each_element([&](size_t k, int64_t i, int64_t) {
      moved[k] = std::max(moved[k], std::abs(exact.param(k).get(i) - before[next++]));
    });
    Furthest furthest;
    exact.for_each_element([&](size_t k, int64_t i, int64_t) {
      const double value = exact.param(k).get(i);
      const double apart = std::abs(ours.param(k).get(i) - value);
      const double neighbours = spacing(exact.param(k).dtype());
      if (neighbours > 0) ++stored_;
      if (neighbours > 0 && apart != 0) ++others_;
      // Half a unit for each of the two; a parameter of 16 bits that did not move may have been about to.
      const double least = exact.param(k).dtype() == DType::f16 ? 0x1p-24 : 0;
      const double rounded = std::max(std::max(0x1p-23, neighbours) * std::abs(value), least);
      furthest.add(apart, rounded + (kWithin + slack[k]) * std::max(moved[k], 1e-6), k, i);
    });
    EXPECT_LE(furthest.ratio, 1.0) << furthest.apart << " apart, " << label(furthest.index) << " element "
                                   << furthest.element;
    for (size_t k = 0; k < moved.size(); ++k) {
      // Too small a move may round to none, and `cautious` may drop all of a few.
      const bool may_rest = exact.plan.tensors[k].local_elements < 10 || spacing(exact.param(k).dtype()) > 0;
      EXPECT_TRUE(moved[k] > 0 || may_rest) << label(k) << " did not move";
    }
  }

  /// A momentum may be near 0 by cancellation of the last and the new one, so the largest so far is the measure.
  void compare_states(const std::vector<double>& slack) {
    largest_.resize(exact.states.size(), 0.0);
    exact.for_each_state(
        [&](size_t s, int64_t i) { largest_[s] = std::max(largest_[s], std::abs(exact.state(s).get(i))); });
    Furthest furthest;
    exact.for_each_state([&](size_t s, int64_t i) {
      // Codes are counted; and another code changes CAME's instability.
      if (coarseness(exact.state(s).dtype()) > 0 || slack[owner_[s]] > 0) return;
      // Momentum is within as much as the move it makes.  Averages are of squares, whose errors are twice those of what
      // is squared: of gradients, or for CAME's instability of the update and the momentum.
      furthest.add(std::abs(ours.state(s).get(i) - exact.state(s).get(i)), 2 * kWithin * largest_[s], s, i);
    });
    EXPECT_LE(furthest.ratio, 1.0) << furthest.apart << " apart, state " << furthest.index << " element "
                                   << furthest.element;
  }

  [[nodiscard]] std::string label(size_t k) const {
    if (exact.plan.tensors.empty()) return "";
    std::string text = exact.plan.tensors[k].label + " [";
    for (const int64_t size : exact.plan.tensors[k].shape) text += " " + std::to_string(size);
    return text + " ]";
  }

  std::vector<size_t> owner_;  ///< Of every state tensor.
  std::vector<double> largest_;
  int64_t stored_ = 0;  ///< Numbers of 16 bits and codes,
  int64_t others_ = 0;  ///< and how many of them were not the reference's.
  uint64_t steps_ = 0;
};

/// A step as a whole, once more, phase by phase, and with all or some addresses odd.
inline void expect_same_bits_in_every_way(const Options& o, const std::vector<TensorSpec>& list) {
  Trial whole({o}, list, nullptr, core::cuda_backend());
  Trial again({o}, list, nullptr, core::cuda_backend());
  Trial phases({o}, list, nullptr, core::cuda_backend());
  Trial odd({o}, list, nullptr, core::cuda_backend());
  Trial mixed({o}, list, nullptr, core::cuda_backend());
  odd.placement = Placement::odd;
  mixed.placement = Placement::mixed;
  const std::vector<Trial*> all{&whole, &again, &phases, &odd, &mixed};
  for (Trial* run : all) start(*run);
  for (uint64_t step = 0; step < 4; ++step) {
    for (Trial* run : all) run->fill_grads(step);
    whole.run();
    again.run();
    odd.run();
    mixed.run();
    for (int phase = 0; phase < static_cast<int>(phases.plan.phases.size()); ++phase) phases.run_phase(phase);
  }
  EXPECT_EQ(again.image(), whole.image());
  EXPECT_EQ(phases.image(), whole.image());
  EXPECT_EQ(odd.image(), whole.image());
  EXPECT_EQ(mixed.image(), whole.image());
}

}  // namespace came::test
