// Presence: ranks learn from the first reduction whether all of them have a gradient of a sharded tensor.
#include "core/presence.hpp"

#include "sharding.hpp"

namespace came::test {
namespace {

/// Three ranks with two tensors split by rows, and one that each holds whole.
class Presence : public testing::TestWithParam<std::string> {
 protected:
  Presence() {
    Options o(GetParam());
    for (const Shard& shard : cut({7, 5}, 0, {2, 2, 7})) {
      std::vector<TensorSpec> specs(3, spec_of({7, 5}));
      for (size_t k = 0; k < specs.size(); ++k) specs[k].id = k;
      specs[0].shard = specs[1].shard = shard;
      ranks.push_back(std::make_unique<Trial>(std::vector<Options>{o}, specs));
      all.push_back(ranks.back().get());
      ranks.back()->fill_params(1);
      ranks.back()->fill_grads(2);
      ranks.back()->step.active = active[all.size() - 1];
    }
  }

  [[nodiscard]] int phases() const { return static_cast<int>(all[0]->plan.phases.size()); }
  [[nodiscard]] static bool on_host() { return backend_under_test().device == CAME_DEVICE_CPU; }
  void run_phase(int phase) {
    for (Trial* rank : all) rank->run_phase(phase);
    all_reduce(all, phase, 0);
  }
  /// What a rank reads of tensor k: ranks with a gradient, or any; and those without.
  static std::pair<double, double> presence_of(Trial& rank, size_t k) {
    const auto* buffer = static_cast<const double*>(rank.reductions.data());
    const core::Tensor& t = rank.plan.tensors[k];
    return {buffer[t.presence], buffer[core::absence_of(rank.plan, t)]};
  }

  uint8_t active[3][3] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  Ranks ranks;
  std::vector<Trial*> all;
};

TEST_P(Presence, OfRanksThatDisagreeIsAnErrorOnAll) {
  active[1][1] = 0;
  run_phase(0);
  for (Trial* rank : all) {
    EXPECT_EQ(presence_of(*rank, 0).second, 0.0);
    EXPECT_GT(presence_of(*rank, 1).first, 0.0);
    EXPECT_GT(presence_of(*rank, 1).second, 0.0);
    EXPECT_THROW(core::check_presence(rank->plan, rank->step), Error);
  }
  for (int phase = 1; on_host() && phase < phases(); ++phase) {
    for (Trial* rank : all) {
      const Bytes before = rank->image();
      expect_error([&] { rank->run_phase(phase); },
                   "tensor 1 'w': has a gradient on some ranks and none on others, expected it on all of them or none");
      EXPECT_EQ(rank->image(), before);
    }
  }
}

TEST_P(Presence, OfATensorThatNobodyHasAGradientOfPassesItOver) {
  for (auto& rank : active) rank[1] = 0;
  std::vector<Bytes> before;
  for (Trial* rank : all) before.push_back(rank->params[1].bytes());
  for (int phase = 0; phase < phases(); ++phase) {
    run_phase(phase);
    if (phase > 0) continue;
    for (Trial* rank : all) {
      EXPECT_EQ(presence_of(*rank, 0).second, 0.0);
      EXPECT_EQ(presence_of(*rank, 1).first, 0.0);
      EXPECT_GT(presence_of(*rank, 1).second, 0.0);
    }
  }
  for (size_t r = 0; r < all.size(); ++r) {
    EXPECT_EQ(all[r]->params[1].bytes(), before[r]);
    EXPECT_EQ(all[r]->counters, (std::vector<int64_t>{1, 0, 1}));
  }
}

TEST_P(Presence, IsWrittenWhereTheStepIsSkipped) {
  const double one = 1;
  const TensorView found_inf(&one);
  for (const bool device_scalars : {false, true}) {
    for (Trial* rank : all) {
      rank->step.found_inf = &found_inf;
      rank->device_scalars = device_scalars;
      auto* buffer = static_cast<double*>(rank->reductions.data());
      std::fill_n(buffer, rank->reductions.size() / 8, 7.0);
    }
    active[2][0] = 0;
    run_phase(0);
    const bool largest = all[0]->plan.phases[0].op == CAME_REDUCE_MAX;
    EXPECT_EQ(presence_of(*all[0], 0), (std::pair<double, double>{largest ? 1 : 2, 1}));
    EXPECT_EQ(presence_of(*all[0], 1), (std::pair<double, double>{largest ? 1 : 3, 0}));
  }
}

TEST_P(Presence, SlotsOfATensorWithoutAGradientAreZero) {
  for (auto& rank : active) rank[0] = 0;
  for (int phase = 0; phase < phases(); ++phase) {
    const auto p = static_cast<size_t>(phase);
    for (Trial* rank : all) {
      const core::SharedRun& run = rank->plan.phases[p].shared[0];
      auto* buffer = static_cast<double*>(rank->reductions.data());
      std::fill_n(buffer + run.begin, run.count, 7.0);  // what another step left
      rank->run_phase(phase);
      const core::Tensor& t = rank->plan.tensors[0];
      const int64_t end = rank->plan.tensors[1].slots[p].offset;  // the next in the run
      for (int64_t k = t.slots[p].offset; k < end; ++k) EXPECT_EQ(buffer[k], 0.0) << "phase " << phase;
    }
    all_reduce(all, phase, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Presence, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

TEST(PresencePlan, StandsAtTheFrontOfEveryGroupInTheFirstPhase) {
  for (const std::string& word : all_words()) {
    std::vector<TensorSpec> specs(4, spec_of({10, 6}));
    specs[0].shard = Shard{1, {0, 0}, {4, 6}, 1};
    specs[1].shard = specs[3].shard = Shard{1, {0, 0}, {4, 6}, 0};
    Options o(word);
    o.max_grad_norm = 1;  // whose phase comes first
    const Plan plan({o}, specs);
    EXPECT_EQ(plan.reduction(0, 0).presence, 4);
    EXPECT_EQ(plan.reduction(0, 1).presence, 2);
    EXPECT_EQ(plan.reduction(0, 2).presence, 0);
    EXPECT_EQ(plan.reduction(0, 0).count, 4 + 2) << word;  // and a square each
    for (int phase = 1; phase < plan.phases(); ++phase) EXPECT_EQ(plan.reduction(phase, 0).presence, 0);
    EXPECT_EQ(Plan({o}, {spec_of({10, 6})}).reduction(0, 0).presence, 0);
  }
  TensorSpec spec = spec_of({10, 6});
  spec.shard = Shard{1, {0, 0}, {4, 6}};
  const Plan adamw({Options::adamw()}, {spec});
  EXPECT_EQ(adamw.phases(), 1);
  EXPECT_EQ(adamw.reduction(0).count, 2);
  EXPECT_EQ(adamw.reduction(0).presence, 2);
}

// More than one launch takes on a device: 2048, src/cuda/presence.hpp.
TEST(PresencePlan, OfVeryManyTensors) {
  constexpr size_t kTensors = 2 * 2048 + 70;
  std::vector<TensorSpec> specs(kTensors, spec_of({2}, DType::f32));
  for (size_t k = 0; k < kTensors; ++k) {
    specs[k].shard = Shard{1, {0}, {1}, static_cast<int>(k % 7 == 3)};
    specs[k].id = k;
  }
  Trial run({Options::adamw()}, specs);
  std::vector<uint8_t> active(kTensors);
  for (size_t k = 0; k < kTensors; ++k) active[k] = static_cast<uint8_t>(k % 3 != 0 && k % 5 != 1);
  run.step.active = active.data();
  run.run_phase(0);
  const auto* buffer = static_cast<const double*>(run.reductions.data());
  for (size_t k = 0; k < kTensors; ++k) {
    const core::Tensor& t = run.plan.tensors[k];
    ASSERT_EQ(buffer[t.presence], static_cast<double>(active[k])) << k;
    ASSERT_EQ(buffer[core::absence_of(run.plan, t)], 1.0 - static_cast<double>(active[k])) << k;
  }
}

}  // namespace
}  // namespace came::test
