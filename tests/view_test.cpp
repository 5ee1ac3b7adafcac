// Matrix views, state layouts and shards: shapes in, shapes out.
#include "core/view.hpp"

#include <sstream>

#include "support.hpp"

namespace came::test {
namespace {

using core::choose_view;

std::vector<int64_t> view_of(const std::vector<int64_t>& shape, View wanted = View::automatic) {
  const core::MatrixView v = choose_view(shape, wanted, true);
  return {v.batch, v.rows, v.cols};
}

using Sizes = std::vector<int64_t>;

TEST(View, MatricesAreTakenAsTheyAre) {
  EXPECT_EQ(view_of({7, 5}), (Sizes{1, 7, 5}));
  EXPECT_EQ(view_of({1, 5}), (Sizes{1, 1, 5}));
  EXPECT_EQ(view_of({7, 1}), (Sizes{1, 7, 1}));
  EXPECT_EQ(view_of({7, 5}, View::last_two), (Sizes{1, 7, 5}));
}

TEST(View, ConvolutionsFoldAndExpertsStayABatch) {
  EXPECT_EQ(view_of({64, 32, 3, 3}), (Sizes{1, 64, 288}));
  EXPECT_EQ(view_of({64, 32, 1, 1}), (Sizes{1, 64, 32}));
  EXPECT_EQ(view_of({8, 512, 256}), (Sizes{8, 512, 256}));
  EXPECT_EQ(view_of({1, 512, 256}), (Sizes{1, 512, 256}));
}

TEST(View, IsAsTold) {
  EXPECT_EQ(view_of({64, 32, 3, 3}, View::last_two), (Sizes{2048, 3, 3}));
  EXPECT_EQ(view_of({8, 512, 256}, View::fold), (Sizes{1, 8, 512 * 256}));
}

TEST(View, AutomaticNeverNeedsMoreStateThanEither) {
  for (const Sizes& shape : {Sizes{2, 2, 2}, Sizes{3, 1, 9}, Sizes{9, 9, 1, 1}, Sizes{4, 3, 2, 5}, Sizes{0, 3, 4}}) {
    const auto cost = [&](View wanted) {
      const core::MatrixView v = choose_view(shape, wanted, true);
      return v.batch * (v.rows + v.cols);
    };
    EXPECT_EQ(cost(View::automatic), std::min(cost(View::fold), cost(View::last_two)));
  }
}

std::vector<std::string> layout_text(const Options& options, const TensorSpec& spec) {
  std::vector<std::string> text;
  for (const StateSpec& s : layout(options, spec)) {
    std::ostringstream line;
    line << s.name << ":" << core::dtype_name(s.dtype);
    for (const int64_t size : s.shape) line << " " << size;
    text.push_back(line.str());
  }
  return text;
}

using Lines = std::vector<std::string>;

TEST(Layout, CameKeepsTheAuthorsNamesAndShapes) {
  Options o = Options::came();
  EXPECT_EQ(layout_text(o, spec_of({4, 3}, DType::bf16)),
            (Lines{"exp_avg:f32 4 3", "exp_avg_sq_row:f32 4", "exp_avg_sq_col:f32 3", "exp_avg_res_row:f32 4",
                   "exp_avg_res_col:f32 3"}));
  EXPECT_EQ(layout_text(o, spec_of({5}, DType::f32)), (Lines{"exp_avg:f32 5", "exp_avg_sq:f32 5"}));
  EXPECT_EQ(layout_text(o, spec_of({}, DType::f64)), (Lines{"exp_avg:f64", "exp_avg_sq:f64"}));
  o.view = CAME_VIEW_LAST_TWO;
  EXPECT_EQ(layout_text(o, spec_of({2, 4, 3}, DType::f32)),
            (Lines{"exp_avg:f32 2 4 3", "exp_avg_sq_row:f32 2 4", "exp_avg_sq_col:f32 2 3", "exp_avg_res_row:f32 2 4",
                   "exp_avg_res_col:f32 2 3"}));
  o.confidence_1d = 1;
  o.momentum_dtype = CAME_DTYPE_BF16;
  EXPECT_EQ(layout_text(o, spec_of({5}, DType::f32)),
            (Lines{"exp_avg:bf16 5", "exp_avg_sq:f32 5", "exp_avg_res:f32 5"}));
}

TEST(Layout, NoMomentumNoMemory) {
  Options sm3 = Options::sm3();
  sm3.beta1 = 0;
  EXPECT_EQ(layout_text(sm3, spec_of({4, 3}, DType::f32)), (Lines{"accumulator_row:f32 4", "accumulator_col:f32 3"}));
  Options adafactor = Options::adafactor();
  adafactor.beta1 = 0;
  EXPECT_EQ(layout_text(adafactor, spec_of({4, 3}, DType::f32)),
            (Lines{"exp_avg_sq_row:f32 4", "exp_avg_sq_col:f32 3"}));
}

TEST(Layout, AdamAndLambKeepTwoMoments) {
  for (const char* word : {"adam", "adamw", "lamb"}) {
    EXPECT_EQ(layout_text(Options(std::string(word)), spec_of({4, 3}, DType::f16)),
              (Lines{"exp_avg:f32 4 3", "exp_avg_sq:f32 4 3"}));
  }
}

TEST(Layout, ShardHoldsItsPart) {
  TensorSpec spec = spec_of({10, 6}, DType::f32);
  spec.shard = Shard{1, {7, 0}, {3, 6}};
  EXPECT_EQ(layout_text(Options::came(), spec),
            (Lines{"exp_avg:f32 3 6", "exp_avg_sq_row:f32 3", "exp_avg_sq_col:f32 6", "exp_avg_res_row:f32 3",
                   "exp_avg_res_col:f32 6"}));
}

TEST(Layout, ShardKnowsItsPlaceInTheWholeState) {
  TensorSpec matrix = spec_of({10, 6}, DType::f32);
  matrix.shard = Shard{3, {7, 2}, {3, 4}};
  const std::vector<StateSpec> states = layout(Options::came(), matrix);
  EXPECT_EQ(states[0].whole_shape, (Sizes{10, 6}));
  EXPECT_EQ(states[0].offset, (Sizes{7, 2}));
  EXPECT_EQ(states[1].whole_shape, (Sizes{10}));
  EXPECT_EQ(states[1].offset, (Sizes{7}));
  EXPECT_EQ(states[2].whole_shape, (Sizes{6}));
  EXPECT_EQ(states[2].offset, (Sizes{2}));
  TensorSpec experts = spec_of({8, 100, 90}, DType::f32);
  experts.shard = Shard{1, {4, 0, 0}, {2, 100, 90}};
  const std::vector<StateSpec> batch = layout(Options::came(), experts);
  EXPECT_EQ(batch[1].whole_shape, (Sizes{8, 100}));
  EXPECT_EQ(batch[1].shape, (Sizes{2, 100}));
  EXPECT_EQ(batch[1].offset, (Sizes{4, 0}));
  EXPECT_EQ(batch[2].whole_shape, (Sizes{8, 90}));
  EXPECT_EQ(batch[2].offset, (Sizes{4, 0}));
}

TEST(Layout, StatesKnowTheDimensionsOfTheParameter) {
  using Dims = std::vector<std::vector<int>>;
  const auto dims_of = [](Options o, const Sizes& shape, const char* view, const char* momentum = "f32") {
    if (std::string(view) != "auto") o.set("view", view);
    o.set("momentum_dtype", momentum);
    Dims dims;
    for (const StateSpec& state : layout(o, spec_of(shape, DType::f32))) dims.push_back(state.dims);
    return dims;
  };
  const Options adafactor = Options::adafactor();
  EXPECT_EQ(dims_of(adafactor, {8, 100, 90}, "last_two"), (Dims{{0, 1, 2}, {0, 1, -1}, {0, -1, 1}}));
  EXPECT_EQ(dims_of(adafactor, {2, 8, 10, 9}, "last_two"), (Dims{{0, 1, 2, 3}, {0, 1, 2, -1}, {0, 1, -1, 2}}));
  EXPECT_EQ(dims_of(adafactor, {7, 4, 3, 3}, "fold"), (Dims{{0, 1, 2, 3}, {0, -1, -1, -1}, {-1, 0, 0, 0}}));
  EXPECT_EQ(dims_of(adafactor, {7, 4}, "auto"), (Dims{{0, 1}, {0, -1}, {-1, 0}}));
  EXPECT_EQ(dims_of(adafactor, {7}, "auto"), (Dims{{0}, {0}}));
  EXPECT_EQ(dims_of(adafactor, {}, "auto"), (Dims{{}, {}}));
  const Options adamw = Options::adamw();
  EXPECT_EQ(dims_of(adamw, {7, 4, 3, 3}, "auto", "int8"), (Dims{{0, 1, 2, 3}, {0, 1, 1, 1}, {0, 1, 2, 3}}));
  EXPECT_EQ(dims_of(adamw, {7, 4, 3, 3}, "auto", "int4"), (Dims{{0, 1, 1, 1}, {0, 1, 1, 1}, {0, 1, 2, 3}}));
  EXPECT_EQ(dims_of(Options::sm3(), {8, 100, 90}, "last_two", "int4"),
            (Dims{{0, 1, 2}, {0, 1, 2}, {0, 1, -1}, {0, -1, 1}}));
}

TEST(Shard, DimensionsBecomeRangesOfTheView) {
  const Sizes shape{8, 4, 3, 3};
  const core::MatrixView fold = choose_view(shape, View::fold, true);
  const auto rows = core::locate(shape, fold, 1, {2, 0, 0, 0}, {5, 4, 3, 3});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->rows.begin, 2);
  EXPECT_EQ(rows->rows.count, 5);
  EXPECT_TRUE(rows->splits_rows && !rows->splits_cols && !rows->splits_batch);
  const auto cols = core::locate(shape, fold, 2, {0, 1, 0, 0}, {8, 2, 3, 3});
  ASSERT_TRUE(cols);
  EXPECT_EQ(cols->cols.begin, 9);
  EXPECT_EQ(cols->cols.count, 18);
  EXPECT_TRUE(cols->splits_cols);
  // Part of the last dimension under several of the second is no range of columns.
  EXPECT_FALSE(core::locate(shape, fold, 8, {0, 0, 0, 1}, {8, 4, 3, 2}));
  const core::MatrixView last_two = choose_view(shape, View::last_two, true);
  const auto batch = core::locate(shape, last_two, 1, {2, 0, 0, 0}, {5, 4, 3, 3});
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->batch.begin, 8);
  EXPECT_EQ(batch->batch.count, 20);
  EXPECT_TRUE(batch->splits_batch);
}

TEST(Shard, ThatIsNoRangeIsRefusedWithAdvice) {
  TensorSpec spec = spec_of({8, 4, 3, 3});
  spec.shard = Shard{8, {0, 0, 0, 1}, {8, 4, 3, 2}};
  expect_error([&] { layout(Options::came(), spec); }, "'w'", "no range of rows and columns", "dimension 0");
}

}  // namespace
}  // namespace came::test
