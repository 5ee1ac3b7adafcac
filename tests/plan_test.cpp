// Plans: phases, reductions, tiles, and what they cost.
#include "support.hpp"

namespace came::test {
namespace {

std::string phases_of(const std::vector<Options>& groups, const std::vector<TensorSpec>& specs) {
  const Plan plan(groups, specs);
  std::string text;
  for (int k = 0; k < plan.phases(); ++k) text += (k > 0 ? " " : "") + std::string(plan.reduction(k).phase);
  return text;
}

std::string phases_of(const std::string& word, bool cautious = false, double max_grad_norm = 0) {
  Options o(word);
  o.cautious = cautious ? 1 : 0;
  o.max_grad_norm = max_grad_norm;
  return phases_of({o}, {spec_of({4, 3})});
}

TEST(Plan, EveryOptimizerHasItsPhases) {
  EXPECT_EQ(phases_of("adam"), "apply");
  EXPECT_EQ(phases_of("adamw"), "apply");
  EXPECT_EQ(phases_of("sm3"), "cover apply");
  EXPECT_EQ(phases_of("lamb"), "moments apply");
  EXPECT_EQ(phases_of("adafactor"), "statistics apply");
  EXPECT_EQ(phases_of("came"), "statistics momentum apply");
  EXPECT_EQ(phases_of("came", false, 1.0), "norm statistics momentum apply");
  EXPECT_EQ(phases_of("adamw", true), "moments apply");
  EXPECT_EQ(phases_of("adafactor", true), "statistics momentum apply");
  EXPECT_EQ(phases_of("sm3", true), "cover agreement apply");
}

TEST(Plan, OnlyASplitBothWaysNeedsOneReductionMore) {
  TensorSpec spec = spec_of({4, 6});
  spec.shard = Shard{1, {0, 0}, {2, 6}};
  EXPECT_EQ(phases_of({Options::came()}, {spec}), "statistics momentum apply");
  spec.shard = Shard{2, {0, 0}, {4, 3}};
  EXPECT_EQ(phases_of({Options::came()}, {spec}), "statistics momentum apply");
  spec.shard = Shard{3, {0, 0}, {2, 3}};
  EXPECT_EQ(phases_of({Options::came()}, {spec}), "statistics rms momentum apply");
}

TEST(Plan, RanksReduceOnlyWhatIsSharded) {
  TensorSpec sharded = spec_of({10, 6});
  sharded.shard = Shard{1, {0, 0}, {4, 6}};
  const Plan plan({Options::came()}, {spec_of({5, 7}), sharded, spec_of({9})});
  // Presence, two vectors of six columns and one scalar, then one vector and one scalar.
  EXPECT_EQ(plan.reduction(0).offset, 0);
  EXPECT_EQ(plan.reduction(0).count, 2 + 13);
  EXPECT_EQ(plan.reduction(1).count, 7);
  EXPECT_EQ(plan.reduction(2).count, 0);
  EXPECT_EQ(plan.reduction(0).op, CAME_REDUCE_SUM);
  const Plan alone({Options::came()}, {spec_of({5, 7})});
  EXPECT_EQ(alone.reduction(0).count, 0);
  const Plan sm3({Options::sm3()}, {sharded});
  EXPECT_EQ(sm3.reduction(0).op, CAME_REDUCE_MAX);
  EXPECT_EQ(sm3.reduction(0).count, 2 + 16);
}

TEST(Plan, EachReduceGroupHasARunOfItsOwn) {
  std::vector<TensorSpec> specs(3, spec_of({10, 6}));
  specs[0].shard = Shard{1, {0, 0}, {4, 6}, 1};
  specs[1].shard = Shard{1, {0, 0}, {4, 6}, 0};
  const Plan plan({Options::came()}, specs);
  EXPECT_EQ(plan.reduction(0, 0).offset, 0);
  EXPECT_EQ(plan.reduction(0, 0).count, 15);
  EXPECT_EQ(plan.reduction(0, 1).offset, 15);
  EXPECT_EQ(plan.reduction(0, 1).count, 15);
  EXPECT_EQ(plan.reduction(0, 2).count, 0);
}

TEST(Plan, TilesCoverEveryElementOnce) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{7, 5}, {3, 70000}, {2, 3, 5, 4}, {31}, {}, {0, 4}, {1, 1}}) {
    for (const std::string& word : all_words()) {
      const core::Tiling tiling{.elements = 12, .cols = 4};
      const Trial run({Options(word)}, {spec_of(shape)}, &tiling);
      const core::Tensor& t = run.plan.tensors[0];
      std::vector<int> seen(static_cast<size_t>(t.local_elements), 0);
      for (const core::Tile& tile : run.plan.tiles) {
        for (int64_t i = tile.rows.begin; i < tile.rows.begin + tile.rows.count; ++i) {
          for (int64_t j = tile.cols.begin; j < tile.cols.begin + tile.cols.count; ++j) {
            for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
              ++seen[static_cast<size_t>((b * t.local.rows.count + i) * t.local.cols.count + j)];
            }
          }
        }
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), t.local_elements) << word;
    }
  }
}

/// Five steps with a tiling; the parameters.
std::vector<double> steps_with(const Options& o, const std::vector<int64_t>& shape, const core::Tiling* tiling) {
  Trial run({o}, {spec_of(shape)}, tiling);
  run.fill_params(1);
  for (uint64_t k = 0; k < 5; ++k) {
    run.fill_grads(10 + k);
    run.run();
  }
  std::vector<double> values;
  for (int64_t i = 0; i < run.plan.tensors[0].local_elements; ++i) values.push_back(run.param(0).get(i));
  return values;
}

TEST(Plan, ResultDoesNotDependOnTheTiling) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{67, 71}, {40, 12, 3, 3}, {310}, {50, 6, 5}}) {
    for (const std::string& word : all_words()) {
      for (const bool cautious : {false, true}) {
        Options o(word);
        o.cautious = cautious ? 1 : 0;
        o.max_grad_norm = cautious ? 0.7 : 0;
        const std::vector<double> whole = steps_with(o, shape, nullptr);
        const core::Tiling tiling{.elements = 200, .cols = 40};
        const std::vector<double> tiled = steps_with(o, shape, &tiling);
        for (size_t i = 0; i < whole.size(); ++i) {
          // Sums of the same few hundred terms in another order: 1e-13 relative leaves a factor of ten.
          EXPECT_NEAR(whole[i], tiled[i], 1e-13 * (1 + std::abs(whole[i]))) << word << " element " << i;
        }
      }
    }
  }
}

TEST(Plan, AFewVeryWideRowsAreOwnedByColumnsWithTheSameResult) {
  const Trial wide({Options::came()}, {spec_of({2, 1 << 16})});
  EXPECT_EQ(wide.plan.tensors[0].owner, core::Owner::columns);
  const Trial tall({Options::came()}, {spec_of({1 << 16, 2})});
  EXPECT_EQ(tall.plan.tensors[0].owner, core::Owner::rows);

  // The same numbers seen as columns of a transposed matrix give the transposed result.
  Trial a({Options::came()}, {spec_of({2, 1 << 16})});
  Trial b({Options::came()}, {spec_of({1 << 16, 2})});
  const auto fill = [](core::Cells cells, double phase, int64_t rows, int64_t cols, bool transposed) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        cells.set(transposed ? j * rows + i : i * cols + j, std::sin(phase + 0.37 * double(i) + 0.011 * double(j)));
      }
    }
  };
  fill(a.param(0), 1, 2, 1 << 16, false);
  fill(b.param(0), 1, 2, 1 << 16, true);
  for (int step = 0; step < 5; ++step) {
    fill(a.grad(0), 2.0 + step, 2, 1 << 16, false);
    fill(b.grad(0), 2.0 + step, 2, 1 << 16, true);
    a.run();
    b.run();
  }
  double largest = 0;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 1 << 16; ++j) {
      largest = std::max(largest, std::abs(a.param(0).get(i * (1 << 16) + j) - b.param(0).get(j * 2 + i)));
    }
  }
  EXPECT_LE(largest, 1e-12);
}

TEST(Plan, SmallMatricesAreTakenWholeAndReduceNoVectors) {
  const Trial small({Options::came()}, {spec_of({64, 64})});
  EXPECT_EQ(small.plan.tensors[0].owner, core::Owner::matrix);
  EXPECT_LE(small.plan.memory.reduction_bytes, 8);
  EXPECT_EQ(Trial({Options::came()}, {spec_of({64, 65})}).plan.tensors[0].owner, core::Owner::rows);
  // The authors' view of a convolution: 65536 matrices of 3x3, whose buffers must not outweigh their state.
  Options authors = Options::came();
  authors.view = CAME_VIEW_LAST_TWO;
  const came_memory memory = estimate({authors}, {spec_of({256, 256, 3, 3}, DType::f32)});
  EXPECT_LE(memory.workspace_bytes + memory.reduction_bytes, memory.state_bytes / 100);
}

TEST(Plan, MatricesOfOneElementAreOneTileWhereTilesHaveNoBound) {
  core::Tiling endless = backend_under_test().tiling;
  endless.elements = std::numeric_limits<int64_t>::max();
  const Trial run({Options::came()}, {spec_of({1, 1}), spec_of({3, 1, 1})}, &endless);
  ASSERT_EQ(run.plan.tiles.size(), 2U);
  EXPECT_EQ(run.plan.tiles[0].batch.count, 1);
}

TEST(Plan, IsAPureFunctionOfItsArguments) {
  const std::vector<TensorSpec> specs{spec_of({64, 32, 3, 3}), spec_of({100}), spec_of({17, 31})};
  const Trial a({Options::came()}, specs);
  const Trial b({Options::came()}, specs);
  EXPECT_EQ(std::memcmp(&a.plan.memory, &b.plan.memory, sizeof a.plan.memory), 0);
  ASSERT_EQ(a.plan.tiles.size(), b.plan.tiles.size());
  EXPECT_EQ(std::memcmp(a.plan.tiles.data(), b.plan.tiles.data(), a.plan.tiles.size() * sizeof(core::Tile)), 0);
  for (size_t k = 0; k < specs.size(); ++k) {
    for (size_t p = 0; p < a.plan.phases.size(); ++p) {
      EXPECT_EQ(a.plan.tensors[k].slots[p].offset, b.plan.tensors[k].slots[p].offset);
    }
  }
}

TEST(Plan, EmptyTensorsAndEmptyListsAreFine) {
  for (const std::string& word : all_words()) {
    Trial none({Options(word)}, {});
    EXPECT_NO_THROW(none.run());
    Trial empty({Options(word)}, {spec_of({0}), spec_of({0, 4}), spec_of({3, 0, 2}), spec_of({2, 2})});
    empty.fill_params(1);
    empty.fill_grads(2);
    EXPECT_NO_THROW(empty.run());
    EXPECT_EQ(empty.counters, std::vector<int64_t>(4, 1));
    empty.for_each_state([&](size_t s, int64_t i) { EXPECT_TRUE(std::isfinite(empty.state(s).get(i))); });
  }
}

TEST(Estimate, BertLargeCostsWhatIsPromised) {
  std::vector<TensorSpec> specs{spec_of({30522, 1024}, DType::f32), spec_of({512, 1024}, DType::f32),
                                spec_of({2, 1024}, DType::f32)};
  for (int layer = 0; layer < 24; ++layer) {
    for (int k = 0; k < 4; ++k) specs.push_back(spec_of({1024, 1024}, DType::f32));
    specs.push_back(spec_of({4096, 1024}, DType::f32));
    specs.push_back(spec_of({1024, 4096}, DType::f32));
    specs.push_back(spec_of({4096}, DType::f32));
    for (int k = 0; k < 9; ++k) specs.push_back(spec_of({1024}, DType::f32));
  }
  const auto state_per_parameter = [&](Options o, auto change) {
    change(o);
    const came_memory m = estimate({o}, specs);
    EXPECT_EQ(m.peak_bytes, m.state_bytes + m.workspace_bytes + m.reduction_bytes + m.table_bytes);
    return 4.0 * double(m.state_bytes) / double(m.parameter_bytes);
  };
  const auto same = [](Options&) {};
  EXPECT_EQ(state_per_parameter(Options::adam(), same), 8.0);
  EXPECT_LE(state_per_parameter(Options::came(), same), 4.02);
  EXPECT_LE(state_per_parameter(Options::came(), [](Options& o) { o.momentum_dtype = CAME_DTYPE_BF16; }), 2.02);
  EXPECT_LE(state_per_parameter(Options::sm3(), [](Options& o) { o.beta1 = 0; }), 0.02);
}

TEST(Estimate, ConvolutionsCostFourBytesPerParameter) {
  const came_memory m = estimate({Options::came()}, {spec_of({256, 256, 3, 3}, DType::f32)});
  EXPECT_LE(4.0 * double(m.state_bytes) / double(m.parameter_bytes), 4.1);
  Options authors = Options::came();
  authors.view = CAME_VIEW_LAST_TWO;
  const came_memory a = estimate({authors}, {spec_of({256, 256, 3, 3}, DType::f32)});
  EXPECT_NEAR(4.0 * double(a.state_bytes) / double(a.parameter_bytes), 9.3, 0.1);
}

}  // namespace
}  // namespace came::test
