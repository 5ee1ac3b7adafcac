// Tensors that different dimensions of a mesh of ranks split: each set of ranks reduces what is its own.
#include "sharding.hpp"

namespace came::test {
namespace {

constexpr size_t kSide = 2;  // of the mesh: rank kSide * row + col

/// A tensor, and what is cut along the rows and the columns of the mesh.
struct Placed {
  Sizes shape;
  int row_cuts = -1;  ///< This dimension, over the rows of the mesh; -1: none.
  int col_cuts = -1;  ///< Likewise, over its columns.
};

/// A group for each set of dimensions of the mesh: ranks that differ in its row, in its column, in either.
const Groups kGroups{{{0, 2}, {1, 3}}, {{0, 1}, {2, 3}}, {{0, 1, 2, 3}}};
constexpr int kOfRow = 0;
constexpr int kOfCol = 1;
constexpr int kOfBoth = 2;

const std::vector<Placed>& tensors() {
  static const std::vector<Placed> list{
      {{13, 11}, 0, -1},     // rows
      {{13, 11}, -1, 1},     // columns
      {{13, 11}, 0, 1},      // rows and columns
      {{13, 11}, 0, 0},      // rows, over all ranks
      {{6, 5}},              // on all ranks
      {{2, 66, 65}, 0, 1},   // matrices and their rows
      {{3, 65, 64}, 2, 0},   // matrices and their columns
      {{3, 65, 64}, 0, -1},  // matrices
      {{3, 8, 9}, -1, 0},    // small matrices
      {{29}, -1, 0},         // a vector
      {{7, 4, 3, 3}, 1, 0},  // rows and columns of a folded convolution
      {{1}, 0, -1},          // one element: some ranks hold none
      {{4}},
  };
  return list;
}

/// The larger part comes second, so that parts of one are empty.
void cut_once(Shard& shard, int dim, size_t which) {
  const auto d = static_cast<size_t>(dim);
  const int64_t half = shard.extent[d] / 2;
  shard.split_dims |= uint64_t{1} << d;
  shard.offset[d] += which == 0 ? 0 : half;
  shard.extent[d] = which == 0 ? half : shard.extent[d] - half;
}

TensorSpec spec_on(const Placed& placed, size_t index, size_t rank) {
  TensorSpec spec = spec_of(placed.shape);
  spec.id = index;
  if (placed.row_cuts < 0 && placed.col_cuts < 0) return spec;
  Shard shard{0, Sizes(placed.shape.size(), 0), placed.shape};
  shard.reduce_group = placed.col_cuts < 0 ? kOfRow : placed.row_cuts < 0 ? kOfCol : kOfBoth;
  if (placed.row_cuts >= 0) cut_once(shard, placed.row_cuts, rank / kSide);
  if (placed.col_cuts >= 0) cut_once(shard, placed.col_cuts, rank % kSide);
  // Ranks with parts of the same matrices differ in what does not split the batch.
  shard.matrix_group = placed.row_cuts == 0 ? kOfCol : kOfRow;
  spec.shard = shard;
  return spec;
}

class Mesh : public testing::TestWithParam<std::string> {
 protected:
  void expect_what_one_rank_gives(const Options& o) {
    std::vector<TensorSpec> whole_specs;
    for (size_t k = 0; k < tensors().size(); ++k) {
      whole_specs.push_back(spec_of(tensors()[k].shape));
      whole_specs.back().id = k;
    }
    Trial whole({o}, whole_specs);
    Ranks ranks;
    for (size_t r = 0; r < kSide * kSide; ++r) {
      std::vector<TensorSpec> specs;
      for (size_t k = 0; k < tensors().size(); ++k) specs.push_back(spec_on(tensors()[k], k, r));
      ranks.push_back(std::make_unique<Trial>(std::vector<Options>{o}, specs));
      ranks.back()->fill_params(1);
    }
    whole.fill_params(1);
    const std::vector<Buffer> origin = whole.params;
    for (uint64_t step = 0; step < 25; ++step) {
      whole.fill_grads(100 + step);
      whole.run();
      for (auto& rank : ranks) rank->fill_grads(100 + step);
      step_ranks(ranks, kGroups);
    }
    std::vector<double> moved(tensors().size(), 0.0);
    whole.for_each_element([&](size_t k, int64_t i, int64_t) {
      const double before = static_cast<const double*>(const_cast<Buffer&>(origin[k]).data())[i];
      moved[k] = std::max(moved[k], std::abs(whole.param(k).get(i) - before));
    });
    std::vector<double> apart(tensors().size(), 0.0);
    for (auto& rank : ranks) {
      rank->for_each_element([&](size_t k, int64_t i, int64_t element) {
        const double off = std::abs(rank->param(k).get(i) - whole.param(k).get(element));
        EXPECT_TRUE(std::isfinite(off));
        apart[k] = std::max(apart[k], off);
      });
    }
    for (size_t k = 0; k < apart.size(); ++k) EXPECT_LE(apart[k], 1e-12 * moved[k]) << "tensor " << k;
    // What two ranks hold of the same elements has the same bits.
    EXPECT_EQ(ranks[0]->params[0].bytes(), ranks[1]->params[0].bytes());
    EXPECT_EQ(ranks[0]->params[1].bytes(), ranks[2]->params[1].bytes());
    for (size_t r = 1; r < ranks.size(); ++r) EXPECT_EQ(ranks[0]->params[4].bytes(), ranks[r]->params[4].bytes());
  }
};

TEST_P(Mesh, GivesWhatOneRankGives) { expect_what_one_rank_gives(Options(GetParam())); }

TEST_P(Mesh, GivesWhatOneRankGivesWithTheNormOfTheWholeModel) {
  Options o(GetParam());
  o.max_grad_norm = 0.8;
  o.cautious = 1;
  o.weight_decay = 0.1;
  if (o.word() == "adafactor") o.scale_parameter = 1;
  if (o.word() == "came") o.confidence_1d = 1;
  expect_what_one_rank_gives(o);
}

INSTANTIATE_TEST_SUITE_P(All, Mesh, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

/// Doubles that a group all-reduces in each phase.
std::vector<int64_t> exchanged(const Plan& plan, int group) {
  std::vector<int64_t> counts;
  for (int phase = 0; phase < plan.phases(); ++phase) counts.push_back(plan.reduction(phase, group).count);
  return counts;
}

constexpr int64_t kMatrices = 8;
constexpr int64_t kRows = 100;
constexpr int64_t kCols = 90;

/// Two of eight matrices; with `rows`, half of the rows of each.
TensorSpec experts(bool rows) {
  TensorSpec spec = spec_of({kMatrices, kRows, kCols}, DType::f32);
  spec.shard = Shard{rows ? 3U : 1U, {4, 0, 0}, {2, rows ? kRows / 2 : kRows, kCols}, 0, 1};
  return spec;
}

TEST(MeshPlan, OfExpertsOnlyTotalsCross) {
  using Counts = std::vector<int64_t>;
  constexpr int64_t kPresence = 2;
  Options came = Options::came();
  EXPECT_EQ(exchanged(Plan({came}, {experts(false)}), 0), (Counts{kPresence, 1, 0, 0}));  // the RMS
  came.cautious = 1;
  EXPECT_EQ(exchanged(Plan({came}, {experts(false)}), 0), (Counts{kPresence, 1, 1, 0}));
  Options adafactor = Options::adafactor();
  adafactor.scale_parameter = 1;
  EXPECT_EQ(exchanged(Plan({adafactor}, {experts(false)}), 0), (Counts{kPresence + 1, 1, 0}));
  EXPECT_EQ(exchanged(Plan({Options::sm3()}, {experts(false)}), 0), (Counts{kPresence, 0}));
  came.max_grad_norm = 1;
  EXPECT_EQ(exchanged(Plan({came}, {experts(false)}), 0), (Counts{kPresence + 1, 0, 1, 1, 0}));
}

TEST(MeshPlan, OfExpertsWhoseRowsAreSplitOnlyLocalVectorsCross) {
  using Counts = std::vector<int64_t>;
  constexpr int64_t kPresence = 2;
  constexpr int64_t kLocal = 2 * (kRows + kCols + 1);  // two matrices: sums over rows and columns, and a mean
  const Plan came({Options::came()}, {experts(true)});
  EXPECT_EQ(exchanged(came, 0), (Counts{kPresence, 1, 0, 0}));
  EXPECT_EQ(exchanged(came, 1), (Counts{kLocal, 0, kLocal, 0}));
  EXPECT_EQ(came.reduction(0, 1).presence, 0);
  EXPECT_EQ(came.memory().reduction_bytes, 8 * (kPresence + kLocal + 1 + kLocal));
  const Plan sm3({Options::sm3()}, {experts(true)});
  EXPECT_EQ(exchanged(sm3, 0), (Counts{kPresence, 0}));
  EXPECT_EQ(exchanged(sm3, 1), (Counts{2 * (kRows + kCols), 0}));
  // What is not split in the batch has one run.
  TensorSpec rows = spec_of({kRows, kCols}, DType::f32);
  rows.shard = Shard{1, {0, 0}, {50, kCols}, 0, 1};
  EXPECT_EQ(exchanged(Plan({Options::came()}, {rows}), 0), (Counts{kPresence + 2 * kCols + 1, kCols + 1, 0}));
  EXPECT_EQ(exchanged(Plan({Options::came()}, {rows}), 1), (Counts{0, 0, 0}));
  EXPECT_EQ(exchanged(Plan({Options::lamb()}, {rows}), 0), (Counts{kPresence + 2, 0}));
}

TEST(MeshPlan, RefusesAMatrixGroupThatIsNone) {
  const auto error_with = [](int reduce_group, int matrix_group, const Options& o = Options::came(), bool rows = true) {
    TensorSpec spec = experts(rows);
    spec.shard->reduce_group = reduce_group;
    spec.shard->matrix_group = matrix_group;
    return error_of([&] { Plan({o}, {spec}); });
  };
  EXPECT_NE(error_with(1, 1).find("tensor 0 'w': matrix_group is 1 as reduce_group, expected another number"),
            std::string::npos);
  EXPECT_NE(error_with(0, 64).find("tensor 0 'w': matrix_group is 64, expected 0 to 63"), std::string::npos);
  EXPECT_NE(error_with(0, -1).find("tensor 0 'w': matrix_group is -1, expected 0 to 63"), std::string::npos);
  EXPECT_EQ(error_with(1, 0), "");
  // Not read.
  EXPECT_EQ(error_with(0, -1, Options::adamw()), "");
  EXPECT_EQ(error_with(0, 0, Options::came(), false), "");
}

}  // namespace
}  // namespace came::test
