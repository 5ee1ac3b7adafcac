// A tensor split over ranks gives what the whole tensor gives.  Ranks are plans of their own; the test sums (or takes
// the maximum of) their reduction buffers between the phases, as an all-reduce would.
#include "sharding.hpp"

namespace came::test {
namespace {

struct Case {
  std::string name;
  Sizes shape;
  std::vector<Shard> ranks;
};

std::vector<Case> cases() {
  const Sizes matrix{13, 11};
  const Sizes convolution{7, 4, 3, 3};
  const Sizes experts{3, 8, 9};
  const Sizes large_experts{3, 65, 64};
  const Sizes vector{29};
  return {
      {"one rank", matrix, cut(matrix, 0, {13})},
      {"rows, uneven", matrix, cut(matrix, 0, {2, 3, 13})},
      {"rows, empty parts", matrix, cut(matrix, 0, {0, 6, 6, 13})},
      {"columns", matrix, cut(matrix, 1, {4, 11})},
      {"columns, empty parts", matrix, cut(matrix, 1, {0, 10, 11, 11})},
      {"rows and columns", matrix, cut_again(cut(matrix, 0, {5, 13}), 1, {3, 4, 11})},
      {"rows and columns, empty parts", matrix, cut_again(cut(matrix, 0, {0, 13}), 1, {11, 11})},
      {"rows of a folded convolution", convolution, cut(convolution, 0, {3, 7})},
      {"columns of a folded convolution", convolution, cut(convolution, 1, {1, 4})},
      {"experts", experts, cut(experts, 0, {1, 1, 3})},
      {"rows of every expert", experts, cut(experts, 1, {1, 8})},
      {"columns of every expert", experts, cut(experts, 2, {5, 9})},
      {"experts and rows", experts, cut_again(cut(experts, 0, {1, 3}), 1, {4, 8})},
      {"experts that are not small", large_experts, cut(large_experts, 0, {2, 3})},
      {"experts that are not small, and rows", large_experts, cut_again(cut(large_experts, 0, {0, 2, 3}), 1, {20, 65})},
      {"experts, rows and columns", experts, cut_again(cut_again(cut(experts, 0, {2, 3}), 1, {5, 8}), 2, {9, 9})},
      {"experts and columns", experts, cut_again(cut(experts, 0, {1, 3}), 2, {0, 4, 9})},
      {"a vector", vector, cut(vector, 0, {0, 8, 29})},
  };
}

struct Difference {
  double param = 0;  ///< Largest difference of a parameter, by the largest displacement of its tensor.
  double state = 0;  ///< Largest difference of a row or column statistic, relative.
  double codes = 0;  ///< Largest difference of a code or scale.
};

/// A vector's parts on so many ranks: at any point.
std::vector<Shard> cut_vector(const Sizes& shape, int64_t ranks) {
  Sizes points;
  for (int64_t r = 1; r <= ranks; ++r) points.push_back(shape[0] * r * r / (ranks * ranks));
  return cut(shape, 0, points);
}

/// What the ranks' tensors differ by from the whole ones after 25 steps.
Difference difference(const Options& options, const Case& c, DType dtype = DType::f64) {
  // Beside the sharded tensor lie one that every rank holds whole, and a vector.
  TensorSpec replicated = spec_of({6, 5}, dtype);
  replicated.id = 1;
  TensorSpec vector = spec_of({37}, dtype);
  vector.id = 2;
  Trial whole({options}, {spec_of(c.shape, dtype), replicated, vector});
  const std::vector<Shard> parts = cut_vector(vector.shape, static_cast<int64_t>(c.ranks.size()));
  Ranks ranks;
  for (size_t r = 0; r < c.ranks.size(); ++r) {
    std::vector<TensorSpec> list{spec_of(c.shape, dtype), replicated, vector};
    list[0].shard = c.ranks[r];
    list[0].shard->matrix_group = 1;
    list[2].shard = parts[r];
    ranks.push_back(std::make_unique<Trial>(std::vector<Options>{options}, list));
  }
  whole.fill_params(1);
  for (auto& rank : ranks) rank->fill_params(1);
  std::vector<double> displacement(3, 0.0);
  std::vector<double> origin;
  whole.for_each_element([&](size_t k, int64_t i, int64_t) { origin.push_back(whole.param(k).get(i)); });
  for (uint64_t step = 0; step < 25; ++step) {
    whole.fill_grads(100 + step);
    whole.run();
    for (auto& rank : ranks) rank->fill_grads(100 + step);
    step_ranks(ranks, groups_of(c.ranks));
  }
  size_t next = 0;
  whole.for_each_element([&](size_t k, int64_t i, int64_t) {
    displacement[k] = std::max(displacement[k], std::abs(whole.param(k).get(i) - origin[next++]));
  });
  Difference result;
  for (auto& rank : ranks) {
    EXPECT_EQ(rank->counters, (std::vector<int64_t>{25, 25, 25}));
    rank->for_each_element([&](size_t k, int64_t local, int64_t element) {
      const double apart = std::abs(rank->param(k).get(local) - whole.param(k).get(element));
      EXPECT_TRUE(std::isfinite(apart));
      result.param = std::max(result.param, apart > 0 ? apart / displacement[k] : 0.0);
    });
    rank->for_each_state([&](size_t s, int64_t local) {
      const core::Tensor& tensor = rank->plan.tensors[rank->tensor_of_state(s)];
      const core::State& state = tensor.states[s - static_cast<size_t>(tensor.first_state)];
      const double expected = whole.state(s).get(whole_index(state, local));
      const double apart = std::abs(rank->state(s).get(local) - expected);
      const std::string name = state.name;
      const bool momentum = name == "exp_avg";  // may be near 0 by cancellation
      if (!core::is_float(state.dtype) || name.ends_with("_scale")) result.codes = std::max(result.codes, apart);
      result.state = std::max(result.state, momentum || apart == 0 ? apart : apart / std::abs(expected));
    });
  }
  return result;
}

void expect_equal(const Options& options, const Case& c) {
  const Difference d = difference(options, c);
  EXPECT_LE(d.param, 1e-12) << c.name;
  EXPECT_LE(d.state, 1e-12) << c.name;
}

class Sharding : public testing::TestWithParam<std::string> {};

TEST_P(Sharding, EqualsTheWholeTensor) {
  for (const Case& c : cases()) expect_equal(Options(GetParam()), c);
}

TEST_P(Sharding, EqualsTheWholeTensorWithEveryOption) {
  Options o(GetParam());
  o.cautious = 1;
  o.max_grad_norm = 0.8;
  o.weight_decay = 0.1;
  o.maximize = 1;
  if (o.word() == "came") o.confidence_1d = 1, o.bias_correction = 0;
  if (o.word() == "adafactor") {
    o.scale_parameter = o.relative_step = o.lr_in_momentum = 1;
    o.beta2_decay = -0.8;
  }
  for (const Case& c : cases()) expect_equal(o, c);
}

TEST_P(Sharding, EqualsTheWholeTensorInEitherView) {
  Options o(GetParam());
  if (o.word() != "came" && o.word() != "adafactor" && o.word() != "sm3") return;
  for (const came_view view : {CAME_VIEW_FOLD, CAME_VIEW_LAST_TWO}) {
    o.view = view;
    for (const Case& c : cases()) {
      // Some cuts are a range of rows or columns in one view only; in the other they are refused (view_test.cpp).
      if (view == CAME_VIEW_FOLD && c.shape.size() == 3 && c.name != "experts") continue;
      if (view == CAME_VIEW_LAST_TWO && c.name == "columns of a folded convolution") continue;
      expect_equal(o, c);
    }
  }
}

// Sums over ranks have another order, which in f64 moves a momentum by some 1e-16: none of these lies so close to the
// middle between two codes, or a scale between two numbers of f32.
TEST_P(Sharding, CodesOfRowsAreThoseOfTheWholeTensor) {
  const Sizes wide{13, 301};
  const std::vector<Case> list{{"uneven", wide, cut(wide, 0, {2, 3, 13})},
                               {"empty", wide, cut(wide, 0, {0, 6, 6, 13})}};
  for (const char* dtype : {"int8", "int4"}) {
    Options o(GetParam());
    o.set("momentum_dtype", dtype);
    for (const Case& c : list) {
      const Difference d = difference(o, c);
      EXPECT_EQ(d.codes, 0.0) << dtype << " " << c.name;
      EXPECT_LE(d.state, 1e-12) << dtype << " " << c.name;
      EXPECT_LE(d.param, 1e-12) << dtype << " " << c.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sharding, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

TEST(ShardingRounding, StochasticRoundingFollowsTheWholeTensorsElements) {
  Options o = Options::adamw();
  o.stochastic_rounding = 1;
  o.lr = 1e-4;
  o.momentum_dtype = CAME_DTYPE_BF16;
  for (const Case& c : cases()) EXPECT_EQ(difference(o, c, DType::bf16).param, 0.0) << c.name;
}

// Where a rank holds whole rows, or columns by whole blocks, the codes are those of the whole tensor, draws included.
TEST(ShardingRounding, CodesOfBothMomentsFollowTheWholeTensors) {
  const Sizes wide{6, 300};
  std::vector<Case> list{{"columns by blocks", wide, cut(wide, 1, {128, 128, 300})},
                         {"rows and columns by blocks", wide, cut_again(cut(wide, 0, {2, 6}), 1, {256, 300})}};
  for (const Case& c : cases()) {
    if (c.name.starts_with("one rank") || c.name == "rows, uneven" || c.name == "rows, empty parts" ||
        c.name.starts_with("rows of a folded") || c.name == "experts") {
      list.push_back(c);
    }
  }
  ASSERT_EQ(list.size(), 7U);
  // The norms of lamb are summed in another order, which may turn a rounding: that of a parameter below 4, on a path of
  // 0.05 or more.
  constexpr double kOneRounding = 0x1p-22 / 0.05;
  for (const std::string& word : words_with_second_moment()) {
    for (const char* dtype : {"int8", "int4"}) {
      Options o(word);
      o.set("momentum_dtype", dtype).set("second_moment_dtype", "int8");
      for (const Case& c : list) {
        const Difference d = difference(o, c, DType::f32);
        EXPECT_EQ(d.state, 0.0) << word << " " << c.name;
        EXPECT_LE(d.param, word == "lamb" ? kOneRounding : 0.0) << word << " " << dtype << " " << c.name;
      }
    }
  }
}

TEST(ShardingStep, FoundInfLeavesEveryRankUnchanged) {
  Ranks ranks;
  for (const Shard& shard : cut({13, 11}, 0, {4, 13})) {
    TensorSpec spec = spec_of({13, 11});
    spec.shard = shard;
    ranks.push_back(std::make_unique<Trial>(std::vector<Options>{Options::came()}, std::vector<TensorSpec>{spec}));
    ranks.back()->fill_params(1);
    ranks.back()->fill_grads(2);
  }
  step_ranks(ranks);
  const double one = 1;
  const TensorView found_inf(&one);
  std::vector<Bytes> before;
  for (auto& rank : ranks) {
    before.push_back(rank->image());
    rank->step.found_inf = &found_inf;
  }
  step_ranks(ranks);
  for (size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(ranks[r]->image(), before[r]);
}

TEST(ShardingStep, AWholeStepOfAShardedPlanIsRefused) {
  TensorSpec spec = spec_of({4, 3});
  spec.shard = Shard{1, {0, 0}, {2, 3}};
  Trial run({Options::came()}, {spec});
  const Bytes before = run.image();
  expect_error([&] { run.run(); }, "tensor 0 'w'", "sharded", "came_plan_run_phase");
  EXPECT_EQ(run.image(), before);
}

}  // namespace
}  // namespace came::test
